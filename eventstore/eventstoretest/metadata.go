package eventstoretest

import (
	"context"
	"reflect"
	"strings"
	"testing"

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
