package admission

import (
	"context"
	"time"
)

// wait returns the verdict about a waiter. It is the waiter's own goroutine that notices that its time is up.
func (g *Gate) wait(ctx context.Context, w *waiter) verdict {
	timer := time.NewTimer(g.patience(w))
	defer timer.Stop()
	for {
		select {
		case <-w.decided:
			return g.wanted(ctx, w.verdict)
		case <-ctx.Done():
			return g.leave(ctx, w)
		case <-timer.C:
			if left := g.expire(w); left > 0 {
				timer.Reset(left)
			}
		}
	}
}

// patience is how long a waiter may sleep before it has to look whether it waits in vain.
func (g *Gate) patience(w *waiter) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left(time.Now(), w)
}

func (g *Gate) left(now time.Time, w *waiter) time.Duration {
	left := w.until.Sub(now)
	if !w.deadline.IsZero() {
		// One nanosecond more: at the exact instant it could still be done.
		left = min(left, w.deadline.Sub(now)-g.meter.service+1)
	}
	return max(left, 1)
}

// expire sends a waiter away that waits in vain, which closes its channel, or returns when to look again: the estimate
// may have become shorter. 0 means that there is a verdict.
func (g *Gate) expire(w *waiter) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.turn == nil {
		return 0
	}
	now := time.Now()
	reason := g.vain(now, w)
	if reason == "" {
		return g.left(now, w)
	}
	g.evict(now, w, reason)
	return 0
}

// leave takes a waiter out whose context has ended, if it is still in the queue.
func (g *Gate) leave(ctx context.Context, w *waiter) verdict {
	g.mu.Lock()
	if w.turn == nil {
		g.mu.Unlock()
		return g.wanted(ctx, w.verdict)
	}
	defer g.mu.Unlock()
	g.remove(w)
	g.count.cancelled++
	v := g.decided(verdict{err: ctx.Err()})
	v.waited = time.Since(w.since)
	return v
}

// wanted gives a place back that was given to a waiter in the moment when its context ended.
func (g *Gate) wanted(ctx context.Context, v verdict) verdict {
	err := ctx.Err()
	if err == nil || v.pass == nil {
		return v
	}
	v.pass.end(false, false)
	v.pass, v.err = nil, err
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count.admitted--
	g.count.cancelled++
	return v
}
