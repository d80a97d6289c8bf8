package saga

import (
	"fmt"
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
)

// Event is a decoded event, as reactions get it. It is [eventstore.Event], with the fields
//
//	Payload    E
//	ID         uuid.UUID
//	Stream     eventstore.StreamID
//	Version    eventstore.Version  // place in the stream, from 1
//	Position   eventstore.Position // place in the log
//	RecordedAt time.Time           // when it was appended, UTC
//	Metadata   eventstore.Metadata // CausationID is the id of the command that brought it about
type Event[E any] = eventstore.Event[E]

// Key says which instance an event of type E concerns. Make it with [KeyOf]. It is immutable and safe for concurrent use.
type Key[E any] struct{ of func(Event[E]) string }

// KeyOf declares a key, for events that no command of the saga caused: what comes by a webhook, what people did. The
// function is pure; the empty text stands for no instance.
func KeyOf[E any](of func(Event[E]) string) Key[E] { return Key[E]{of} }

// AnyKey is a [Key] of any event type. No other type implements it.
type AnyKey interface{ key() keyed }

// keyed is a key without its type parameter.
type keyed struct {
	event reflect.Type
	of    func(payload any, r *eventstore.RecordedEvent) (string, error) // nil: KeyOf was given no function
}

func (k Key[E]) key() keyed {
	made := keyed{event: reflect.TypeFor[E]()}
	if k.of != nil {
		made.of = func(payload any, r *eventstore.RecordedEvent) (string, error) {
			e, err := typed[E](payload, r)
			if err != nil {
				return "", err
			}
			return k.of(e), nil
		}
	}
	return made
}

func typed[E any](payload any, r *eventstore.RecordedEvent) (Event[E], error) {
	p, ok := payload.(E)
	if !ok {
		return Event[E]{}, fmt.Errorf("saga: the catalog decodes %q as %T, not %s", r.Type, payload, reflect.TypeFor[E]())
	}
	return Event[E]{
		Payload: p, ID: r.ID, Stream: r.Stream, Version: r.Version, Position: r.Position,
		RecordedAt: r.RecordedAt, Metadata: r.Metadata,
	}, nil
}
