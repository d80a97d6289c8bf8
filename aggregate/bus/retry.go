package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

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
	r = retryDefaults(r)
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) {
			for attempt := 1; ; attempt++ {
				reply, err := next(ctx, c)
				if err == nil || reply.Refused || !again(c, err) || attempt > r.Retries {
					return reply, err
				}
				if waited := r.Sleep(ctx, pause(r, attempt)); waited != nil {
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

func retryDefaults(r aggregate.Retry) aggregate.Retry {
	if r.Retries == 0 {
		r.Retries = 3
	}
	if r.Base <= 0 {
		r.Base = 10 * time.Millisecond
	}
	if r.Cap <= 0 {
		r.Cap = 500 * time.Millisecond
	}
	if r.Sleep == nil {
		r.Sleep = sleep
	}
	return r
}

// pause is how long to wait before the given retry, counted from 1: random, so that commands which met once do not meet
// again.
func pause(r aggregate.Retry, retry int) time.Duration {
	longest := r.Cap
	if shift := retry - 1; shift < 30 && r.Base<<shift < r.Cap && r.Base<<shift > 0 {
		longest = r.Base << shift
	}
	return rand.N(longest + 1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
