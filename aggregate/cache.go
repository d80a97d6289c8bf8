package aggregate

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/daybook-go/daybook/eventstore"
)

// WithCache keeps states in memory between calls, up to maxBytes bytes by a careful estimate that includes what keeping
// them costs; those that were not used for longest go first. 0 and less: none, the default.
//
// A load still asks the store: it reads the stream from the last event of the cached state on, and uses the state only
// if that event is where it was. So nothing is ever decided on a state that was not committed, of a history that was
// lost in a restore, or older than it would be without a cache; what is saved is reading and folding. What is loaded
// belongs to the caller, as without a cache.
//
// States of plain fields are kept as they are. Those with maps, slices or pointers are kept encoded, so that nobody
// changes them; [NewRepository] panics when they could not be brought back as they were, and names the field.
func WithCache(maxBytes int) Option {
	return optionFunc(func(c *repositoryConfig) { c.cacheBytes = maxBytes })
}

// keptState is a state set aside, with what is needed to go on from it.
type keptState[S any] struct {
	state kept[S]
	trail
}

// entryOverhead is what an entry takes besides its state, key and types: two nodes, its share of a map that grew by
// doubling, and the allocator's rounding.
const entryOverhead = 320

func (k keptState[S]) size(stream eventstore.StreamID) int {
	n := entryOverhead + int(unsafe.Sizeof(k)) + k.state.size() + 2*len(stream.ID)
	for _, name := range k.types {
		n += int(unsafe.Sizeof(name)) + len(name)
	}
	return n
}

// cache holds the states of a repository. It is safe for concurrent use.
type cache[S any] struct {
	max int

	mu    sync.Mutex
	lru   *simplelru.LRU[eventstore.StreamID, cached[S]]
	bytes int
}

type cached[S any] struct {
	state *keptState[S]
	bytes int
}

func newCache[S any](maxBytes int) *cache[S] {
	c := &cache[S]{max: maxBytes}
	// Bounded by bytes, here; the number never counts, so there can be no error.
	c.lru, _ = simplelru.NewLRU(math.MaxInt, func(_ eventstore.StreamID, gone cached[S]) { c.bytes -= gone.bytes })
	return c
}

func (c *cache[S]) get(stream eventstore.StreamID) (keptState[S], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.lru.Get(stream)
	if !ok {
		return keptState[S]{}, false
	}
	return *found.state, true
}

