package eventstore_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	first  = eventstore.NewStreamID("account", "1")
	second = eventstore.NewStreamID("account", "2")
)

func deposited() eventstore.EventData {
	return eventstore.EventData{Type: "account.deposited", Data: []byte("x")}
}

func with(change func(*eventstore.EventData)) eventstore.EventData {
	e := deposited()
	change(&e)
	return e
}

func TestPrepareCompletes(t *testing.T) {
	t.Parallel()
	ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{
		Tenant: "context", Actor: "context", Headers: map[string]string{"h": "context"},
	})
	given := []eventstore.Write{
		eventstore.To(first, eventstore.NoStream, with(func(e *eventstore.EventData) {
			e.Metadata = eventstore.Metadata{Actor: "event"}
		}), deposited()),
		eventstore.Check(second, eventstore.Exactly(3)),
	}
	before := []eventstore.EventData{given[0].Events[0], given[0].Events[1]}
	prepared, ownIDs, err := eventstore.Prepare(ctx, given)
	if err != nil || ownIDs || len(prepared) != 2 {
		t.Fatalf("Prepare = %v, own ids %v, %v", prepared, ownIDs, err)
	}
	if !reflect.DeepEqual(given[0].Events, before) {
		t.Errorf("the writes were changed: %#v", given[0].Events)
	}
	if prepared[1].Expected != eventstore.Exactly(3) || len(prepared[1].Events) != 0 {
		t.Errorf("the check became %#v", prepared[1])
	}
	e := prepared[0].Events[0]
	if e.SchemaVersion != 1 || e.ContentType != "application/octet-stream" || e.ID.Version() != 7 || e.ID.Variant() != uuid.RFC4122 {
		t.Errorf("defaults: %#v", e)
	}
	want := eventstore.Metadata{Tenant: "context", Actor: "event", Headers: map[string]string{"h": "context"}}
	if !reflect.DeepEqual(e.Metadata, want) {
		t.Errorf("metadata %#v, want %#v", e.Metadata, want)
	}
	if e.ID == prepared[0].Events[1].ID {
		t.Error("two events have one id")
	}
	prepared[0].Events[1].Metadata.Headers["h"] = "changed"
	if e.Metadata.Headers["h"] != "context" || eventstore.MetadataFrom(ctx).Headers["h"] != "context" {
		t.Error("events share a map of headers")
	}
}

func TestPrepareKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	e := eventstore.EventData{
		ID: uuid.New(), Type: "t", SchemaVersion: 7, ContentType: "application/json", Data: []byte("{}"),
		Metadata: eventstore.Metadata{Headers: map[string]string{"a": "b"}}, Flags: 1 << 30,
	}
	prepared, ownIDs, err := eventstore.Prepare(context.Background(), []eventstore.Write{eventstore.To(first, eventstore.AnyVersion, e)})
	if err != nil || !ownIDs || !reflect.DeepEqual(prepared[0].Events[0], e) {
		t.Errorf("Prepare = %#v, own ids %v, %v; want %#v", prepared, ownIDs, err, e)
	}
}

