//go:build adaptive

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
	// A moment with little to do does not pull the limit down.
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
		Build()}
}

func (a *adaptive) take() (permit, bool) {
	p, ok := a.inner.TryAcquirePermit()
	return p, ok
}

func (a *adaptive) limit() int { return a.inner.Limit() }
