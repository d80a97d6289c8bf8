package eventstoretest

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

func testMetadata(t *testing.T, open Open) {
	store := open(t)
	// stored appends an event with m in a context and returns what is stored of it.
	stored := func(t *testing.T, ctx context.Context, m eventstore.Metadata) eventstore.Metadata {
		t.Helper()
		id := stream("meta")
		e := event("meta.happened", "")
		e.Metadata = m
		if _, err := store.Append(ctx, eventstore.To(id, eventstore.NoStream, e)); err != nil {
			t.Fatal(err)
		}
		return readStream(t, store, id, eventstore.Range{})[0].Metadata
	}
	request := eventstore.WithMetadata(context.Background(), eventstore.Metadata{
		Tenant: "tenant", CorrelationID: "corr", Actor: "request", Headers: map[string]string{"traceparent": "00-x", "k": "request"},
	})
	tests := []struct {
		name string
		ctx  context.Context
		m    eventstore.Metadata
		want eventstore.Metadata
	}{
		{"none", context.Background(), eventstore.Metadata{}, eventstore.Metadata{}},
		{"empty headers are none", context.Background(), eventstore.Metadata{Headers: map[string]string{}}, eventstore.Metadata{}},
		{"of the context", request, eventstore.Metadata{}, eventstore.Metadata{
			Tenant: "tenant", CorrelationID: "corr", Actor: "request", Headers: map[string]string{"traceparent": "00-x", "k": "request"},
		}},
		{"the event wins", request, eventstore.Metadata{Actor: "event", CausationID: "cause", Headers: map[string]string{"k": "event"}}, eventstore.Metadata{
			Tenant: "tenant", CorrelationID: "corr", CausationID: "cause", Actor: "event", Headers: map[string]string{"traceparent": "00-x", "k": "event"},
		}},
		// R-SU08 and R-PG02: odd but storable text survives, long text too.
		{"odd text", context.Background(), eventstore.Metadata{
			Tenant: `\u0000`, Actor: "ä🜚\u200d\ufffd", CorrelationID: "\t\r\n'\"\\", CausationID: strings.Repeat("c", 1024),
			Headers: map[string]string{`\u0000`: `a\u0000b`, "\x01": "\x7f", strings.Repeat("n", 1024): strings.Repeat("v", 8192)},
		}, eventstore.Metadata{
			Tenant: `\u0000`, Actor: "ä🜚\u200d\ufffd", CorrelationID: "\t\r\n'\"\\", CausationID: strings.Repeat("c", 1024),
			Headers: map[string]string{`\u0000`: `a\u0000b`, "\x01": "\x7f", strings.Repeat("n", 1024): strings.Repeat("v", 8192)},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := stored(t, tt.ctx, tt.m); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("stored %+v, want %+v", got, tt.want)
			}
		})
	}

	// Engines may send what the events of an append have in common once: what they do not must stay each one's own.
	t.Run("each event of an append has its own", func(t *testing.T) {
		odd := map[string]func(*eventstore.EventData){
			"nothing":        func(*eventstore.EventData) {},
			"Type":           func(e *eventstore.EventData) { e.Type = "own.other" },
			"SchemaVersion":  func(e *eventstore.EventData) { e.SchemaVersion = 7 },
			"ContentType":    func(e *eventstore.EventData) { e.ContentType = "text/plain" },
			"Flags":          func(e *eventstore.EventData) { e.Flags = 5 },
			"Tenant":         func(e *eventstore.EventData) { e.Metadata.Tenant = "other" },
			"no Tenant":      func(e *eventstore.EventData) { e.Metadata.Tenant = "" },
			"CorrelationID":  func(e *eventstore.EventData) { e.Metadata.CorrelationID = "other" },
			"CausationID":    func(e *eventstore.EventData) { e.Metadata.CausationID = "other" },
			"Actor":          func(e *eventstore.EventData) { e.Metadata.Actor = "other" },
			"Headers":        func(e *eventstore.EventData) { e.Metadata.Headers = map[string]string{"k": "other"} },
			"no Headers":     func(e *eventstore.EventData) { e.Metadata.Headers = nil },
			"Data":           func(e *eventstore.EventData) { e.Data = []byte("other") },
			"several fields": func(e *eventstore.EventData) { e.Flags, e.Metadata.Actor, e.SchemaVersion = 9, "other", 3 },
		}
		const events = 4
		for name, change := range odd {
			for at := range events { // the odd one out is the first, in the middle, the last
				want := make([]eventstore.EventData, events)
				for k := range want {
					want[k] = eventstore.EventData{
						ID: uuid.New(), Type: "own.happened", SchemaVersion: 1, ContentType: "application/json", Data: []byte("{}"),
						Metadata: eventstore.Metadata{
							Tenant: "t", CorrelationID: "corr", CausationID: "cause", Actor: "a", Headers: map[string]string{"k": "v"},
						},
					}
				}
				change(&want[at])
				fresh, absent, loose := stream("own"), stream("own"), stream("own")
				appended := func(id eventstore.StreamID, expected eventstore.ExpectedVersion, first eventstore.Version, more ...eventstore.Write) {
					t.Helper()
					if _, err := store.Append(context.Background(), append([]eventstore.Write{eventstore.To(id, expected, want...)}, more...)...); err != nil {
						t.Fatalf("%s at %d: %v", name, at, err)
					}
					for k, got := range readStream(t, store, id, eventstore.Range{From: first}) {
						if !reflect.DeepEqual(got.EventData, want[k]) {
							t.Errorf("%s at %d, expecting %s: event %d is %+v, want %+v", name, at, expected, k, got.EventData, want[k])
						}
					}
					for k := range want {
						want[k].ID = uuid.New()
					}
				}
				appended(fresh, eventstore.NoStream, 1)
				appended(fresh, eventstore.Exactly(events), events+1)
				appended(loose, eventstore.AnyVersion, 1, eventstore.Check(absent, eventstore.NoStream))
			}
		}
	})

	t.Run("same in stream and log", func(t *testing.T) {
		id := stream("both")
		e := event("both.happened", "")
		e.Metadata = eventstore.Metadata{Tenant: "t", Headers: map[string]string{"a": "b"}}
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, e, event("both.happened", "")))
		fromStream := readStream(t, store, id, eventstore.Range{})
		fromLog := readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{"both"}})
		if !reflect.DeepEqual(fromStream, fromLog) {
			t.Errorf("stream has %+v, log has %+v", fromStream, fromLog)
		}
	})
}
