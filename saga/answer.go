package saga

import (
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
)

// Answer is an event that answers the command of a step, and what it does to the state. Make it with [On] or [OnKey]. It
// is immutable and safe for concurrent use.
type Answer[S any] struct {
	event reflect.Type
	key   *keyed // nil: found by causation
	fold  func(S, any, *eventstore.RecordedEvent) (S, error)
}

// On takes each event of type E that the command of the step caused, as its Metadata.CausationID says; handlers on a bus
// need do nothing for that. fold is pure: it gets the state and returns the one after the event. It is called once for an
// answer that counts; a repeat of one that was taken is ignored.
func On[S, E any](fold func(S, Event[E]) S) Answer[S] {
	a := Answer[S]{event: reflect.TypeFor[E]()}
	if fold != nil {
		a.fold = func(s S, payload any, r *eventstore.RecordedEvent) (S, error) {
			e, err := typed[E](payload, r)
			if err != nil {
				return s, err
			}
			return fold(s, e), nil
		}
	}
	return a
}

// OnKey takes each event of type E for the instance that key names, whatever caused it: for answers from outside, such as
// those that come by a webhook. One that comes before its step has begun is kept, and taken when it begins, without
// sending the command.
//
// Such an answer does not say which of several attempts it is for, so it is taken for the last. Where a late answer to an
// attempt that was undone must not be mistaken, let what is outside carry the command's id, and use [On].
func OnKey[S, E any](key Key[E], fold func(S, Event[E]) S) Answer[S] {
	a := On(fold)
	k := key.key()
	a.key = &k
	return a
}
