package eventstoretest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// testRefused gives every engine what cannot be stored. R-SU08: it is refused with the name of the field, nothing of
// the append is stored, and the harmless neighbours survive.
func testRefused(t *testing.T, open Open) {
	store := open(t)
	id := uuid.New()
	changed := func(change func(*eventstore.EventData)) []eventstore.Write {
		bad := event("refused.happened", "bad")
		change(&bad)
		return []eventstore.Write{
			eventstore.To(stream("refused"), eventstore.NoStream, event("refused.happened", "good")),
			eventstore.To(stream("refused"), eventstore.NoStream, event("refused.happened", "good"), bad),
		}
	}
	to := func(id eventstore.StreamID) []eventstore.Write {
		return []eventstore.Write{eventstore.To(id, eventstore.NoStream, event("refused.happened", "x"))}
	}
	type data = eventstore.EventData
	twice := stream("refused")
	tests := []struct {
		name   string
		writes []eventstore.Write
		field  string // a part of it
	}{
		{"no stream", []eventstore.Write{{Events: events("x", 1)}}, "stream category"},
		{"dash in category", to(eventstore.NewStreamID("a-b", "c")), "stream category"},
		{"zero byte in stream", to(eventstore.NewStreamID("a", "b\x00c")), "stream id"},
		{"stream not UTF-8", to(eventstore.NewStreamID("a", "b\xff")), "stream id"},
		{"surrogate in stream", to(eventstore.NewStreamID("a", "b\xed\xa0\x80")), "stream id"},
		{"long stream", to(eventstore.NewStreamID("a", strings.Repeat("x", 511))), "stream id"},
		{"stream twice", append(to(twice), eventstore.Check(twice, eventstore.NoStream)), "Stream"},
		{"negative version", []eventstore.Write{eventstore.Check(stream("a"), eventstore.Exactly(-1))}, "Expected"},
		{"no type", changed(func(e *data) { e.Type = "" }), "Type"},
		{"zero byte in type", changed(func(e *data) { e.Type = "a\x00b" }), "Type"},
		{"type not UTF-8", changed(func(e *data) { e.Type = "a\xff" }), "Type"},
		{"zero byte in content type", changed(func(e *data) { e.ContentType = "a\x00b" }), "ContentType"},
		{"zero byte in tenant", changed(func(e *data) { e.Metadata.Tenant = "a\x00b" }), "Tenant"},
		{"actor not UTF-8", changed(func(e *data) { e.Metadata.Actor = "a\xff" }), "Actor"},
		{"zero byte in correlation", changed(func(e *data) { e.Metadata.CorrelationID = "\x00" }), "CorrelationID"},
		{"zero byte in causation", changed(func(e *data) { e.Metadata.CausationID = "\x00" }), "CausationID"},
		{"zero byte in header", changed(func(e *data) { e.Metadata.Headers = map[string]string{"a": "\x00"} }), "Headers[a]"},
		{"header name not UTF-8", changed(func(e *data) { e.Metadata.Headers = map[string]string{"\xff": ""} }), "Headers name"},
		{"one id twice", []eventstore.Write{eventstore.To(stream("a"), eventstore.NoStream, data{ID: id, Type: "x"}, data{ID: id, Type: "x"})}, "ID"},
		{"zero byte in partition key", []eventstore.Write{{Stream: stream("a"), Events: events("x", 1), PartitionKey: "a\x00"}}, "PartitionKey"},
		{"negative schema version", changed(func(e *data) { e.SchemaVersion = -1 }), "SchemaVersion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := refused(t, store, tt.writes...)
			var invalid *eventstore.InvalidError
			if !errors.As(err, &invalid) || !errors.Is(err, eventstore.ErrInvalid) || eventstore.IsRetryable(err) {
				t.Fatalf("append gave %v, want an InvalidError", err)
			}
			if !strings.Contains(invalid.Field, tt.field) {
				t.Errorf("the error names field %q, want %q", invalid.Field, tt.field)
			}
		})
	}

	t.Run("context", func(t *testing.T) {
		ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Tenant: "\x00"})
		if _, err := store.Append(ctx, to(stream("a"))...); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("append gave %v, want ErrInvalid", err)
		}
	})

	t.Run("nothing was stored", func(t *testing.T) {
		if list := readAll(t, store, eventstore.Position{}, eventstore.Filter{}); len(list) != 0 {
			t.Errorf("refused appends stored %q", payloads(list))
		}
	})

	t.Run("reading a bad stream id", func(t *testing.T) {
		for _, id := range []eventstore.StreamID{{}, eventstore.NewStreamID("a-b", "c"), eventstore.NewStreamID("a", "\x00")} {
			n := 0
			for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{}) {
				n++
				if !errors.Is(err, eventstore.ErrInvalid) || e.Version != 0 {
					t.Errorf("reading %q gave %+v, %v", id, e, err)
				}
			}
			if n != 1 {
				t.Errorf("reading %q yielded %d times, want one error", id, n)
			}
		}
	})

	t.Run("odd names that can be stored", func(t *testing.T) {
		for _, text := range []string{`a\u0000b`, "ä🜚", " ", "'\"\\%_*", "{a,b}", "NULL", "\x01\x7f", "-", strings.Repeat("x", 120)} {
			id := eventstore.NewStreamID("odd", text+"-"+uuid.NewString())
			e := event(text, text)
			e.ContentType = text
			mustAppend(t, store, eventstore.To(id, eventstore.NoStream, e))
			got := readStream(t, store, id, eventstore.Range{})
			if len(got) != 1 || got[0].Stream != id || got[0].Type != text || got[0].ContentType != text || string(got[0].Data) != text {
				t.Errorf("%q came back as %+v", text, got)
			}
			if n := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{Types: []string{text}})); n != 1 {
				t.Errorf("the log has %d events of type %q", n, text)
			}
		}
		odd := eventstore.NewStreamID(`o_%'"\d`, uuid.NewString())
		mustAppend(t, store, eventstore.To(odd, eventstore.NoStream, event("x", "")))
		if n := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{odd.Category}})); n != 1 {
			t.Errorf("the log has %d events of category %q", n, odd.Category)
		}
	})

	t.Run("a filter that nothing can match", func(t *testing.T) {
		for _, f := range []eventstore.Filter{{Categories: []string{"a\x00"}}, {Types: []string{"\xff"}}} {
			for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, f) {
				if err == nil || !errors.Is(err, eventstore.ErrInvalid) {
					t.Errorf("filter %+v yielded %+v, %v; want nothing or ErrInvalid", f, e, err)
				}
			}
		}
	})
}
