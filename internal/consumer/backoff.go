package consumer

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// backoff doubles from firstPause to lastPause. The zero value is ready.
type backoff struct{ step time.Duration }

// next returns the next pause, between half and all of the step, so that processes do not come back together.
func (b *backoff) next() time.Duration {
	b.step = min(max(2*b.step, firstPause), lastPause)
	return jitter(b.step)
}

func (b *backoff) reset() { b.step = 0 }

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// pause returns false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
