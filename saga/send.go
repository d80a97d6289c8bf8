package saga

import "reflect"

// Command says what is sent, made of the state at the time of sending. Make it with [Send]. The zero value sends nothing.
// It is immutable and safe for concurrent use.
type Command[S any] struct {
	payload reflect.Type
	make    func(S) (to string, payload any)
}

// Send makes a command of a pure function of the state, usually a method of it:
//
//	func (s State) pay() (string, TakePayment) { return s.Account, TakePayment{s.Order, s.Cents} }
//
//	Send: saga.Send(State.pay)
//
// The first result is whom the command is addressed to; it is given to the bus as the command's target, and orders the
// commands of one addressee. It is empty when the payload says it itself. The payload's type is registered with the bus.
//
// What is sent again under the same id are the bytes that were stored the first time, whatever the state is by then.
func Send[S, C any](f func(S) (to string, command C)) Command[S] {
	c := Command[S]{payload: reflect.TypeFor[C]()}
	if f != nil {
		c.make = func(s S) (string, any) {
			to, payload := f(s)
			return to, payload
		}
	}
	return c
}

func (c Command[S]) isSet() bool { return c.payload != nil }
