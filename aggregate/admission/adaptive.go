package admission

import (
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

const (
	// The limit is looked at again after this long, if there were enough measurements.
	windowMin = 250 * time.Millisecond
	windowMax = 5 * time.Second
	windowLen = 25
	// The limit does not run away from what there is to do: it is at most so many times the number that ran at once, the
	// highest of the last seconds.
	headroom   = 5
	peakWindow = 10 * time.Second
)

// adaptive is a limit that follows the measured durations. It is asked only whether there is room, never to wait: the
// gate has the queue. So it has no goroutine and no timer.
type adaptive struct {
	inner adaptivelimiter.AdaptiveLimiter[any]
}

func newAdaptive(c Config) limiter {
	return &adaptive{adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(c.MinConcurrency), uint(c.MaxConcurrency), uint(c.InitialConcurrency)).
		WithRecentWindow(windowMin, windowMax, windowLen).
		WithMaxLimitStabilizationWindow(peakWindow).
		// Not below where it began, though: otherwise a quiet hour would have the next burst sent away.
		WithMaxLimitFunc(func(inflight int) float64 { return float64(max(c.InitialConcurrency, headroom*inflight)) }).
		Build()}
}

func (a *adaptive) take() (permit, bool) {
	p, ok := a.inner.TryAcquirePermit()
	return p, ok
}

func (a *adaptive) limit() int { return a.inner.Limit() }
