package eventstoretest

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// spoiled is a store whose reads are changed on the way out.
type spoiled struct {
	*memory.Store
	log, stream func([]eventstore.RecordedEvent) []eventstore.RecordedEvent
}

func changed(
	in iter.Seq2[eventstore.RecordedEvent, error], change func([]eventstore.RecordedEvent) []eventstore.RecordedEvent,
) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		var list []eventstore.RecordedEvent
		for e, err := range in {
			if err != nil {
				yield(e, err)
				return
			}
			list = append(list, e)
		}
		if change != nil {
			list = change(list)
		}
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s spoiled) ReadAll(ctx context.Context, p eventstore.Position, f eventstore.Filter) iter.Seq2[eventstore.RecordedEvent, error] {
	return changed(s.Store.ReadAll(ctx, p, f), s.log)
}

func (s spoiled) ReadStream(ctx context.Context, id eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	return changed(s.Store.ReadStream(ctx, id, r), s.stream)
}

func TestCheckFindsFaults(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	for _, id := range []string{"1", "2", "1"} {
		mustAppend(t, store, eventstore.To(eventstore.NewStreamID("a", id), eventstore.AnyVersion, events("x", 2)...))
	}
	if faults := invariants(store); len(faults) != 0 {
		t.Fatalf("a sound store has faults: %v", faults)
	}
	type list = []eventstore.RecordedEvent
	at := func(i int, change func(*eventstore.RecordedEvent)) func(list) list {
		return func(l list) list {
			if i < len(l) {
				change(&l[i])
			}
			return l
		}
	}
	tests := []struct {
		name        string
		log, stream func(list) list
		want        string
	}{
		{"missing in the log", func(l list) list { return append(l[:1], l[2:]...) }, nil, "version 3"},
		{"last one missing in the log", func(l list) list { return l[:len(l)-1] }, nil, "the log has 3"},
		{"twice in the log", func(l list) list { return append(l, l[len(l)-1]) }, nil, "comes after"},
		{"order", func(l list) list { l[0], l[1] = l[1], l[0]; return l }, nil, "comes after"},
		{"version", at(1, func(e *eventstore.RecordedEvent) { e.Version = 7 }), nil, "version 7"},
		{"partition", at(0, func(e *eventstore.RecordedEvent) { e.Partition++ }), nil, "belongs to"},
		{"key changes", at(1, func(e *eventstore.RecordedEvent) {
			e.PartitionKey, e.Partition = "k", eventstore.PartitionOf("k", 64)
		}), nil, "partition key"},
		{"id", at(1, func(e *eventstore.RecordedEvent) { e.ID = uuid.Nil }), nil, "differs"},
		{"time", at(1, func(e *eventstore.RecordedEvent) { e.RecordedAt = e.RecordedAt.Add(time.Nanosecond) }), nil, "microseconds"},
		{"zone", at(1, func(e *eventstore.RecordedEvent) { e.RecordedAt = e.RecordedAt.In(time.FixedZone("x", 60)) }), nil, "UTC"},
		{"missing in the stream", nil, func(l list) list { return l[:len(l)-1] }, "events, the log has"},
		{"more in the stream", nil, func(l list) list { return append(l, l[0]) }, "events, the log has"},
		{"payload", nil, at(0, func(e *eventstore.RecordedEvent) { e.Data = []byte("other") }), "other payload"},
		{"metadata", nil, at(0, func(e *eventstore.RecordedEvent) { e.Metadata.Actor = "x" }), "metadata"},
		{"flags", nil, at(0, func(e *eventstore.RecordedEvent) { e.Flags = 4 }), "flags"},
		{"type", nil, at(0, func(e *eventstore.RecordedEvent) { e.Type = "other" }), "type"},
		{"position", nil, at(0, func(e *eventstore.RecordedEvent) { e.Position = eventstore.PositionAt(99) }), "differs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			faults := invariants(spoiled{store, tt.log, tt.stream})
			for _, fault := range faults {
				if strings.Contains(fault.Error(), tt.want) {
					return
				}
			}
			t.Errorf("faults %v; want one with %q", faults, tt.want)
		})
	}
}

func TestCheckFindsOneIDTwice(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	one := eventstore.EventData{ID: uuid.New(), Type: "x"}
	mustAppend(t, store, eventstore.To(eventstore.NewStreamID("b", "1"), eventstore.AnyVersion, one))
	mustAppend(t, store, eventstore.To(eventstore.NewStreamID("b", "2"), eventstore.AnyVersion, one))
	if faults := invariants(store); len(faults) != 1 || !strings.Contains(faults[0].Error(), "same id") {
		t.Errorf("one id twice: %v", faults)
	}
}

func TestCheckSamplesManyStreams(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	for i := range 5_000 {
		mustAppend(t, store, eventstore.To(eventstore.NewStreamID("a", fmt.Sprint(i)), eventstore.AnyVersion, events("x", 1+i/4_900)...))
	}
	read := map[eventstore.StreamID]bool{}
	note := func(l []eventstore.RecordedEvent) []eventstore.RecordedEvent { read[l[0].Stream] = true; return l }
	if faults := invariants(spoiled{Store: store, stream: note}); len(faults) != 0 {
		t.Errorf("a sound store has faults: %v", faults)
	}
	long := 0
	for id := range read {
		if n, err := strconv.Atoi(id.ID); err == nil && n >= 4_900 {
			long++
		}
	}
	if len(read) != 2_000 || long != 100 {
		t.Errorf("%d streams were read, %d of the 100 longest", len(read), long)
	}
}
