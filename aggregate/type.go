package aggregate

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/daybook-go/daybook/eventstore"
)

// Type describes one kind of aggregate: the category of its streams, how an event changes the state, and which events
// there are. It is made once by [Define], kept in a package variable, and safe for concurrent use.
//
// S is the state; its zero value is the state of an aggregate without events. E is the type of the events, usually a
// sealed interface.
type Type[S, E any] struct {
	category     string
	evolve       func(S, E) S
	catalog      *eventstore.Catalog
	partitionKey func(id string) string
	unaffected   unaffected
	refusals     []Refusal
}

// TypeOption sets what most types leave out; see [PartitionedBy], [Unaffected] and [Refuses].
type TypeOption interface{ applyType(*typeConfig) }

type typeConfig struct {
	partitionKey func(id string) string
	unaffected   []unaffectedRule
	refusals     []Refusal
}

type typeOptionFunc func(*typeConfig)

func (f typeOptionFunc) applyType(c *typeConfig) { f(c) }

// PartitionedBy keeps aggregates together in the order of delivery: consumers see the events of all aggregates with
// the same key, of any type, in the order of the log, one at a time. The key of an aggregate is fixed by its first
// event; changing the function later changes new aggregates only. An empty key, the default, stands for the aggregate
// alone.
func PartitionedBy(key func(id string) string) TypeOption {
	return typeOptionFunc(func(c *typeConfig) { c.partitionKey = key })
}

// Define makes the type whose streams are "category-id". evolve folds one event into the state: it must be pure and
// total, since what it is given has happened. It may change maps and slices of the state in place.
//
// Define runs while package variables are set up, so that a mistake stops every program and test before main. It
// panics, naming the remedy, when the category cannot be part of a stream id, when evolve or catalog is nil, when an
// event of the catalog is not an E, and when [Unaffected] names an event that is not in the catalog.
func Define[S, E any](category string, evolve func(S, E) S, catalog *eventstore.Catalog, opts ...TypeOption) *Type[S, E] {
	refuse := func(format string, args ...any) {
		panic(fmt.Sprintf("aggregate: define %q: ", category) + fmt.Sprintf(format, args...))
	}
	if err := eventstore.NewStreamID(category, "id").Validate(); err != nil {
		refuse("%s", strings.TrimPrefix(err.Error(), "eventstore: "))
	}
	if evolve == nil {
		refuse("evolve is nil: pass the function that folds an event into the state, for example Account.Evolve")
	}
	if catalog == nil {
		refuse("catalog is nil: pass eventstore.NewCatalog with the aggregate's events")
	}
	if err := checkEvents(catalog, reflect.TypeFor[E]()); err != nil {
		refuse("%v", err)
	}
	var config typeConfig
	for _, opt := range opts {
		opt.applyType(&config)
	}
	rules, err := newUnaffected(catalog, config.unaffected)
	if err != nil {
		refuse("%v", err)
	}
	return &Type[S, E]{
		category: category, evolve: evolve, catalog: catalog,
		partitionKey: config.partitionKey, unaffected: rules, refusals: config.refusals,
	}
}

// checkEvents refuses a catalog in which not every event is an E.
func checkEvents(catalog *eventstore.Catalog, event reflect.Type) error {
	if event.Kind() == reflect.Interface {
		return catalog.CheckImplements(event)
	}
	for _, name := range catalog.Types() {
		if t, _ := catalog.GoType(name); t != event {
			return fmt.Errorf("event type %q has Go type %s, not %s: leave it out of this catalog, or make the events an interface", name, t, event)
		}
	}
	return nil
}

// Category returns the category of the type's streams.
func (t *Type[S, E]) Category() string { return t.category }

// Catalog returns the events of the type.
func (t *Type[S, E]) Catalog() *eventstore.Catalog { return t.catalog }

// Stream returns the stream of the aggregate id. It does not check id; loading and appending do.
func (t *Type[S, E]) Stream(id string) eventstore.StreamID {
	return eventstore.NewStreamID(t.category, id)
}

// Fold returns the state that events lead to, from state on. It is what a load does, without a store.
func (t *Type[S, E]) Fold(state S, events ...E) S {
	for _, e := range events {
		state = t.evolve(state, e)
	}
	return state
}

// decode turns a recorded event into an event of the type.
func (t *Type[S, E]) decode(recorded eventstore.RecordedEvent) (E, error) {
	event, err := eventstore.DecodeAs[E](t.catalog, recorded)
	return event.Payload, err
}

// stored returns the stored form of an event, under a new id, and the event as it will be read back. Folding the
// latter makes the state after a command the one that the next load finds, and an event that could be written but
// never read again is refused before it can block its stream.
func (t *Type[S, E]) stored(stream eventstore.StreamID, version eventstore.Version, event E) (eventstore.EventData, E, error) {
	var none E
	data, err := t.catalog.Encode(event)
	if err != nil {
		return data, none, err
	}
	if data.ID, err = newEventID(); err != nil {
		return data, none, err
	}
	back, err := t.decode(eventstore.RecordedEvent{EventData: data, Stream: stream, Version: version})
	return data, back, err
}
