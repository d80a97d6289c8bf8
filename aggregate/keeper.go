package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/daybook-go/daybook/eventstore"
)

// errNoSnapshots: the repository was made without them.
var errNoSnapshots = errors.New("the repository has no snapshots: make it with aggregate.WithSnapshots")

// SnapshotKeeper looks after the snapshots of a repository; [Repository.Snapshots] returns it. Commands may run
// meanwhile, and are never made wrong or wait. It is safe for concurrent use.
type SnapshotKeeper struct {
	rebuild, drop  func(ctx context.Context, id string) error
	dropAll, drain func(ctx context.Context) error
}

// Snapshots returns the keeper of the repository's snapshots. Without [WithSnapshots] its methods return an error, but
// for Drain.
func (r *Repository[S, E]) Snapshots() *SnapshotKeeper {
	return &SnapshotKeeper{rebuild: r.rebuildSnapshot, drop: r.dropSnapshots, dropAll: r.dropAllSnapshots, drain: r.drainSnapshots}
}

// Rebuild folds all events of the aggregate id and puts the result in the place of its snapshots, as when they may have
// been taken by an Evolve with a mistake. Whatever this repository has in memory of the aggregate is dropped, and what
// is on its way to become a snapshot. Other processes must run the right code by then; a command of theirs that began
// before may still leave a snapshot of its own. An aggregate without events is left without snapshots.
//
// The snapshots of other releases, with states of another shape, are removed too; they come back by themselves.
func (k *SnapshotKeeper) Rebuild(ctx context.Context, id string) error { return k.rebuild(ctx, id) }

// Drop removes the snapshots of the aggregate id, of every shape. The next load reads its events. Commands go on taking
// snapshots when they are due.
func (k *SnapshotKeeper) Drop(ctx context.Context, id string) error { return k.drop(ctx, id) }

// DropAll removes the snapshots of all aggregates of the repository's type, of every shape, in small steps. After an
// error, a part of them is removed.
func (k *SnapshotKeeper) DropAll(ctx context.Context) error { return k.dropAll(ctx) }

// Drain waits until every snapshot that was due is stored or given up, as before a program ends; or until ctx ends,
// whose error it returns then. Nothing depends on it: what is not stored is due again later.
func (k *SnapshotKeeper) Drain(ctx context.Context) error { return k.drain(ctx) }

func (r *Repository[S, E]) drainSnapshots(ctx context.Context) error {
	if r.snapshots == nil {
		return nil
	}
	if err := r.snapshots.queue.drain(ctx); err != nil {
		return fmt.Errorf("aggregate: drain snapshots of %q: %w", r.typ.category, err)
	}
	return nil
}

func (r *Repository[S, E]) dropSnapshots(ctx context.Context, id string) error {
	stream := r.typ.Stream(id)
	return r.without(ctx, &stream, "drop snapshots of "+stream.String(), func() error {
		return r.snapshots.store.Delete(ctx, stream)
	})
}

func (r *Repository[S, E]) dropAllSnapshots(ctx context.Context) error {
	return r.without(ctx, nil, fmt.Sprintf("drop snapshots of all of %q", r.typ.category), func() error {
		_, err := r.snapshots.store.DeleteCategory(ctx, r.typ.category)
		return err
	})
}

func (r *Repository[S, E]) rebuildSnapshot(ctx context.Context, id string) error {
	stream := r.typ.Stream(id)
	return r.without(ctx, &stream, "rebuild snapshot of "+stream.String(), func() error {
		if err := r.snapshots.store.Delete(ctx, stream); err != nil {
			return err
		}
		state, err := r.replay(ctx, stream, eventstore.Range{})
		if err != nil || state.version == 0 {
			return err
		}
		j := snapshotJob{stream: stream, version: state.version, last: state.last, takenAt: r.snapshots.policy.Clock()}
		if j.data, err = r.snapshots.encode(state.state); err != nil {
			return err
		}
		return r.saveSnapshot(ctx, j)
	})
}

// without runs do while loads of the stream, or of all, use nothing but events, and after everything that came of
// earlier loads is out of the way: states in memory, and snapshots that wait or are being stored.
func (r *Repository[S, E]) without(ctx context.Context, stream *eventstore.StreamID, doing string, do func() error) error {
	fail := func(err error) error { return fmt.Errorf("aggregate: %s: %w", doing, err) }
	if r.snapshots == nil {
		return fail(errNoSnapshots)
	}
	if stream != nil {
		if err := stream.Validate(); err != nil {
			return fail(err)
		}
	}
	end := r.eras.suspend(stream)
	defer end()
	if r.cache != nil && stream != nil {
		r.cache.remove(*stream)
	} else if r.cache != nil {
		r.cache.clear()
	}
	if err := r.snapshots.queue.drop(ctx, stream); err != nil {
		return fail(err)
	}
	if err := do(); err != nil {
		return fail(err)
	}
	return nil
}

// eras tell states that were loaded before snapshots were dropped from later ones: what came of the former must not
// become a snapshot, or be cached, any more. The zero value is ready. It is safe for concurrent use.
type eras struct {
	current   atomic.Uint64
	suspended atomic.Int64 // how many suspensions there are; 0, nearly always, spares the lock

	mu      sync.Mutex
	all     int
	streams map[eventstore.StreamID]int
}

// begin is called before a load. It returns the era of what is loaded, and whether nothing but events may be used.
func (e *eras) begin(stream eventstore.StreamID) (era uint64, eventsOnly bool) {
	era = e.current.Load()
	if e.suspended.Load() == 0 {
		return era, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return era, e.all > 0 || e.streams[stream] > 0
}

// now reports whether what was loaded in an era may still be kept.
func (e *eras) now(era uint64) bool { return e.current.Load() == era }

// suspend makes loads of the stream, or of all, use nothing but events until end is called, and begins a new era. In
// this order: who sees the new era sees the suspension.
func (e *eras) suspend(stream *eventstore.StreamID) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.suspended.Add(1)
	if stream == nil {
		e.all++
	} else {
		if e.streams == nil {
			e.streams = map[eventstore.StreamID]int{}
		}
		e.streams[*stream]++
	}
	e.current.Add(1)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.suspended.Add(-1)
		if stream == nil {
			e.all--
		} else if e.streams[*stream]--; e.streams[*stream] == 0 {
			delete(e.streams, *stream)
		}
	}
}
