package aggregate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Retry says how often a command is tried again after a conflict or a busy database, and how long it waits in between.
// The zero value is the default.
//
// The last try is made as with [Exclusive] when the store can lock streams: a command that has lost against others all
// the time decides while none of them can write, and so gets through.
type Retry struct {
	// Retries is the greatest number of tries after the first. An append behind events that leave the decision right
	// (see [Unaffected]) is a try like any other, except that the first such needs no wait. A negative number means none.
	// Default 3.
	Retries int
	// Base is the longest wait before the first retry; it doubles with each further one. The wait itself is random
	// between nothing and that, so that commands which met once do not meet again. Default 10 ms.
	Base time.Duration
	// Cap is the longest wait of all. Default 500 ms.
	Cap time.Duration
	// Sleep waits for d or until ctx ends, and returns the error of ctx. It is for tests. Default: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
}

// WithDefaults is r with the default for what is not set.
func (r Retry) WithDefaults() Retry {
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

// Wait waits as long as r says before a retry, counted from 1, or until ctx ends, and returns the error of ctx then.
func (r Retry) Wait(ctx context.Context, retry int) error {
	r = r.WithDefaults()
	longest := r.Cap
	if shift := retry - 1; shift < 30 && r.Base<<shift < r.Cap && r.Base<<shift > 0 {
		longest = r.Base << shift
	}
	return r.Sleep(ctx, rand.N(longest+1))
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

// maxResend is how often an append without an answer is sent again.
const maxResend = 5

// certain sends and does not rest until it knows the outcome: after [eventstore.ErrUnconfirmed] it sends again. What is
// sent must be the same each time, under the same event ids and the same call. The store then either finds it (a repeat)
// or stores it, or there is a conflict, which proves that it was not stored.
func certain[T any](ctx context.Context, retry Retry, send func() (T, error)) (T, error) {
	result, err := send()
	if !errors.Is(err, eventstore.ErrUnconfirmed) {
		return result, err
	}
	return sendAgain(ctx, retry, err, send)
}

// sendAgain is what certain does once an answer was lost.
func sendAgain[T any](ctx context.Context, retry Retry, unconfirmed error, send func() (T, error)) (T, error) {
	var result T
	var err error
	for i := 1; i <= maxResend; i++ {
		if err = retry.Wait(ctx, i); err != nil {
			break
		}
		result, err = send()
		if err == nil || errors.Is(err, eventstore.ErrConflict) || errors.Is(err, eventstore.ErrStreamClosed) || errors.Is(err, eventstore.ErrReusedKey) {
			return result, err
		}
	}
	if eventstore.IsRetryable(err) || errors.Is(err, eventstore.ErrUnconfirmed) {
		// What made the last attempt fail must not look as if the whole command could be run again.
		return result, fmt.Errorf("%w (sent again: %v)", unconfirmed, err)
	}
	return result, fmt.Errorf("%w (sent again: %w)", unconfirmed, err)
}

func newEventID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return id, fmt.Errorf("make event id: %w", err)
	}
	return id, nil
}