func TestPrepareOwnIDs(t *testing.T) {
	t.Parallel()
	own := func() eventstore.EventData { return with(func(e *eventstore.EventData) { e.ID = uuid.New() }) }
	tests := map[string]struct {
		writes []eventstore.Write
		want   bool
	}{
		"nothing":     {nil, false},
		"only checks": {[]eventstore.Write{eventstore.Check(first, eventstore.NoStream)}, false},
		"all": {[]eventstore.Write{
			eventstore.To(first, eventstore.NoStream, own(), own()), eventstore.To(second, eventstore.NoStream, own()),
		}, true},
		"all and a check": {[]eventstore.Write{
			eventstore.To(first, eventstore.NoStream, own()), eventstore.Check(second, eventstore.NoStream),
		}, true},
		"one without": {[]eventstore.Write{
			eventstore.To(first, eventstore.NoStream, own(), own()), eventstore.To(second, eventstore.NoStream, deposited()),
		}, false},
	}
	for name, tt := range tests {
		if _, got, err := eventstore.Prepare(context.Background(), tt.writes); err != nil || got != tt.want {
			t.Errorf("%s: own ids %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	type data = eventstore.EventData
	id := uuid.New()
	repeat := func(n int) []data { return make([]data, n) }
	manyEvents := repeat(10_001)
	for i := range manyEvents {
		manyEvents[i] = deposited()
	}
	bad := func(change func(*data)) []eventstore.Write {
		return []eventstore.Write{eventstore.To(first, eventstore.NoStream, deposited(), with(change))}
	}
	tests := []struct {
		name   string
		writes []eventstore.Write
		field  string
	}{
		{"no type", bad(func(e *data) { e.Type = "" }), "Type"},
		{"long type", bad(func(e *data) { e.Type = strings.Repeat("x", 129) }), "Type"},
		{"zero byte in type", bad(func(e *data) { e.Type = "a\x00" }), "Type"},
		{"type not UTF-8", bad(func(e *data) { e.Type = "a\xc3" }), "Type"},
		{"long content type", bad(func(e *data) { e.ContentType = strings.Repeat("x", 129) }), "ContentType"},
		{"zero byte in content type", bad(func(e *data) { e.ContentType = "\x00" }), "ContentType"},
		{"negative schema version", bad(func(e *data) { e.SchemaVersion = -1 }), "SchemaVersion"},
		{"huge schema version", bad(func(e *data) { e.SchemaVersion = 1<<30 + 1 }), "SchemaVersion"},
		{"huge payload", bad(func(e *data) { e.Data = make([]byte, 64<<20+1) }), "Data"},
		{"long tenant", bad(func(e *data) { e.Metadata.Tenant = strings.Repeat("x", 1025) }), "event.Metadata.Tenant"},
		{"zero byte in tenant", bad(func(e *data) { e.Metadata.Tenant = "\x00" }), "event.Metadata.Tenant"},
		{"zero byte in correlation", bad(func(e *data) { e.Metadata.CorrelationID = "\x00" }), "event.Metadata.CorrelationID"},
		{"causation not UTF-8", bad(func(e *data) { e.Metadata.CausationID = "\xff" }), "event.Metadata.CausationID"},
		{"actor not UTF-8", bad(func(e *data) { e.Metadata.Actor = "\xff" }), "event.Metadata.Actor"},
		{"header name", bad(func(e *data) { e.Metadata.Headers = map[string]string{"a\x00": "b"} }), "event.Metadata.Headers name"},
		{"header value", bad(func(e *data) { e.Metadata.Headers = map[string]string{"a": "\xff"} }), "event.Metadata.Headers[a]"},
		{"long header", bad(func(e *data) { e.Metadata.Headers = map[string]string{"a": strings.Repeat("x", 8193)} }), "event.Metadata.Headers[a]"},
		{"one id twice in a stream", []eventstore.Write{eventstore.To(first, eventstore.NoStream, data{ID: id, Type: "a"}, data{ID: id, Type: "b"})}, "ID"},
		{"one id in two streams", []eventstore.Write{
			eventstore.To(first, eventstore.NoStream, data{ID: id, Type: "a"}), eventstore.To(second, eventstore.NoStream, data{ID: id, Type: "a"}),
		}, "ID"},
		{"no stream id", []eventstore.Write{{}}, "stream category"},
		{"bad stream id", []eventstore.Write{eventstore.Check(eventstore.NewStreamID("a-b", "1"), eventstore.NoStream)}, "stream category"},
		{"negative version", []eventstore.Write{eventstore.Check(first, eventstore.Exactly(-1))}, "Expected"},
		{"long partition key", []eventstore.Write{{Stream: first, PartitionKey: strings.Repeat("k", 513)}}, "PartitionKey"},
		{"zero byte in partition key", []eventstore.Write{{Stream: first, PartitionKey: "\x00"}}, "PartitionKey"},
		{"stream twice", []eventstore.Write{
			eventstore.To(first, eventstore.NoStream, deposited()), eventstore.Check(second, eventstore.NoStream), eventstore.Check(first, eventstore.NoStream),
		}, "writes[2].Stream"},
		{"too many events", []eventstore.Write{eventstore.To(first, eventstore.NoStream, manyEvents...)}, "writes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			prepared, _, err := eventstore.Prepare(context.Background(), tt.writes)
			wantInvalid(t, err, tt.field)
			if prepared != nil {
				t.Error("a refused append came back prepared")
			}
			if strings.Contains(err.Error(), `event 1 for stream "account-1"`) {
				t.Errorf("the error blames the wrong event: %v", err)
			}
		})
	}
}

func TestPrepareLimits(t *testing.T) {
	t.Parallel()
	events := make([]eventstore.EventData, 10_000)
	for i := range events {
		events[i] = deposited()
	}
	wide := eventstore.EventData{
		Type: strings.Repeat("x", 128), ContentType: strings.Repeat("c", 128), SchemaVersion: 1 << 30, Data: make([]byte, 64<<20),
		Metadata: eventstore.Metadata{Tenant: strings.Repeat("t", 1024), Headers: map[string]string{`\u0000`: strings.Repeat("h", 8192)}},
	}
	for name, w := range map[string]eventstore.Write{
		"most events": eventstore.To(first, eventstore.NoStream, events...),
		"widest":      eventstore.To(first, eventstore.NoStream, wide),
		"widest key":  {Stream: first, PartitionKey: strings.Repeat("k", 512)},
	} {
		if _, _, err := eventstore.Prepare(context.Background(), []eventstore.Write{w}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrepareRefusesContext(t *testing.T) {
	t.Parallel()
	ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Actor: "a\x00b"})
	_, _, err := eventstore.Prepare(ctx, []eventstore.Write{eventstore.To(first, eventstore.NoStream, deposited())})
	wantInvalid(t, err, "context.Metadata.Actor")
	if !errors.Is(err, eventstore.ErrInvalid) {
		t.Error("not ErrInvalid")
	}
}

func TestBoundsOfReads(t *testing.T) {
	t.Parallel()
	for field, r := range map[string]eventstore.Range{"Range.From": {From: -1}, "Range.To": {To: -1}, "Range.Limit": {Limit: -1}} {
		wantInvalid(t, r.Validate(), field)
	}
	wantInvalid(t, eventstore.Filter{Limit: -1}.Validate(), "Filter.Limit")
	wantInvalid(t, eventstore.Filter{Types: []string{"a", "\x00"}}.Validate(), "Filter.Types")
	wantInvalid(t, eventstore.Filter{Categories: []string{"\xff"}}.Validate(), "Filter.Categories")
	if err := errors.Join(
		eventstore.Range{}.Validate(), eventstore.Range{From: 3, To: 1, Limit: 1}.Validate(),
		eventstore.Filter{}.Validate(), eventstore.Filter{Categories: []string{"a-b", ""}, Types: []string{""}, Limit: 1}.Validate(),
	); err != nil {
		t.Errorf("good bounds: %v", err)
	}
}

func TestPrepareBoundsTheWholeAppend(t *testing.T) {
	t.Parallel()
	data := make([]byte, 64<<20) // shared: nothing is copied
	var events []eventstore.EventData
	for range 8 {
		events = append(events, eventstore.EventData{Type: "file.stored", Data: data})
	}
	stream := eventstore.NewStreamID("file", "1")
	if _, _, err := eventstore.Prepare(t.Context(), []eventstore.Write{eventstore.To(stream, eventstore.NoStream, events...)}); err != nil {
		t.Errorf("exactly 512 MiB: %v", err)
	}
	events = append(events, eventstore.EventData{Type: "file.stored", Data: []byte{1}})
	_, _, err := eventstore.Prepare(t.Context(), []eventstore.Write{eventstore.To(stream, eventstore.NoStream, events...)})
	if !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("one byte more: %v, want ErrInvalid", err)
	}
}
