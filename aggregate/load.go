package aggregate

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Loaded is the state of an aggregate at a version. It belongs to the caller.
type Loaded[S any] struct {
	State   S
	Version eventstore.Version
}

// Exists reports whether the aggregate has events.
func (l Loaded[S]) Exists() bool { return l.Version > 0 }

// LoadOption changes one call of [Repository.Load].
type LoadOption func(*loadConfig)

type loadConfig struct {
	at     *eventstore.Version
	replay bool
}

// AtVersion loads the state as it was after the event with version v; 0 is the state before the first. A version that
// the stream has not reached is an [*eventstore.InvalidError]. Snapshots are not used.
func AtVersion(v eventstore.Version) LoadOption {
	return func(c *loadConfig) { c.at = &v }
}

// FromEvents loads by folding every event, without a snapshot. Comparing its result with that of a plain Load at the
// same version shows whether the snapshots tell the truth.
func FromEvents() LoadOption { return func(c *loadConfig) { c.replay = true } }

// Load returns the current state of the aggregate id. An aggregate without events has the zero state and version 0;
// that is no error, see [Loaded.Exists]. Nothing is locked: by the time Load returns, the aggregate may have moved on.
// To decide on a state, use Handle or Transact.
//
// Errors: an [*eventstore.InvalidError] for an id that cannot be one, an [*eventstore.UnknownTypeError] or
// [*eventstore.DecodeError] for an event that today's code does not know, and what the store reports.
func (r *Repository[S, E]) Load(ctx context.Context, id string, opts ...LoadOption) (Loaded[S], error) {
	var config loadConfig
	for _, opt := range opts {
		opt(&config)
	}
	stream := r.typ.Stream(id)
	var state loaded[S]
	var err error
	start := time.Now()
	switch {
	case config.at != nil:
		state, err = r.loadAt(ctx, stream, *config.at)
		r.observeLoad(start, stream, state, false, err)
	case config.replay:
		state, err = r.replay(ctx, stream, eventstore.Range{})
		r.observeLoad(start, stream, state, false, err)
	default:
		state, err = r.load(ctx, stream)
	}
	if err != nil {
		return Loaded[S]{}, fmt.Errorf("aggregate: load %s: %w", stream, err)
	}
	return Loaded[S]{State: state.state, Version: state.version}, nil
}

// loaded is what is known of an aggregate before it decides.
type loaded[S any] struct {
	state S
	trail
	// kept is the state as it was read, when that is at hand without further work; see aside.
	kept *keptState[S]
	// folded is how many events this load folded; cached: into a state from memory.
	folded int
	cached bool
}

// trail is how a state came about.
type trail struct {
	version eventstore.Version
	// last is the id of the event at version.
	last uuid.UUID
	// snapshot is the version of the last snapshot that is known to be of use; 0: none.
	snapshot eventstore.Version
	// since is when it was taken; without one, when the first event was recorded.
	since time.Time
	// replayed is the most events that a load has folded since the snapshot.
	replayed int
	// types are those of the events since the snapshot, each once. The slice is shared and never changed.
	types []string
	// unusable: a snapshot is there that does not belong to the stream or cannot be read, and is in the way.
	unusable bool
	// era is when the load began; see eras. seen is how many snapshots were stored by then.
	era, seen uint64
}

// withType adds a name to a set of few, which may be shared.
func withType(types []string, name string) []string {
	if slices.Contains(types, name) {
		return types
	}
	return append(slices.Clip(types), name)
}

// load returns the current state: from memory if it still stands, else from a snapshot, else from the events.
func (r *Repository[S, E]) load(ctx context.Context, stream eventstore.StreamID) (loaded[S], error) {
	start := time.Now()
	state, err := r.read(ctx, stream)
	r.observeLoad(start, stream, state, true, err)
	return state, err
}

