package aggregate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// wrongCounts counts in tens, as an Evolve with a mistake would, and leaves snapshots of that.
func wrongCounts(t *testing.T, store *memory.Store, id string, commands int) {
	t.Helper()
	typ := aggregate.Define("count", func(s count, _ event) count { s.N += 10; return s }, countedCatalog)
	wrong := aggregate.NewRepository(store, typ, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)))
	for range commands {
		must[aggregate.Result[count]](t)(wrong.Handle(t.Context(), id, up(1)))
	}
	drain(t, wrong.Snapshots())
}

func TestRebuildEqualsAReplay(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int{0, 1 << 20} {
		store, w := memory.New(memory.Config{}), &watcher{}
		wrongCounts(t, store, "a", 7)
		counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(100)), aggregate.WithCache(cacheBytes), aggregate.WithObserver(w))
		if loaded := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a")); loaded.State.N != 70 {
			t.Fatalf("the mistake does not show: %+v", loaded)
		}
		if err := counts.Snapshots().Rebuild(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			fast := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a"))
			l := w.load(t)
			slow := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a", aggregate.FromEvents()))
			if fast != slow || fast.State.N != 7 || l.Events != 0 || !l.Snapshot && !l.Cached {
				t.Errorf("cache of %d: %+v by %+v, %+v by events", cacheBytes, fast, l, slow)
			}
		}
		if err := counts.Snapshots().Rebuild(t.Context(), "nobody"); err != nil {
			t.Error(err)
		}
	}
}

func TestDropRemovesTheSnapshotsOfOne(t *testing.T) {
	t.Parallel()
	store, w := memory.New(memory.Config{}), &watcher{}
	counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)), aggregate.WithObserver(w))
	shelves := newShelves(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)), aggregate.WithObserver(w))
	for _, id := range []string{"a", "b", "c"} {
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), id, up(2)))
	}
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen", "ink")))
	drain(t, counts.Snapshots())
	drain(t, shelves.Snapshots())
	wantFolded := func(what string, a, b, shelf int) {
		t.Helper()
		for id, want := range map[string]int{"a": a, "b": b, "c": b} {
			must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), id))
			if l := w.load(t); l.Events != want || l.Snapshot != (want == 0) {
				t.Errorf("%s: %s: %+v, want %d events", what, id, l, want)
			}
		}
		if _, err := shelves.Load(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if l := w.load(t); l.Events != shelf {
			t.Errorf("%s: the shelf: %+v, want %d events", what, l, shelf)
		}
	}
	wantFolded("before", 0, 0, 0)
	if err := counts.Snapshots().Drop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wantFolded("dropped one", 2, 0, 0)
	if err := counts.Snapshots().DropAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFolded("dropped all counts", 2, 2, 0)
	must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
	drain(t, counts.Snapshots())
	must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a"))
	if l := w.load(t); !l.Snapshot || l.Events != 0 {
		t.Errorf("none is taken after a drop: %+v", l)
	}
}

// A command that loaded a wrong snapshot before a rebuild leaves nothing of it behind.
func TestRebuildReachesCommandsThatAreRunning(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int{0, 1 << 20} {
		for name, mend := range map[string]func(*aggregate.SnapshotKeeper) error{
			"rebuild":  func(k *aggregate.SnapshotKeeper) error { return k.Rebuild(context.Background(), "a") },
			"drop":     func(k *aggregate.SnapshotKeeper) error { return k.Drop(context.Background(), "a") },
			"drop all": func(k *aggregate.SnapshotKeeper) error { return k.DropAll(context.Background()) },
		} {
			store := memory.New(memory.Config{})
			wrongCounts(t, store, "a", 3)
			counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)), aggregate.WithCache(cacheBytes))
			must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", func(s count) ([]event, error) {
				if s.N != 30 {
					t.Errorf("decides on %+v", s)
				}
				return []event{counted{}}, mend(counts.Snapshots())
			}))
			drain(t, counts.Snapshots())
			for range 2 {
				if loaded := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), "a")); loaded.State.N != 4 {
					t.Errorf("%s, cache of %d: %+v", name, cacheBytes, loaded)
				}
			}
		}
	}
}

