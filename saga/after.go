package saga

import (
	"reflect"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Trigger is an event and what it makes a saga send. Make it with [When] or [WhenEach].
type Trigger struct {
	event   reflect.Type
	payload reflect.Type // nil: of any type
	many    bool
	make    func(payload any, r *eventstore.RecordedEvent, send func(to string, command any)) error
}

// When sends a command for each event of type E. f is pure; it returns whom the command is addressed to, and the command.
func When[E, C any](f func(Event[E]) (to string, command C)) Trigger {
	t := Trigger{event: reflect.TypeFor[E](), payload: reflect.TypeFor[C]()}
	if f != nil {
		t.make = func(payload any, r *eventstore.RecordedEvent, send func(string, any)) error {
			e, err := typed[E](payload, r)
			if err == nil {
				to, command := f(e)
				send(to, command)
			}
			return err
		}
	}
	return t
}

// WhenEach sends as many commands for each event of type E as f calls send for, none included. f is pure. It is for
// [NewReactor].
func WhenEach[E any](f func(e Event[E], send func(to string, command any))) Trigger {
	t := Trigger{event: reflect.TypeFor[E](), many: true}
	if f != nil {
		t.make = func(payload any, r *eventstore.RecordedEvent, send func(string, any)) error {
			e, err := typed[E](payload, r)
			if err == nil {
				f(e, send)
			}
			return err
		}
	}
	return t
}

// AfterOption changes a delayed command. Make it with [Spread].
type AfterOption struct{ spread time.Duration }

// Spread puts what is due up to window later, so that what a herd of events begins in one moment does not come due in one. A
// hash of the key picks the place: evenly over the window, and the same for one run whenever it is asked. Zero: no later.
func Spread(window time.Duration) AfterOption { return AfterOption{spread: window} }

// Unless names the events that cancel a delayed command; see [After].
func Unless(keys ...AnyKey) Cancel { return Cancel{keys: keys} }

// Cancel is what cancels a delayed command. Make it with [Unless]. The zero value: nothing does.
type Cancel struct{ keys []AnyKey }

// After sends a command some time after an event, unless another event comes before:
//
//	var CancelUnpaid = saga.After("cancel-unpaid", 15*time.Minute, events,
//		saga.When(func(e saga.Event[OrderPlaced]) (string, CancelOrder) { return e.Stream.ID, CancelOrder{"not paid"} }),
//		saga.Unless(payment))
//
// The time is counted from when the event was recorded, by the clock of the store. The key of the instance is whom the
// command is addressed to; of several events for one key the first counts until the command was carried out. A command that
// its receiver refuses was not wanted any more: that is an end like any other. One that could not be carried out is tried
// again, with pauses of up to 60 s, without end. With [Spread] the time is d and up to so much more.
func After(name string, d time.Duration, events *eventstore.Catalog, when Trigger, unless Cancel, options ...AfterOption) Definition {
	var spread time.Duration
	for _, o := range options {
		spread = o.spread
	}
	return defineAfter(name, d, spread, events, when, unless)
}
