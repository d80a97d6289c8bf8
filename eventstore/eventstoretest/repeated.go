package eventstoretest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// owned returns n events with ids of the caller's.
func owned(n int) []eventstore.EventData {
	list := events("owned.happened", n)
	for i := range list {
		list[i].ID = uuid.New()
	}
	return list
}

func testRepeated(t *testing.T, open Open) {
	store := open(t)

	// again sends an append a second time and expects the first result.
	again := func(t *testing.T, first eventstore.AppendResult, writes ...eventstore.Write) {
		t.Helper()
		before := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{}))
		got := mustAppend(t, store, writes...)
		if !got.Repeated || got.Token.String() != first.Token.String() || !got.RecordedAt.Equal(first.RecordedAt) {
			t.Errorf("the repeated append gave %+v, the first %+v", got, first)
		}
		wantVersions(t, got, first.Versions)
		if after := len(readAll(t, store, eventstore.Position{}, eventstore.Filter{})); after != before {
			t.Errorf("the repeated append wrote %d events", after-before)
		}
	}

	t.Run("a new stream", func(t *testing.T) {
		w := eventstore.To(stream("owned"), eventstore.NoStream, owned(3)...)
		first := mustAppend(t, store, w)
		if first.Repeated {
			t.Error("the first append says that it is a repetition")
		}
		again(t, first, w)
		again(t, first, w)
		mustAppend(t, store, eventstore.To(w.Stream, eventstore.Exactly(3), owned(2)...))
		again(t, first, w) // also when the stream has moved on
	})

	t.Run("an existing stream", func(t *testing.T) {
		id := stream("owned")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("x", 2)...))
		w := eventstore.To(id, eventstore.Exactly(2), owned(2)...)
		first := mustAppend(t, store, w)
		mustAppend(t, store, eventstore.To(id, eventstore.AnyVersion, events("x", 1)...))
		again(t, first, w)
	})

	t.Run("several streams and a check", func(t *testing.T) {
		seen := stream("seen")
		mustAppend(t, store, eventstore.To(seen, eventstore.NoStream, events("x", 1)...))
		writes := []eventstore.Write{
			eventstore.To(stream("owned"), eventstore.NoStream, owned(2)...),
			eventstore.Check(seen, eventstore.Exactly(1)),
			eventstore.To(stream("owned"), eventstore.NoStream, owned(1)...),
		}
		first := mustAppend(t, store, writes...)
		again(t, first, writes...)
		mustAppend(t, store, eventstore.To(seen, eventstore.Exactly(1), events("x", 1)...))
		again(t, first, writes...) // the check held when it mattered
	})

	t.Run("metadata may differ", func(t *testing.T) { // the repetition belongs to another trace
		w := eventstore.To(stream("owned"), eventstore.NoStream, owned(1)...)
		first := mustAppend(t, store, w)
		ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{CorrelationID: "second attempt"})
		if got, err := store.Append(ctx, w); err != nil || !got.Repeated || got.Token.String() != first.Token.String() {
			t.Errorf("repeated with other metadata: %+v, %v", got, err)
		}
	})

	t.Run("other content", func(t *testing.T) {
		w := eventstore.To(stream("owned"), eventstore.NoStream, owned(2)...)
		mustAppend(t, store, w)
		for name, change := range map[string]func(*eventstore.EventData){
			"payload":        func(e *eventstore.EventData) { e.Data = []byte("other") },
			"type":           func(e *eventstore.EventData) { e.Type = "owned.other" },
			"schema version": func(e *eventstore.EventData) { e.SchemaVersion = 2 },
			"content type":   func(e *eventstore.EventData) { e.ContentType = "text/plain" },
			"flags":          func(e *eventstore.EventData) { e.Flags = 1 },
		} {
			changed := w
			changed.Events = slices.Clone(w.Events)
			change(&changed.Events[1])
			_, err := store.Append(context.Background(), changed)
			if !errors.Is(err, eventstore.ErrReusedID) || eventstore.IsRetryable(err) {
				t.Errorf("other %s: %v, want ErrReusedID", name, err)
			}
		}
		wantPayloads(t, readStream(t, store, w.Stream, eventstore.Range{}), "1", "2")
	})

	t.Run("is a conflict without ids of all events", func(t *testing.T) {
		id := stream("owned")
		list := owned(2)
		list[1].ID = uuid.UUID{}
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, list...))
		wantConflict(t, store, id, eventstore.NoStream, 2, eventstore.To(id, eventstore.NoStream, list...))
	})

	t.Run("is a conflict with other ids", func(t *testing.T) {
		id := stream("owned")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, owned(2)...))
		wantConflict(t, store, id, eventstore.NoStream, 2, eventstore.To(id, eventstore.NoStream, owned(2)...))
		wantConflict(t, store, id, eventstore.Exactly(1), 2, eventstore.To(id, eventstore.Exactly(1), owned(1)...))
		wantConflict(t, store, id, eventstore.Exactly(1), 2, eventstore.To(id, eventstore.Exactly(1), owned(2)...))
	})

	t.Run("is a conflict with claims that are not exact", func(t *testing.T) {
		for _, claim := range []eventstore.ExpectedVersion{eventstore.AnyVersion, eventstore.StreamExists} {
			id, other := stream("owned"), stream("owned")
			list := owned(2)
			if claim == eventstore.StreamExists {
				mustAppend(t, store, eventstore.To(other, eventstore.NoStream, events("x", 1)...))
			}
			writes := []eventstore.Write{eventstore.To(id, eventstore.NoStream, list[:1]...), eventstore.To(other, claim, list[1:]...)}
			mustAppend(t, store, writes...)
			wantConflict(t, store, id, eventstore.NoStream, 1, writes...)
		}
	})

	t.Run("is refused where only a part is stored", func(t *testing.T) {
		id := stream("owned")
		list := owned(3)
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, list[:2]...))
		err := refused(t, store, eventstore.To(id, eventstore.NoStream, list...))
		if !errors.Is(err, eventstore.ErrConflict) && !errors.Is(err, eventstore.ErrReusedID) {
			t.Errorf("the error is %v", err)
		}
		if n := len(readStream(t, store, id, eventstore.Range{})); n != 2 {
			t.Errorf("the stream has %d events", n)
		}
	})

	t.Run("many at once are stored once", func(t *testing.T) {
		writes := []eventstore.Write{
			eventstore.To(stream("owned"), eventstore.NoStream, owned(2)...), eventstore.To(stream("owned"), eventstore.NoStream, owned(1)...),
		}
		results := together(16, func(int) (eventstore.AppendResult, error) { return store.Append(context.Background(), writes...) })
		fresh := 0
		for _, r := range results {
			if r.err != nil {
				t.Errorf("append: %v", r.err)
				continue
			}
			if !r.result.Repeated {
				fresh++
			}
			if r.result.Token.String() != results[0].result.Token.String() {
				t.Errorf("results differ: %+v and %+v", r.result, results[0].result)
			}
		}
		if fresh != 1 {
			t.Errorf("%d of 16 appends say that they were the first", fresh)
		}
	})
}
