package aggregate_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// A decision that changes a map of the state that it was given spoils neither the cache nor the snapshots, which others
// would load.
func TestASpoiledStateIsNotKept(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	withSnapshots := aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1))
	spoiling := aggregate.NewRepository(store, shelfType, withSnapshots, aggregate.WithCache(1<<20))
	for range 3 {
		must[aggregate.Result[shelf]](t)(spoiling.Handle(t.Context(), "a", func(s shelf) ([]event, error) {
			if s.Stock != nil {
				s.Stock["never stocked"] = 1000
			}
			return []event{stocked{"pen"}}, nil
		}))
		if err := spoiling.Snapshots().Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*aggregate.Repository[shelf, event]{"the same": spoiling, "another": aggregate.NewRepository(store, shelfType, withSnapshots)} {
		l := must[aggregate.Loaded[shelf]](t)(r.Load(t.Context(), "a"))
		if l.Version != 3 || l.State.Stock["pen"] != 3 || l.State.Stock["never stocked"] != 0 {
			t.Errorf("%s repository: %+v", name, l)
		}
	}
}
