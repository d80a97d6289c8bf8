package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestReadSequence(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	log := store.Log()
	add := func(stream, key, kind string) {
		t.Helper()
		id, err := eventstore.ParseStreamID(stream)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Append(t.Context(), eventstore.Write{
			Stream: id, Expected: eventstore.AnyVersion, PartitionKey: key, Events: []eventstore.EventData{{Type: kind}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 { // two streams of one key, and one of another between them
		add("order-1", "", fmt.Sprint("t", i%2))
		add("other-1", "", "t0")
		add("bill-1", "order-1", "t1")
	}
	end, err := log.ReadPage(t.Context(), eventstore.Position{}, eventstore.Filter{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	partition := eventstore.PartitionOf("order-1", eventstore.DefaultPartitions)
	for _, c := range []struct {
		after, upTo eventstore.Position
		f           eventstore.Filter
		limit, want int
	}{
		{eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 1000, 40},
		{eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 7, 40},
		{eventstore.Position{}, eventstore.Position{}, eventstore.Filter{Types: []string{"t0"}}, 3, 10},
		{eventstore.Position{}, eventstore.Position{}, eventstore.Filter{Categories: []string{"bill"}}, 3, 20},
		{end.Events[2].Position, end.Events[30].Position, eventstore.Filter{}, 2, 19},
	} {
		upTo := c.upTo
		if upTo.IsZero() {
			upTo = end.Through
		}
		n := 0
		for after := c.after; after.Before(upTo); {
			page, err := log.ReadSequence(t.Context(), partition, "order-1", after, c.upTo, c.f, c.limit)
			if err != nil || !page.Through.After(after) || page.Through.After(upTo) || len(page.Events) > c.limit {
				t.Fatalf("after %s: %d events through %s, %v", after, len(page.Events), page.Through, err)
			}
			for _, e := range page.Events {
				if e.PartitionKey != "order-1" || !e.Position.After(after) || e.Position.After(page.Through) {
					t.Errorf("%s with key %q", e.Position, e.PartitionKey)
				}
				after = e.Position
			}
			n, after = n+len(page.Events), page.Through
		}
		if n != c.want {
			t.Errorf("%+v: %d events", c, n)
		}
	}
	if _, err := log.ReadSequence(t.Context(), partition, "", eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 1); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("no sequence: %v", err)
	}
	if _, err := log.ReadSequence(t.Context(), partition, "k", eventstore.PositionAt(1<<40), eventstore.Position{}, eventstore.Filter{}, 1); !errors.Is(err, eventstore.ErrHistory) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := log.ReadSequence(t.Context(), partition, "k", eventstore.Position{}, eventstore.Position{}, eventstore.Filter{}, 0); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("no limit: %v", err)
	}
}
