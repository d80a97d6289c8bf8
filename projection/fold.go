package projection

import (
	"fmt"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Event is a decoded event, as folds and handlers get it. It is [eventstore.Event], with the fields
//
//	Payload    E
//	ID         uuid.UUID
//	Stream     eventstore.StreamID
//	Version    eventstore.Version  // place in the stream, from 1
//	Position   eventstore.Position // place in the log
//	RecordedAt time.Time           // when it was appended, UTC
//	Metadata   eventstore.Metadata
type Event[E any] = eventstore.Event[E]

// maxKeys bounds what one event may touch in one view, and with it the memory and the locks of a batch.
const maxKeys = 1000

// Fold says what events of one Go type do to a view. Make it with [On] or [OnEach]. It must be pure: it runs again when
// a batch is repeated, and it runs in memory.
type Fold[K comparable, S any] struct {
	event reflect.Type
	visit func(payload any, r *eventstore.RecordedEvent, each func(K, func(S) S)) error
}

// On folds each event of type E into the row that key names. The fold gets the zero S when there is no such row.
func On[K comparable, S, E any](key func(Event[E]) K, fold func(S, Event[E]) S) Fold[K, S] {
	return Fold[K, S]{
		event: reflect.TypeFor[E](),
		visit: func(payload any, r *eventstore.RecordedEvent, each func(K, func(S) S)) error {
			e, err := typed[E](payload, r)
			if err == nil {
				each(key(e), func(s S) S { return fold(s, e) })
			}
			return err
		},
	}
}

// OnEach folds each event of type E into the rows that keys names, at most 1,000 of them. A key that is named twice is
// folded once, so the fold looks in the event for everything that concerns its key.
func OnEach[K comparable, S, E any](keys func(Event[E]) []K, fold func(K, S, Event[E]) S) Fold[K, S] {
	return Fold[K, S]{
		event: reflect.TypeFor[E](),
		visit: func(payload any, r *eventstore.RecordedEvent, each func(K, func(S) S)) error {
			e, err := typed[E](payload, r)
			if err != nil {
				return err
			}
			all := keys(e)
			if len(all) > maxKeys {
				return fmt.Errorf("projection: the event names %d keys, more than %d: split it into several events", len(all), maxKeys)
			}
			seen := make(map[K]struct{}, len(all))
			for _, k := range all {
				if _, ok := seen[k]; !ok {
					seen[k] = struct{}{}
					each(k, func(s S) S { return fold(k, s, e) })
				}
			}
			return nil
		},
	}
}

// ByStream is the key of a view with a row per stream: the ID of the event's stream.
func ByStream[E any](e Event[E]) string { return e.Stream.ID }

func typed[E any](payload any, r *eventstore.RecordedEvent) (Event[E], error) {
	p, ok := payload.(E)
	if !ok {
		return Event[E]{}, fmt.Errorf("projection: the catalog decodes %q as %T, not %s", r.Type, payload, reflect.TypeFor[E]())
	}
	return Event[E]{
		Payload: p, ID: r.ID, Stream: r.Stream, Version: r.Version, Position: r.Position,
		RecordedAt: r.RecordedAt, Metadata: r.Metadata,
	}, nil
}

// decode also survives a panic of the event type's own unmarshaller.
func decode(catalog *eventstore.Catalog, e eventstore.RecordedEvent) (payload any, err error) {
	defer recovered("decoding the event", &err)
	return catalog.Decode(e)
}

// recovered turns a panic of user code into an error. The value of the panic is user code's own text.
func recovered(what string, err *error) {
	if r := recover(); r != nil {
		*err = consumer.Panicked("projection: "+what, r)
	}
}