// put keeps a state unless a later one is there, or valid says no, which is asked when nobody can empty the cache.
func (c *cache[S]) put(stream eventstore.StreamID, k keptState[S], valid func() bool) {
	size := k.size(stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !valid() {
		return
	}
	if there, ok := c.lru.Peek(stream); ok {
		if there.state.version > k.version {
			return
		}
		if there.state.snapshot > k.snapshot { // it was stored since k was loaded
			k.snapshot, k.since, k.replayed, k.unusable = there.state.snapshot, there.state.since, there.state.replayed, false
		}
		c.lru.Remove(stream)
	}
	if size > c.max {
		return
	}
	// The key outlives the call: it must not hold a request that the id was cut out of.
	stream.ID = strings.Clone(stream.ID)
	c.lru.Add(stream, cached[S]{state: &k, bytes: size})
	for c.bytes += size; c.bytes > c.max; {
		c.lru.RemoveOldest()
	}
}

func (c *cache[S]) remove(stream eventstore.StreamID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Remove(stream)
}

func (c *cache[S]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
}

// snapshotTaken notes a snapshot with the state that is cached, which was loaded before it was there.
func (c *cache[S]) snapshotTaken(stream eventstore.StreamID, version eventstore.Version, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.lru.Peek(stream)
	if !ok || found.state.snapshot >= version {
		return
	}
	noted := *found.state
	noted.snapshot, noted.since, noted.replayed, noted.unusable = version, at, 0, false
	if noted.version <= version {
		noted.types = nil
	}
	size := noted.size(stream)
	c.bytes += size - found.bytes
	c.lru.Add(stream, cached[S]{state: &noted, bytes: size})
}

// aside returns what was loaded in a form that nobody can change, to go on from later with loadFrom. It must be called
// before a decision is given the state. False: states of this type cannot be kept, or this one not; then load again.
func (r *Repository[S, E]) aside(l loaded[S]) (keptState[S], bool) {
	if l.kept != nil {
		return *l.kept, true
	}
	if r.vault == nil || l.version == 0 {
		return keptState[S]{}, false
	}
	state, err := r.vault.keep(l.state)
	return keptState[S]{state: state, trail: l.trail}, err == nil
}

// loadFrom reads the stream from the version of a state that was set aside, and folds what came after it. If the event
// at that version is not the remembered one, or the state cannot be opened, everything is loaded anew.
func (r *Repository[S, E]) loadFrom(ctx context.Context, stream eventstore.StreamID, from keptState[S]) (loaded[S], error) {
	start := time.Now()
	state, stands, err := r.goOn(ctx, stream, from)
	if err == nil && !stands {
		r.forget(stream)
		return r.load(ctx, stream)
	}
	r.remember(stream, &state)
	r.observeLoad(start, stream, state, true, err)
	return state, err
}

// goOn is loadFrom without another way out: stands is false when the state is not one of the stream's.
func (r *Repository[S, E]) goOn(ctx context.Context, stream eventstore.StreamID, from keptState[S]) (state loaded[S], stands bool, err error) {
	if from.version == 0 {
		return state, false, nil
	}
	opened, err := from.state.open()
	if err != nil {
		return state, false, nil
	}
	state = loaded[S]{state: opened, trail: from.trail, cached: true}
	for recorded, err := range r.store.ReadStream(ctx, stream, eventstore.Range{From: from.version}) {
		switch {
		case err != nil:
			return loaded[S]{}, false, err
		case stands:
			if err := r.foldOne(&state, stream, recorded); err != nil {
				return loaded[S]{}, false, err
			}
		case recorded.Version != from.version || recorded.ID != from.last:
			return loaded[S]{}, false, nil
		default:
			stands = true
		}
	}
	state.replayed = max(state.replayed, state.folded)
	if stands && state.folded == 0 {
		state.kept = &from
	}
	return state, stands, nil
}

// remember keeps what was loaded, before anybody is given it.
func (r *Repository[S, E]) remember(stream eventstore.StreamID, l *loaded[S]) {
	if r.cache == nil || l.version == 0 || l.kept != nil {
		return
	}
	k, ok := r.aside(*l)
	if !ok {
		r.forget(stream)
		return
	}
	l.kept = &k
	r.cache.put(stream, k, func() bool { return r.eras.now(l.era) })
}

// put remembers the state that a command has committed. Without WithCache it does nothing.
//
// A state that was kept encoded stays as it was before the command, and the next load folds the command's events: a
// decision may have changed maps of the state that it was given, which must never be found in another's.
func (r *Repository[S, E]) put(stream eventstore.StreamID, base loaded[S], pending []eventstore.EventData, state S) {
	if r.cache == nil || len(pending) == 0 || !r.vault.plain {
		return
	}
	k, err := r.vault.keep(state)
	if err != nil {
		return
	}
	after := base.trail
	if r.snapshots != nil { // what was stored since this command was loaded
		if v, takenAt := r.snapshots.queue.latest(stream, base.seen); v > after.snapshot {
			after.snapshot, after.since, after.replayed = v, takenAt, int(max(base.version-v, 0))
			if v >= base.version {
				after.types = nil
			}
		}
	}
	after.version += eventstore.Version(len(pending))
	after.last = pending[len(pending)-1].ID
	if r.snapshots != nil {
		if after.since.IsZero() {
			after.since = r.snapshots.policy.Clock() // its first event has just been recorded
		}
		for _, e := range pending {
			after.types = withType(after.types, e.Type)
		}
	}
	r.cache.put(stream, keptState[S]{state: k, trail: after}, func() bool { return base.version == 0 || r.eras.now(base.era) })
}

// forget drops what is remembered of a stream, as after any error of a command on it. Without WithCache it does nothing.
func (r *Repository[S, E]) forget(stream eventstore.StreamID) {
	if r.cache != nil {
		r.cache.remove(stream)
	}
}
