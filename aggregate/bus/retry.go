package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// Retry runs a command again, as often as r says, after a conflict or a busy database ([eventstore.IsRetryable]), and
// after an append without an answer ([eventstore.ErrUnconfirmed]) if [Idempotent] stands behind it: without a key the
// command might take effect twice, so that error comes back at once.
//
// Repositories try again themselves, which is quicker. Retry is for handlers that do not use one, and for storms that
// outlast a repository's patience; each of its runs has all of the repository's attempts.
func Retry(r aggregate.Retry) Middleware {
	r = r.WithDefaults()
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) {
			for attempt := 1; ; attempt++ {
				reply, err := next(ctx, c)
				if err == nil || reply.Refused || !again(c, err) || attempt > r.Retries {
					return reply, err
				}
				if waited := r.Wait(ctx, attempt); waited != nil {
					return reply, fmt.Errorf("bus: command %s: %w after %d runs, the last: %w", name(c.Type, c.ID), waited, attempt, err)
				}
			}
		}
	}
}

func again(c *Command, err error) bool {
	if errors.Is(err, eventstore.ErrUnconfirmed) {
		return c.run != nil && c.run.keyed
	}
	return eventstore.IsRetryable(err)
}
