package aggregate

import (
	"context"
	"errors"

	"github.com/daybook-go/daybook/eventstore"
)

// Exclusive lets a command decide while nobody else, in any process, can append to its streams. It then meets no
// conflict, at the price of a connection and of everybody else's waiting for as long as it loads and decides. It is for
// streams that are written all the time, and for decisions that are costly to repeat; the last try of every command
// is made in this way.
//
// The store must be an [eventstore.StreamLocker]; with another one, such as a store that is bound to a caller's
// transaction, the option has no effect. Handle locks its stream from the first try on; Transact, which does not know its
// streams before, those that the try before has touched. A command on the same streams from within the decision would
// wait for itself until its context ends.
func Exclusive() HandleOption { return exclusiveOption{} }

type exclusiveOption struct{}

func (exclusiveOption) applyHandle(c *handleConfig) { c.exclusive = true }

// locker returns what locks the streams of this try, or nil if it is to go without.
func (c *command) locker(last bool) eventstore.StreamLocker {
	if len(c.streams) == 0 || !last && !c.config.exclusive {
		return nil
	}
	locker, _ := c.store.(eventstore.StreamLocker)
	return locker
}

// exclusively runs and stores the work while its streams are locked.
func (c *command) exclusively(ctx context.Context, locker eventstore.StreamLocker) (Receipt, error) {
	var claim *eventstore.Claim
	if c.key != nil {
		claim = &c.key.claim
	}
	var decided, sent bool
	var refusal error
	var done stored
	err := locker.WithStreamsLocked(ctx, claim, c.streams, func(ctx context.Context, locked eventstore.LockedStreams) (err error) {
		decided, sent = false, false
		if refusal = c.decide(ctx); refusal != nil {
			return refusal // it comes back as it is, and is answered outside
		}
		decided = true
		if !c.hasToSend() {
			return nil
		}
		sent = true
		done, err = c.send(ctx, locked)
		return err
	})
	switch {
	case refusal != nil && !decided:
		return c.refuse(ctx, refusal)
	case decided && !sent: // nothing that a failure of the lock could undo
		return c.committed(ctx, stored{})
	case sent && errors.Is(err, eventstore.ErrUnconfirmed):
		// The lock is gone, the events are the same: they are found, or stored now, or were overtaken.
		done, err = sendAgain(ctx, c.retry, err, func() (stored, error) { return c.send(ctx, c.plainly()) })
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	return c.committed(ctx, done)
}
