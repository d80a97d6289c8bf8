package aggregate_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// gated is a snapshot store whose saves wait to be let through.
type gated struct {
	snapshot.Store
	arrived chan snapshot.Snapshot
	through chan error

	mu    sync.Mutex
	saved []string
	ctx   context.Context
}

func newGated(s snapshot.Store) *gated {
	return &gated{Store: s, arrived: make(chan snapshot.Snapshot, 100), through: make(chan error)}
}

func (g *gated) Save(ctx context.Context, s snapshot.Snapshot, keep int) error {
	g.arrived <- s
	err := <-g.through
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx = ctx
	if err == nil {
		g.saved = append(g.saved, s.Stream.ID)
		err = g.Store.Save(ctx, s, keep)
	}
	return err
}

func quiet(p snapshot.Policy) snapshot.Policy {
	p.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return p
}

// queued is a repository with a store whose saves a test lets through.
type queued struct {
	*aggregate.Repository[count, event]
	store *memory.Store
	gate  *gated
	w     *watcher
}

func newQueued(length int, opts ...aggregate.Option) *queued {
	q := &queued{store: memory.New(memory.Config{}), w: &watcher{}}
	q.gate = newGated(q.store.Snapshots())
	policy := quiet(snapshot.Every(1))
	policy.Queue = length
	q.Repository = newCounts(q.store, append(opts, aggregate.WithSnapshots(q.gate, policy), aggregate.WithObserver(q.w))...)
	return q
}

func (q *queued) up(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must[aggregate.Result[count]](t)(q.Handle(t.Context(), id, up(1)))
	}
}

// at returns the version of the newest snapshot of a stream.
func (q *queued) at(t *testing.T, id string) eventstore.Version {
	t.Helper()
	c := &counter{store: q.store}
	kept, _, err := q.store.Snapshots().Load(t.Context(), eventstore.NewStreamID("count", id), c.fingerprint(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return kept.Version
}

func TestQueueIsBoundedAndTheNewestOfAStreamWins(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int{0, 1 << 20} {
		q := newQueued(2, aggregate.WithCache(cacheBytes))
		q.up(t, "a")
		<-q.gate.arrived // a is being stored
		q.up(t, "b", "c", "b", "d", "b")
		var dropped []eventstore.SnapshotObservation
		for _, s := range q.w.snapshots() {
			if s.Dropped && s.Bytes > 0 && s.Err == nil && s.Category == "count" {
				dropped = append(dropped, s)
			} else {
				t.Errorf("observed %+v before anything is stored", s)
			}
		}
		if len(dropped) != 1 {
			t.Errorf("%d dropped, want 1", len(dropped))
		}
		short, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Snapshots().Drain(short); !errors.Is(err, context.Canceled) {
			t.Errorf("drain with an ended context: %v", err)
		}
		close(q.gate.through)
		drain(t, q.Snapshots())
		if want := []string{"a", "b", "c"}; !slices.Equal(q.gate.saved, want) {
			t.Errorf("saved %v, want %v", q.gate.saved, want)
		}
		for id, want := range map[string]eventstore.Version{"a": 1, "b": 3, "c": 1, "d": 0} {
			if got := q.at(t, id); got != want {
				t.Errorf("%s: snapshot at %d, want %d", id, got, want)
			}
		}
		q.up(t, "d") // what was dropped is due again
		drain(t, q.Snapshots())
		if got := q.at(t, "d"); got != 2 {
			t.Errorf("d: snapshot at %d, want 2", got)
		}
		if n := len(q.w.snapshots()); n != 4 {
			t.Errorf("%d stored were observed, want 4", n)
		}
	}
}

// What is about to be stored counts as taken: commands in between do not encode the state again.
func TestNothingIsDueTwice(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int{0, 1 << 20} {
		store, w := memory.New(memory.Config{}), &watcher{}
		gate := newGated(store.Snapshots())
		encoded := 0
		policy := quiet(snapshot.Every(3))
		policy.Codec = &countingCodec{eventstore.Msgpack, &encoded}
		counts := newCounts(store, aggregate.WithSnapshots(gate, policy), aggregate.WithObserver(w), aggregate.WithCache(cacheBytes))
		for range 5 {
			must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
		}
		if encoded != 1 {
			t.Errorf("encoded %d times for 5 events, want once", encoded)
		}
		<-gate.arrived // it is being stored, and is not replaced any more
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
		if encoded != 2 {
			t.Errorf("encoded %d times for 6 events, want twice", encoded)
		}
		// A save that fails leaves it due.
		gate.through <- errTable
		gate.through <- errTable
		drain(t, counts.Snapshots())
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
		if encoded != 3 {
			t.Errorf("encoded %d times after failures, want three times", encoded)
		}
		gate.through <- nil
		drain(t, counts.Snapshots())
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(2)))
		if encoded != 3 {
			t.Errorf("encoded %d times, the last is just stored", encoded)
		}
		failed := 0
		for _, s := range w.snapshots() {
			if errors.Is(s.Err, errTable) {
				failed++
			}
		}
		if failed != 2 {
			t.Errorf("%d failures were observed, want 2", failed)
		}
	}
}

type countingCodec struct {
	eventstore.Codec
	marshalled *int
}

func (c *countingCodec) Marshal(v any) ([]byte, error) {
	*c.marshalled++
	return c.Codec.Marshal(v)
}

