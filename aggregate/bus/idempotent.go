package bus

import (
	"context"
	"errors"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// storeTimeout bounds storing that a command expired, which happens after its own time is over.
const storeTimeout = 5 * time.Second

// IdempotentOption changes [Idempotent]; see [TellIfRunning].
type IdempotentOption func(*idempotent)

// TellIfRunning returns an [*eventstore.InProgressError] at once while a command with the same key is being executed,
// instead of waiting for its outcome.
func TellIfRunning() IdempotentOption { return func(i *idempotent) { i.tell = true } }

type idempotent struct {
	store eventstore.OnceAppender
	tell  bool
}

// Idempotent lets each command take effect once, however often it is sent: under its key and scope, the first outcome is
// stored in one transaction with the events, and a repeat gets that outcome again, refusals included. What was asked is
// compared by type and data, so a repeat is sent in the same form. The same key with another request is an
// [*eventstore.ReusedKeyError]. store must be the one that the handlers' repositories use, and the handler of a command
// must do what it does in one Repository.Handle or aggregate.Transact, with its own context. A handler that succeeds
// without either is a [*KeyUnusedError], unless its type is declared [WithoutKey].
//
// A command past its deadline is stored as expired, and never runs, now or later, here or elsewhere. If it had run
// before, the handler is called all the same, as it then returns the first answer.
func Idempotent(store eventstore.OnceAppender, opts ...IdempotentOption) Middleware {
	mustHave(store != nil, "idempotent", "the store is nil: pass the one that the handlers' repositories use")
	i := idempotent{store: store}
	for _, opt := range opts {
		opt(&i)
	}
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) { return i.handle(ctx, c, next) }
	}
}

func (i *idempotent) handle(ctx context.Context, c *Command, next Handler) (Reply, error) {
	run := c.run
	if run == nil || run.route.withoutKey {
		return next(ctx, c)
	}
	if err := run.route.write(c); err != nil {
		return Reply{}, &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
	}
	options := []aggregate.KeyOption{aggregate.InScope(c.Scope), aggregate.ForRequest(requestOf(c))}
	if i.tell {
		options = append(options, aggregate.TellIfRunning())
	}
	run.keyed = true
	ctx = aggregate.ContextWithIdempotencyKey(ctx, c.Key, options...)
	run.late = false
	reply, err := next(ctx, c)
	if !run.late {
		return keptUnderKey(ctx, c, reply, err)
	}
	if err := i.expire(ctx, c, options); err != nil {
		return Reply{Settled: errors.Is(err, ErrExpired)}, err
	}
	if run.ending {
		return Reply{Settled: true}, nil
	}
	run.settled = true
	living, cancel := outlive(ctx, run.base)
	defer cancel()
	reply, err = next(living, c)
	reply, err = keptUnderKey(ctx, c, reply, err)
	reply.Settled = true
	return reply, err
}

// keptUnderKey refuses the success of a handler that a repeat would carry out again.
func keptUnderKey(ctx context.Context, c *Command, reply Reply, err error) (Reply, error) {
	if err == nil && !aggregate.KeyUsed(ctx) {
		return reply, &KeyUnusedError{Type: c.Type, ID: c.ID}
	}
	return reply, err
}

// expire ends the command, unless there is an outcome already; then it returns nil.
func (i *idempotent) expire(ctx context.Context, c *Command, options []aggregate.KeyOption) error {
	if ended(c.run.base) {
		return notBegun(c, c.run.base.Err())
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	outcome, err := aggregate.Expire(within, i.store, c.Key, options...)
	if err != nil {
		return err
	}
	if outcome.Kind == eventstore.OutcomeExpired {
		return &ExpiredError{Type: c.Type, ID: c.ID, Deadline: c.Deadline, At: outcome.At}
	}
	return nil
}

// requestOf is what is compared when a key is used again; a type has no zero byte.
func requestOf(c *Command) []byte {
	request := make([]byte, 0, len(c.Type)+1+len(c.Data))
	return append(append(append(request, c.Type...), 0), c.Data...)
}
