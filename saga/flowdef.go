package saga

import (
	"reflect"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// Flow is a saga that is not a list of steps: reactions, each of them a pure function of the state and what came in, which
// records what is to be sent. S is its state, as that of a [Process].
//
// The event that begins an instance is given to the reactions too. Everything is as the reactions say: a flow ends when one
// of them calls Effects.Complete or Effects.Compensated, and what comes after that is ignored.
type Flow[S any] struct {
	// Name, Version, Events and Start are those of a [Process].
	Name    string
	Version int
	Events  *eventstore.Catalog
	Start   Start[S]
	// Reactions; several to one thing are called in order.
	Reactions []Reaction[S]
}

// Reaction is a pure function that a [Flow] calls. Make it with [React], [ReactKey], [ReactTimer], [ReactReply] or
// [ReactCancel].
type Reaction[S any] struct {
	kind  reactionKind
	event reflect.Type
	key   *keyed
	timer string
	run   func(S, reacted, *Effects) (S, error)
}

type reactionKind int

const (
	toEvent reactionKind = iota + 1
	toTimer
	toReply
	toCancel
)

// reacted is what a reaction is called with.
type reacted struct {
	event   *eventstore.RecordedEvent
	payload any
	reply   Reply
}

// Reply says how the carrying out of a command ended.
type Reply struct {
	// Name of the command, as it was sent; Undo: it is the one that undoes it.
	Name string
	Undo bool
	// Attempt is which command of that name it is, or which undo: 1 is the first, and each Effects.Send or Effects.Undo of the
	// name makes the next.
	Attempt int
	// Late: the flow has gone on without it. Another of that name was sent since, or its undo was, or it had ended otherwise
	// before, by hand perhaps. What is late says nothing of the last command of that name. One that is done late has taken
	// effect beside what was sent in its place: unless its undo was sent, which then undoes it, it is for the reaction to undo,
	// by a command of another name, for Effects.Undo is about the last one.
	Late bool
	// State is [ReplyDone], [ReplyRefused], [ReplyExpired] or [ReplyFailed].
	State        ReplyState
	Code, Reason string
}

// ReplyState is how the carrying out of a command ended.
type ReplyState = flow.ReplyState

// The ends of commands.
const (
	// ReplyDone: it was carried out.
	ReplyDone = flow.ReplyDone
	// ReplyRefused: by its receiver, for good. It is definitely not done.
	ReplyRefused = flow.ReplyRefused
	// ReplyExpired: it never ran, and never will.
	ReplyExpired = flow.ReplyExpired
	// ReplyFailed: it was given up. It has no effect in the store and never will; outside nobody knows.
	ReplyFailed = flow.ReplyFailed
)

// React is called with each event of type E that began the instance, or that one of its commands caused.
func React[S, E any](f func(S, Event[E], *Effects) S) Reaction[S] {
	r := Reaction[S]{kind: toEvent, event: reflect.TypeFor[E]()}
	if f != nil {
		r.run = func(s S, in reacted, fx *Effects) (S, error) {
			e, err := typed[E](in.payload, in.event)
			if err != nil {
				return s, err
			}
			return f(s, e, fx), nil
		}
	}
	return r
}

// ReactKey is called with each event of type E for the instance that key names, whatever caused it.
func ReactKey[S, E any](key Key[E], f func(S, Event[E], *Effects) S) Reaction[S] {
	r := React(f)
	k := key.key()
	r.key = &k
	return r
}

// ReactTimer is called when the timer of that name, set with Effects.After, is due.
func ReactTimer[S any](name string, f func(S, *Effects) S) Reaction[S] {
	r := Reaction[S]{kind: toTimer, timer: name}
	if f != nil {
		r.run = func(s S, _ reacted, fx *Effects) (S, error) { return f(s, fx), nil }
	}
	return r
}

// ReactReply is called when the carrying out of a command has ended. Without any, an end other than done leaves the instance
// stuck, and done is noted.
//
// When a command has ended for which another one of that name was sent since, or its undo, or that was answered by hand, then
// it is called only if that one was done, with Reply.Late: of what was replaced and did not take effect nothing is left to
// do, and the history notes it. The ends of undos are always told.
func ReactReply[S any](f func(S, Reply, *Effects) S) Reaction[S] {
	r := Reaction[S]{kind: toReply}
	if f != nil {
		r.run = func(s S, in reacted, fx *Effects) (S, error) { return f(s, in.reply, fx), nil }
	}
	return r
}

// ReactCancel is called when an operator cancels the instance. Without any, a flow cannot be cancelled.
func ReactCancel[S any](f func(S, *Effects) S) Reaction[S] {
	r := Reaction[S]{kind: toCancel}
	if f != nil {
		r.run = func(s S, _ reacted, fx *Effects) (S, error) { return f(s, fx), nil }
	}
	return r
}