type traceKey struct{}

// A snapshot does not end with the request that caused it, and is not waited for without end.
func TestSnapshotsOutliveTheirCommand(t *testing.T) {
	t.Parallel()
	q := newQueued(2)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace"))
	must[aggregate.Result[count]](t)(q.Handle(ctx, "a", up(1)))
	cancel()
	q.gate.through <- nil
	drain(t, q.Snapshots())
	if q.at(t, "a") != 1 {
		t.Error("no snapshot was stored")
	}
	deadline, limited := q.gate.ctx.Deadline()
	if !limited || deadline.After(time.Now().Add(2*time.Second)) || q.gate.ctx.Value(traceKey{}) != "trace" {
		t.Errorf("context with deadline %v, %v, value %v", deadline, limited, q.gate.ctx.Value(traceKey{}))
	}
}

// panicStore panics wherever it is told to.
type panicStore struct{ snapshot.Store }

func (panicStore) Save(context.Context, snapshot.Snapshot, int) error { panic("the store is confused") }

type panicWatcher struct{ watcher }

func (*panicWatcher) ObserveSnapshot(eventstore.SnapshotObservation) {
	panic("the observer is confused")
}

func TestPanicsEndNeitherTheProgramNorTheQueue(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	for name, opts := range map[string][]aggregate.Option{
		"store":    {aggregate.WithSnapshots(panicStore{store.Snapshots()}, quiet(snapshot.Every(1)))},
		"observer": {aggregate.WithSnapshots(store.Snapshots(), quiet(snapshot.Every(1))), aggregate.WithObserver(&panicWatcher{})},
		"codec": {aggregate.WithSnapshots(store.Snapshots(), quiet(snapshot.Policy{
			When: snapshot.Every(1).When, Codec: &moodyCodec{eventstore.Msgpack, true}, Revision: 1}))},
		"condition": {aggregate.WithSnapshots(store.Snapshots(), quiet(snapshot.Policy{When: confused{}}))},
	} {
		counts := newCounts(store, opts...)
		for range 3 {
			if _, err := counts.Handle(t.Context(), name, up(1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			drain(t, counts.Snapshots())
		}
		if loaded := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), name)); loaded.State.N != 3 {
			t.Errorf("%s: %+v", name, loaded)
		}
	}
}

type confused struct{}

func (confused) Due(snapshot.Facts) bool { panic("the condition is confused") }

// Many commands beside a store that works: everything ends, and what is kept is right.
func TestQueueUnderLoad(t *testing.T) {
	t.Parallel()
	store, w := memory.New(memory.Config{}), &watcher{}
	policy := quiet(snapshot.Every(2))
	policy.Queue = 3
	counts := newCounts(store, aggregate.WithSnapshots(store.Snapshots(), policy), aggregate.WithObserver(w), aggregate.WithCache(4000))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				id := string(rune('a' + (g+i)%10))
				if _, err := counts.Handle(context.Background(), id, up(1+i%3), aggregate.WithRetry(aggregate.Retry{Retries: 1000})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	drain(t, counts.Snapshots())
	for i := range 10 {
		id := string(rune('a' + i))
		fast := must[aggregate.Loaded[count]](t)(newCounts(store, aggregate.WithSnapshots(store.Snapshots(), policy)).Load(t.Context(), id))
		slow := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), id, aggregate.FromEvents()))
		cached := must[aggregate.Loaded[count]](t)(counts.Load(t.Context(), id))
		if fast != slow || cached != slow {
			t.Errorf("%s: %+v by snapshot, %+v by cache, %+v by events", id, fast, cached, slow)
		}
	}
	for _, s := range w.snapshots() {
		if s.Err != nil {
			t.Errorf("snapshot %+v", s)
		}
	}
}

// A snapshot that is stored between the load and the commit of another command counts for that command.
func TestSnapshotsStoredMeanwhileAreKnown(t *testing.T) {
	t.Parallel()
	for _, cacheBytes := range []int{0, 1 << 20} {
		store, w := memory.New(memory.Config{}), &watcher{}
		gate := newGated(store.Snapshots())
		counts := newCounts(store, aggregate.WithSnapshots(gate, quiet(snapshot.Every(3))), aggregate.WithCache(cacheBytes), aggregate.WithObserver(w))
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(3)))
		for i := range 5 {
			must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", func(count) ([]event, error) {
				if i == 0 {
					gate.through <- nil
					drain(t, counts.Snapshots())
				}
				return []event{counted{}}, nil
			}))
			if i == 2 { // the next one, at 6
				gate.through <- nil
				drain(t, counts.Snapshots())
			}
		}
		if n := saved(t, w); n != 2 {
			t.Errorf("cache of %d: %d stored for 8 events, want 2", cacheBytes, n)
		}
		// Who loads afterwards believes the store: what others dropped is due again.
		if err := store.Snapshots().Delete(t.Context(), countStream); err != nil {
			t.Fatal(err)
		}
		if cacheBytes > 0 {
			continue // a cached state does not ask for snapshots
		}
		close(gate.through)
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(0)))
		must[aggregate.Result[count]](t)(counts.Handle(t.Context(), "a", up(1)))
		drain(t, counts.Snapshots())
		if n := saved(t, w); n != 1 {
			t.Errorf("%d stored after others dropped all, want 1", n)
		}
	}
}