func (r *Repository[S, E]) read(ctx context.Context, stream eventstore.StreamID) (state loaded[S], err error) {
	era, eventsOnly := r.eras.begin(stream)
	if r.cache != nil && !eventsOnly {
		if from, ok := r.cache.get(stream); ok {
			from.era = era // what was not thrown away then is as good as loaded now
			var stands bool
			if state, stands, err = r.goOn(ctx, stream, from); err == nil && stands {
				r.remember(stream, &state)
				return state, nil
			}
			r.forget(stream)
			if err != nil {
				return loaded[S]{}, err
			}
		}
	}
	var seen uint64
	if r.snapshots != nil {
		seen = r.snapshots.queue.count.Load()
	}
	if r.snapshots == nil || eventsOnly {
		state, err = r.replay(ctx, stream, eventstore.Range{})
	} else {
		state, err = r.loadWithSnapshot(ctx, stream)
	}
	if err != nil {
		return loaded[S]{}, err
	}
	state.era, state.seen, state.replayed = era, seen, state.folded
	r.remember(stream, &state)
	return state, nil
}

// observeLoad tells the observer of a load; promised: the policy of the snapshots was to keep it short.
func (r *Repository[S, E]) observeLoad(start time.Time, stream eventstore.StreamID, state loaded[S], promised bool, err error) {
	seen := eventstore.LoadObservation{
		Category: stream.Category, Events: state.folded, Cached: state.cached, Snapshot: !state.cached && state.snapshot > 0,
		Duration: time.Since(start), Err: err,
	}
	if s := r.snapshots; promised && s != nil && s.bound >= 0 {
		seen.Overshoot = max(state.folded-s.bound, 0)
	}
	r.observer.ObserveLoad(seen)
}

func (r *Repository[S, E]) loadAt(ctx context.Context, stream eventstore.StreamID, v eventstore.Version) (loaded[S], error) {
	invalid := func(reason string) error {
		return &eventstore.InvalidError{
			Field: "AtVersion", Value: strconv.FormatInt(int64(v), 10), Reason: reason, Remedy: "ask for a version that the stream has",
		}
	}
	switch {
	case v < 0:
		return loaded[S]{}, invalid("is negative")
	case v == 0:
		return loaded[S]{}, stream.Validate()
	}
	state, err := r.replay(ctx, stream, eventstore.Range{To: v})
	if err == nil && state.version < v {
		return loaded[S]{}, invalid(fmt.Sprintf("is later than the last version, %d", state.version))
	}
	return state, err
}

func (r *Repository[S, E]) replay(ctx context.Context, stream eventstore.StreamID, within eventstore.Range) (loaded[S], error) {
	if err := stream.Validate(); err != nil {
		return loaded[S]{}, err
	}
	var state loaded[S]
	err := r.fold(&state, stream, r.store.ReadStream(ctx, stream, within))
	return state, err
}

// fold folds events, the first of which must follow state, into it.
func (r *Repository[S, E]) fold(state *loaded[S], stream eventstore.StreamID, events iter.Seq2[eventstore.RecordedEvent, error]) error {
	for recorded, err := range events {
		if err != nil {
			return err
		}
		if err := r.foldOne(state, stream, recorded); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository[S, E]) foldOne(state *loaded[S], stream eventstore.StreamID, recorded eventstore.RecordedEvent) error {
	if recorded.Version != state.version+1 {
		// Going on would decide on a state that never was.
		return fmt.Errorf("stream %q has version %d where %d must follow: its history is not complete", stream, recorded.Version, state.version+1)
	}
	event, err := r.typ.decode(recorded)
	if err != nil {
		return err
	}
	state.state = r.typ.evolve(state.state, event)
	state.version, state.last = recorded.Version, recorded.ID
	state.folded++
	if r.snapshots != nil {
		state.types = withType(state.types, recorded.Type)
		if state.since.IsZero() {
			state.since = recorded.RecordedAt
		}
	}
	return nil
}
