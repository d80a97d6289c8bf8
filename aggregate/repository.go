package aggregate

import (
	"fmt"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// Repository loads aggregates of one type and lets them decide. It is small and safe for concurrent use. It keeps no
// state of any aggregate between calls, except with [WithCache], and then asks the store whether the state still stands;
// so a command never decides on something that was not committed.
type Repository[S, E any] struct {
	store     Store
	typ       *Type[S, E]
	retry     Retry
	observer  eventstore.Observer
	snapshots *snapshots[S] // nil: none
	vault     *vault[S]     // nil: states of this type cannot be kept aside
	cache     *cache[S]     // nil: none
	eras      eras
	lanes     bool
}

// Option sets what most repositories leave out; see [WithSnapshots], [WithCache], [WithObserver] and [WithRetry].
type Option interface{ applyRepository(*repositoryConfig) }

type repositoryConfig struct {
	retry    Retry
	store    snapshot.Store
	policy   snapshot.Policy
	observer eventstore.Observer
	noLanes  bool
	// cacheBytes is how much memory states may take between calls.
	cacheBytes int
}

type optionFunc func(*repositoryConfig)

func (f optionFunc) applyRepository(c *repositoryConfig) { f(c) }

// WithSnapshots keeps the states of long streams in s, which must read the same events as the repository's store:
// take it from there, as in store.Snapshots(). Policy says how often: snapshot.Every(100).
//
// They are stored beside the commands, one after the other; see [Repository.Snapshots], whose Drain waits for them before
// a program closes its store. When more are due than fit into Policy.Queue, the rest is dropped and due again later.
//
// Do not give it to a repository on a store that is bound to a caller's transaction: what stores snapshots reads from the
// store in a goroutine of its own, and would use the transaction beside the caller. NewRepository panics then.
func WithSnapshots(s snapshot.Store, policy snapshot.Policy) Option {
	return optionFunc(func(c *repositoryConfig) { c.store, c.policy = s, policy })
}

// NewRepository returns a repository for aggregates of type typ in store.
//
// It panics when store or typ is nil, when store is a value that cannot be compared with ==, and when snapshots or a
// cache are asked for but the codec cannot store every part of the state, which would come back incomplete. The text
// names the field and the remedy.
func NewRepository[S, E any](store Store, typ *Type[S, E], opts ...Option) *Repository[S, E] {
	switch {
	case typ == nil:
		panic("aggregate: new repository: typ is nil: pass the value that aggregate.Define made")
	case store == nil:
		panic(fmt.Sprintf("aggregate: new repository %q: store is nil: pass an event store", typ.category))
	case !reflect.TypeOf(store).Comparable(): // a Work could not tell whether it is its own
		panic(fmt.Sprintf("aggregate: new repository %q: a store of type %T cannot be compared: pass a pointer to it", typ.category, store))
	}
	var config repositoryConfig
	for _, opt := range opts {
		opt.applyRepository(&config)
	}
	if _, bound := store.(transactionBound); bound && config.store != nil {
		// They would be stored by another goroutine, in the middle of what the transaction's owner does with it.
		panic(fmt.Sprintf("aggregate: new repository %q: snapshots on a store that is bound to a transaction: leave WithSnapshots out", typ.category))
	}
	r := &Repository[S, E]{store: store, typ: typ, retry: config.retry, observer: config.observer}
	if r.observer == nil {
		r.observer = eventstore.NopObserver{}
	}
	r.lanes = !config.noLanes
	v, err := newVault[S]()
	if err == nil {
		r.vault = v
	}
	if config.cacheBytes > 0 {
		if err != nil {
			panic(fmt.Sprintf("aggregate: new repository %q: cache: %v", typ.category, err))
		}
		r.cache = newCache[S](config.cacheBytes)
	}
	if config.store != nil {
		kept, err := newSnapshots[S](config.store, config.policy, r.storeSnapshot)
		if err != nil {
			panic(fmt.Sprintf("aggregate: new repository %q: snapshots: %v", typ.category, err))
		}
		r.snapshots = kept
	}
	return r
}

// transactionBound is a store that lives in a transaction of its caller's.
type transactionBound interface{ BoundToTransaction() }

// Type returns the type of the repository's aggregates.
func (r *Repository[S, E]) Type() *Type[S, E] { return r.typ }
