package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

// Refusal is made by [Refuses]. It is an option of [Define], for all commands of a type, and of Handle and Transact.
type Refusal struct {
	code string
	err  error
}

// Refuses declares an error with which decisions refuse commands, under a code. When a command with a key is refused,
// the code is stored with the outcome; the repeated refusal, a [*RefusedError], carries it and matches err by errors.Is,
// although it came from the store. A code, once used, must keep its meaning. Of several errors that match, the first
// declared counts. Transact knows the declarations of the types that took part when it refuses, but those of its own
// options only when it repeats.
//
// It panics when code or err is empty, as what it declares could never be found again.
func Refuses(code string, err error) Refusal {
	if code == "" || err == nil {
		panic(fmt.Sprintf("aggregate: refuses %q, %v: give the error and a code, for example \"insufficient_funds\"", code, err))
	}
	if len(code) > maxText || storable(code) != code {
		panic(fmt.Sprintf("aggregate: refuses %q: the code cannot be stored: use a short text", code))
	}
	return Refusal{code: code, err: err}
}

func (r Refusal) applyType(c *typeConfig)     { c.refusals = append(c.refusals, r) }
func (r Refusal) applyHandle(c *handleConfig) { c.refusals = append(c.refusals, r) }

// alwaysRefuses are the refusals of this package itself.
var alwaysRefuses = []Refusal{{"aggregate.exists", ErrExists}}

// expiring stands in the place of the operation of a command that was never executed.
const expiring = "expire"

// Expire ends a command with a key unexecuted: from now on it is answered with an [*ExpiredError] and can never run. It is
// for who carries commands and finds that their deadline has passed.
//
// Key and options must be those that the command would be executed with. When an outcome is stored already, the command
// has had its answer: Repeated is set then, and executing it returns that answer. Kind is [eventstore.OutcomeExpired] if
// it was this one, and [eventstore.OutcomeDone], with nothing else filled, if the command itself had come first, however
// it ended.
//
// It is safe to call at any time, also while the command is being executed: one of the two is stored.
func Expire(ctx context.Context, store eventstore.OnceAppender, key string, opts ...KeyOption) (eventstore.Outcome, error) {
	option := WithIdempotencyKey(key, opts...)
	k, err := newKeyed(ctx, store, &option, expiring, nil)
	if err != nil {
		return eventstore.Outcome{}, err
	}
	outcome := eventstore.Outcome{Kind: eventstore.OutcomeExpired}
	send := func() (eventstore.Outcome, error) { return store.AppendOnce(ctx, k.claim, outcome) }
	stored, err := certain(ctx, Retry{}, send)
	if errors.Is(err, eventstore.ErrReusedKey) {
		return eventstore.Outcome{Kind: eventstore.OutcomeDone, Repeated: true}, nil
	}
	if err != nil {
		return eventstore.Outcome{}, fmt.Errorf("aggregate: expire: %w", err)
	}
	return stored, nil
}
