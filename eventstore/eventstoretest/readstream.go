package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func testReadStream(t *testing.T, open Open) {
	store := open(t)
	const n = 7
	id, neighbour := stream("read"), stream("read")
	for i := range n { // a neighbour lies between all events
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(eventstore.Version(i)), event("read.happened", fmt.Sprint(i+1))))
		mustAppend(t, store, eventstore.To(neighbour, eventstore.AnyVersion, event("read.happened", "neighbour")))
	}

	t.Run("ranges", func(t *testing.T) {
		for from := eventstore.Version(0); from <= n+2; from++ {
			for to := eventstore.Version(0); to <= n+2; to++ {
				for _, limit := range []int{0, 1, 2, 3, n, n + 1} {
					r := eventstore.Range{From: from, To: to, Limit: limit}
					want := selected(n, r)
					got := readStream(t, store, id, r)
					if len(got) != len(want) {
						t.Fatalf("%+v gave %d events, want %d", r, len(got), len(want))
					}
					for i, e := range got {
						if e.Version != want[i] || string(e.Data) != fmt.Sprint(want[i]) || e.Stream != id {
							t.Fatalf("%+v gave %q version %d at place %d, want %d", r, e.Stream, e.Version, i, want[i])
						}
					}
				}
			}
		}
	})

	t.Run("positions rise with versions", func(t *testing.T) {
		var last eventstore.Position
		for _, e := range readStream(t, store, id, eventstore.Range{}) {
			if !e.Position.After(last) {
				t.Errorf("version %d is at %s, behind %s", e.Version, e.Position, last)
			}
			last = e.Position
		}
	})

	t.Run("missing stream", func(t *testing.T) {
		for _, r := range []eventstore.Range{{}, {From: 3}, {To: 3}, {Limit: 3}} {
			if got := readStream(t, store, stream("missing"), r); len(got) != 0 {
				t.Errorf("%+v of a missing stream gave %d events", r, len(got))
			}
		}
	})

	t.Run("only the exact id", func(t *testing.T) {
		for _, other := range []eventstore.StreamID{
			eventstore.NewStreamID(id.Category, id.ID+"x"), eventstore.NewStreamID(id.Category, id.ID[:len(id.ID)-1]),
			eventstore.NewStreamID(id.Category+"x", id.ID), eventstore.NewStreamID("READ", id.ID), eventstore.NewStreamID(id.Category, id.ID+" "),
		} {
			if got := readStream(t, store, other, eventstore.Range{}); len(got) != 0 {
				t.Errorf("stream %q has %d events of %q", other, len(got), id)
			}
		}
	})

	t.Run("negative bounds", func(t *testing.T) {
		for _, r := range []eventstore.Range{{From: -1}, {To: -1}, {Limit: -1}} {
			yields := 0
			for e, err := range store.ReadStream(context.Background(), id, r) {
				yields++
				if !errors.Is(err, eventstore.ErrInvalid) || e.Version != 0 {
					t.Errorf("%+v gave %+v, %v; want ErrInvalid", r, e, err)
				}
			}
			if yields != 1 {
				t.Errorf("%+v yielded %d times, want one error", r, yields)
			}
		}
	})

	t.Run("breaking off", func(t *testing.T) {
		sequence := store.ReadStream(context.Background(), id, eventstore.Range{})
		for stop := 1; stop <= n; stop++ { // the same sequence again and again: nothing is left over
			seen := 0
			for e, err := range sequence {
				if err != nil {
					t.Fatal(err)
				}
				if seen++; e.Version != eventstore.Version(seen) {
					t.Fatalf("version %d at place %d", e.Version, seen)
				}
				if seen == stop {
					break
				}
			}
			if seen != stop {
				t.Errorf("%d events before the break at %d", seen, stop)
			}
		}
	})

	t.Run("appending while reading", func(t *testing.T) {
		id := stream("grows")
		mustAppend(t, store, eventstore.To(id, eventstore.NoStream, events("grows.happened", 3)...))
		seen := 0
		for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{To: 3}) {
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, store, eventstore.To(id, eventstore.AnyVersion, event("grows.happened", "inside")))
			if seen++; e.Version != eventstore.Version(seen) {
				t.Fatalf("version %d at place %d", e.Version, seen)
			}
		}
		if got := len(readStream(t, store, id, eventstore.Range{})); seen != 3 || got != 6 {
			t.Errorf("saw %d, stored %d; want 3 and 6", seen, got)
		}
	})
}
