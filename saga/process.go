package saga

import (
	"reflect"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	defaultUndoDeadline = time.Hour
	defaultUndoAttempts = 5
)

// Process is a saga that is a list of steps: it does them one after the other, and undoes them in reverse when one is
// refused, is late, or has failed too often. S is its state, a struct that [eventstore.Msgpack] stores without loss; no
// part of it may be shared with what the functions of the definition change later. See the package's documentation for the
// rules.
type Process[S any] struct {
	// Name is how instances are stored. Lower-case letters, digits and dashes, a letter first, at most 40; not ending in
	// "-replies".
	Name string
	// Version of the definition, from 1. Raise it when steps change; instances under way keep the one they began with.
	Version int
	// Events names the types of the events.
	Events *eventstore.Catalog
	// Start says which events begin an instance.
	Start Start[S]
	// Steps, in order.
	Steps []Step[S]
	// Completed is sent when all steps are done, Compensated when all are undone, so that the aggregate concerned knows how
	// it ended. Default: none.
	Completed, Compensated Command[S]
	// UndoRetry says how often an undo is tried. Default: 5 attempts with pauses of up to 1 s … 60 s.
	UndoRetry Retry
	// UndoDeadline is how long undoing one step may take before the instance is reported as stuck. Default 1 h.
	UndoDeadline time.Duration
}

// Start says which events begin an instance, and with which state. Make it with [StartOn], [StartOnKey] or [StartOnAny].
type Start[S any] struct{ on []starter[S] }

type starter[S any] struct {
	event reflect.Type
	key   *keyed // nil: the id of the event's stream
	begin func(any, *eventstore.RecordedEvent) (S, error)
}

// StartOn begins an instance with each event of type E. Its key is the ID of the event's stream.
//
// At most one instance of a key is under way: an event that comes meanwhile is noted in its history. The next one after
// its end begins another run, with a state of its own.
func StartOn[S, E any](begin func(Event[E]) S) Start[S] {
	s := starter[S]{event: reflect.TypeFor[E]()}
	if begin != nil {
		s.begin = func(payload any, r *eventstore.RecordedEvent) (S, error) {
			e, err := typed[E](payload, r)
			if err != nil {
				var none S
				return none, err
			}
			return begin(e), nil
		}
	}
	return Start[S]{on: []starter[S]{s}}
}

// StartOnKey is [StartOn] for a key that is not the stream's ID. An event whose key is empty begins no instance.
func StartOnKey[S, E any](begin func(Event[E]) S, key Key[E]) Start[S] {
	s := StartOn(begin)
	k := key.key()
	s.on[0].key = &k
	return s
}

// StartOnAny begins an instance with an event of any of several types.
func StartOnAny[S any](starts ...Start[S]) Start[S] {
	var all Start[S]
	for _, s := range starts {
		all.on = append(all.on, s.on...)
	}
	return all
}
