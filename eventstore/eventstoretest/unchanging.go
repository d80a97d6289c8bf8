package eventstoretest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// testUnchanging tries to change what is stored through everything that a caller shares with the store.
func testUnchanging(t *testing.T, open Open) {
	store := open(t)
	id := stream("kept")
	headers := map[string]string{"a": "1"}
	given := []eventstore.EventData{{
		ID: uuid.New(), Type: "kept.happened", Data: []byte("payload"), Metadata: eventstore.Metadata{Headers: headers},
	}}
	shared := map[string]string{"c": "context"}
	ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Headers: shared})
	writes := []eventstore.Write{eventstore.To(id, eventstore.NoStream, given...)}
	result, err := store.Append(ctx, writes...)
	if err != nil {
		t.Fatal(err)
	}
	want := readStream(t, store, id, eventstore.Range{})[0]
	wantContent := eventstore.EventData{
		ID: given[0].ID, Type: "kept.happened", SchemaVersion: 1, ContentType: "application/octet-stream", Data: []byte("payload"),
		Metadata: eventstore.Metadata{Headers: map[string]string{"a": "1", "c": "context"}},
	}
	unchanged := func(t *testing.T) {
		t.Helper()
		fromStream := readStream(t, store, id, eventstore.Range{})[0]
		fromLog := readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{"kept"}})[0]
		for _, err := range []error{
			dataDifference(wantContent, fromStream.EventData), dataDifference(wantContent, fromLog.EventData),
			difference(want, fromStream), difference(want, fromLog),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	}

	t.Run("the append leaves its input alone", func(t *testing.T) {
		if len(writes[0].Events[0].Metadata.Headers) != 1 || writes[0].Events[0].SchemaVersion != 0 || len(headers) != 1 || len(shared) != 1 {
			t.Errorf("the append changed what it was given: %+v", writes)
		}
	})
	t.Run("input changed afterwards", func(t *testing.T) {
		given[0].Data[0] = 'X'
		headers["a"], headers["b"], shared["c"] = "X", "X", "X"
		writes[0].Events[0].Type = "X"
		unchanged(t)
	})
	t.Run("what was read is changed", func(t *testing.T) {
		for _, list := range [][]eventstore.RecordedEvent{
			readStream(t, store, id, eventstore.Range{}), readAll(t, store, eventstore.Position{}, eventstore.Filter{Categories: []string{"kept"}}),
		} {
			list[0].Data[0] = 'X'
			list[0].Metadata.Headers["a"] = "X"
			clear(list[0].Metadata.Headers)
		}
		unchanged(t)
	})
	t.Run("the result is changed", func(t *testing.T) {
		result.Versions[id] = 99
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(1), event("kept.happened", "second")))
		unchanged(t)
	})
}

// testCancelled: a context that has ended writes nothing and ends every read with one error.
func testCancelled(t *testing.T, open Open) {
	store := open(t)
	id := stream("cancelled")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("cancelled.happened", 5)...))
	done, cancel := context.WithCancel(context.Background())
	cancel()

	t.Run("append", func(t *testing.T) {
		for _, w := range []eventstore.Write{
			eventstore.To(id, eventstore.AnyVersion, event("cancelled.happened", "x")), eventstore.To(id, eventstore.Exactly(5), event("cancelled.happened", "x")),
			eventstore.To(stream("cancelled"), eventstore.NoStream, event("cancelled.happened", "x")),
		} {
			if _, err := store.Append(done, w); !errors.Is(err, context.Canceled) {
				t.Errorf("append gave %v, want context.Canceled", err)
			}
		}
		if n := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{})); n != 5 {
			t.Errorf("the log has %d events", n)
		}
	})
	t.Run("read", func(t *testing.T) {
		for name, sequence := range map[string]func(func(eventstore.RecordedEvent, error) bool){
			"stream": store.ReadStream(done, id, eventstore.Range{}), "missing stream": store.ReadStream(done, stream("none"), eventstore.Range{}),
			"log": store.ReadAll(done, eventstore.Position{}, eventstore.Filter{}),
		} {
			yields := 0
			for e, err := range sequence {
				yields++
				if !errors.Is(err, context.Canceled) || e.Version != 0 {
					t.Errorf("%s gave %+v, %v; want context.Canceled", name, e, err)
				}
			}
			if yields != 1 {
				t.Errorf("%s yielded %d times, want one error", name, yields)
			}
		}
	})
	t.Run("cancelled while reading", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var last error
		seen := 0
		for _, err := range store.ReadStream(ctx, id, eventstore.Range{}) {
			if err != nil {
				last = err
				continue
			}
			seen++
			cancel()
		}
		// What was fetched before may still be yielded.
		if last != nil && !errors.Is(last, context.Canceled) || last == nil && seen != 5 {
			t.Errorf("%d events, then %v", seen, last)
		}
	})
}
