package eventstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
)

func testReadAll(t *testing.T, open Open) {
	store := open(t)
	if got := readAll(t, store, eventstore.Position{}, eventstore.Filter{}); len(got) != 0 {
		t.Fatalf("a new store has %d events", len(got))
	}
	// Two categories, three types, several appends; everything below selects from these.
	a, b := stream("ant"), stream("bee")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, event("x", "1"), event("y", "2")))
	mustAppend(t, store, eventstore.To(b, eventstore.NoStream, event("x", "3")), eventstore.To(a, eventstore.AnyVersion, event("z", "4")))
	mustAppend(t, store, eventstore.To(b, eventstore.AnyVersion, event("y", "5"), event("x", "6"), event("z", "7")))
	mustAppend(t, store, eventstore.To(stream("antelope"), eventstore.NoStream, event("xy", "8")))
	all := readAll(t, store, eventstore.Position{}, eventstore.Filter{})
	wantPayloads(t, all, "1", "2", "3", "4", "5", "6", "7", "8")

	t.Run("filters and places", func(t *testing.T) {
		categories := [][]string{nil, {}, {"ant"}, {"bee"}, {"ant", "bee"}, {"bee", "ant", "ant"}, {"an"}, {"ANT"}, {""}, {"cat"}}
		types := [][]string{nil, {}, {"x"}, {"y", "z"}, {"xy"}, {"X"}, {""}, {"none"}}
		places := []eventstore.Position{{}, all[3].Position, all[len(all)-1].Position} // the second is inside an append
		for _, c := range categories {
			for _, ty := range types {
				for _, after := range places {
					for _, limit := range []int{0, 1, 3} {
						f := eventstore.Filter{Categories: c, Types: ty, Limit: limit}
						want := payloads(filtered(all, after, f))
						if got := payloads(readAll(t, store, after, f)); !slices.Equal(got, want) {
							t.Fatalf("after %s, filter %+v: %q, want %q", after, f, got, want)
						}
					}
				}
			}
		}
	})

	t.Run("beyond the end", func(t *testing.T) {
		end := all[len(all)-1].Position
		for _, after := range []eventstore.Position{end, eventstore.PositionAt(end.Ordinal() + 1000)} {
			if got := readAll(t, store, after, eventstore.Filter{}); len(got) != 0 {
				t.Errorf("after %s come %d events", after, len(got))
			}
		}
	})

	t.Run("positions between events", func(t *testing.T) {
		for _, e := range all {
			list := readAll(t, store, eventstore.PositionAt(e.Position.Ordinal()-1), eventstore.Filter{Limit: 1})
			if len(list) != 1 || list[0].Position != e.Position {
				t.Errorf("just before %s comes %v", e.Position, payloads(list))
			}
		}
	})

	t.Run("breaking off", func(t *testing.T) {
		sequence := store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{})
		for stop := 1; stop <= len(all); stop++ {
			seen := 0
			for e, err := range sequence {
				if err != nil || e.Position != all[seen].Position {
					t.Fatalf("place %d: %s, %v", seen, e.Position, err)
				}
				if seen++; seen == stop {
					break
				}
			}
			if seen != stop {
				t.Errorf("%d events before the break at %d", seen, stop)
			}
		}
	})

	t.Run("negative limit", func(t *testing.T) {
		for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{Limit: -1}) {
			if !errors.Is(err, eventstore.ErrInvalid) || e.Version != 0 {
				t.Errorf("limit -1 gave %+v, %v; want ErrInvalid", e, err)
			}
		}
	})

	t.Run("the end is the head at the call", func(t *testing.T) {
		seen := 0
		for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen < len(all) && e.Position != all[seen].Position {
				t.Fatalf("place %d: %s", seen, e.Position)
			}
			if seen++; seen <= 3 { // appending inside the loop must not block it
				mustAppend(t, store, eventstore.To(a, eventstore.AnyVersion, event("inside", fmt.Sprint(seen))))
			}
		}
		if seen < len(all) || seen > len(all)+3 {
			t.Errorf("saw %d events of %d to %d", seen, len(all), len(all)+3)
		}
	})
}

// filtered does to a list what the filter says.
func filtered(list []eventstore.RecordedEvent, after eventstore.Position, f eventstore.Filter) []eventstore.RecordedEvent {
	var out []eventstore.RecordedEvent
	for _, e := range list {
		if e.Position.After(after) && (f.Limit == 0 || len(out) < f.Limit) &&
			(len(f.Categories) == 0 || slices.Contains(f.Categories, e.Stream.Category)) &&
			(len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) {
			out = append(out, e)
		}
	}
	return out
}