// What is kept in memory of other aggregates stays, and goes on to become snapshots.
func TestRebuildLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	q := newQueued(10, aggregate.WithCache(1<<20))
	close(q.gate.through)
	q.up(t, "a")
	drain(t, q.Snapshots())
	if err := q.Snapshots().Rebuild(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	for want := range eventstore.Version(3) {
		q.up(t, "a")
		if l := q.w.load(t); !l.Cached || l.Events != 0 {
			t.Errorf("load %+v", l)
		}
		drain(t, q.Snapshots())
		if got := q.at(t, "a"); got != want+2 {
			t.Errorf("snapshot at %d, want %d", got, want+2)
		}
	}
}

// What waits in the queue when snapshots are dropped is not stored, and what is being stored is waited for.
func TestDropReachesTheQueue(t *testing.T) {
	t.Parallel()
	q := newQueued(10)
	q.up(t, "a")
	<-q.gate.arrived
	q.up(t, "a", "b")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Snapshots().Drop(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("drop while one is being stored: %v", err)
	}
	done := make(chan error)
	go func() { done <- q.Snapshots().Drop(context.Background(), "a") }()
	close(q.gate.through)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	drain(t, q.Snapshots())
	if a, b := q.at(t, "a"), q.at(t, "b"); a != 0 || b != 1 {
		t.Errorf("snapshots at %d and %d, want none of a, and b's", a, b)
	}
}

// Rebuilds beside commands that use and take snapshots: every state is right at all times.
func TestRebuildBesideCommands(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		wrongCounts(t, store, id, 5)
	}
	counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(2)), aggregate.WithCache(1<<20))
	for _, id := range ids {
		if err := counts.Snapshots().Rebuild(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 60 {
				id := ids[(g+i)%len(ids)]
				result, err := counts.Handle(context.Background(), id, up(1), aggregate.WithRetry(aggregate.Retry{Retries: 1000}))
				if err != nil || result.State.N != int(result.Version) {
					t.Errorf("%+v, %v", result, err)
				}
				if i%7 == g {
					k := counts.Snapshots()
					err := []func() error{
						func() error { return k.Rebuild(context.Background(), id) }, func() error { return k.Drop(context.Background(), id) },
						func() error { return k.DropAll(context.Background()) },
					}[i%3]()
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	drain(t, counts.Snapshots())
	for _, id := range ids {
		for _, repository := range []*aggregate.Repository[count, event]{counts, newCounts(store, aggregate.WithSnapshots(store.Snapshots(), snapshot.Never))} {
			if loaded := must[aggregate.Loaded[count]](t)(repository.Load(t.Context(), id)); loaded.Version != 85 || loaded.State.N != 85 {
				t.Errorf("%s: %+v", id, loaded)
			}
		}
	}
}

func TestKeeperErrors(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	without := newCounts(store).Snapshots()
	for _, err := range []error{without.Rebuild(t.Context(), "a"), without.Drop(t.Context(), "a"), without.DropAll(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "WithSnapshots") || !strings.HasPrefix(err.Error(), "aggregate: ") {
			t.Errorf("without snapshots: %v", err)
		}
	}
	if err := without.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	with := newCounts(store, aggregate.WithSnapshots(&brokenStore{Store: store.Snapshots()}, snapshot.Every(1))).Snapshots()
	for _, err := range []error{with.Rebuild(t.Context(), ""), with.Drop(t.Context(), "")} {
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("no id: %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := with.DropAll(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	broken := &brokenStore{Store: store.Snapshots()}
	broken.save.Store(true)
	counts := newCounts(store, aggregate.WithSnapshots(broken, quiet(snapshot.Never)))
	must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
	if err := counts.Snapshots().Rebuild(t.Context(), "a"); !errors.Is(err, errTable) {
		t.Errorf("rebuild without a table: %v", err)
	}
	mute := quiet(snapshot.Policy{Codec: &moodyCodec{eventstore.Msgpack, true}})
	if err := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), mute)).Snapshots().Rebuild(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "cannot write today") {
		t.Errorf("rebuild with a codec that panics: %v", err)
	}
}
