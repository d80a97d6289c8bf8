package retry

import "time"

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Breaker holds a segment while what all its messages need is away. Closed, which the zero value is, it lets everything
// through. Open, it lets one attempt through after each pause, which finds out for the others. The pauses are random
// between the half and all of a length that doubles from 50 ms to 5 s.
//
// It is not safe for concurrent use: the worker that holds the segment calls it from one goroutine, also when attempts
// run in several.
type Breaker struct {
	// Random returns numbers in [0, 1). Default: [math/rand/v2.Float64].
	Random func() float64

	clock   steady
	open    bool
	probing bool
	since   time.Time
	step    time.Duration
	until   time.Duration
}

// Failed tells that an attempt found the environment away. It opens the breaker, or keeps it open for a longer pause,
// and returns how long nothing is to be tried. Attempts that began before the breaker opened, and fail during its pause,
// do not lengthen it.
func (b *Breaker) Failed(now time.Time) (wait time.Duration) {
	t := b.clock.at(now)
	if b.open && t < b.until { // no probe is under way then
		return b.until - t
	}
	if !b.open {
		b.open, b.since = true, now
	}
	b.probing = false
	b.step = min(max(2*b.step, firstPause), lastPause)
	wait = b.step/2 + below(b.step/2, b.Random)
	b.until = t + wait
	return wait
}

// Succeeded tells that an attempt found the environment there, which a message that was refused for its own sake says as
// well. It closes the breaker.
func (b *Breaker) Succeeded() { b.open, b.probing, b.step = false, false, 0 }

// Probe says whether an attempt may be made now. When the breaker is open, and the answer is true, the attempt is the
// probe: nothing else may be tried until Failed, Succeeded or Undecided is called.
func (b *Breaker) Probe(now time.Time) bool {
	if !b.open {
		return true
	}
	if b.probing || b.clock.at(now) < b.until {
		return false
	}
	b.probing = true
	return true
}

// Undecided tells that a probe was not made, or ended without a word about the environment. Another may be made.
func (b *Breaker) Undecided() { b.probing = false }

// Wait says how long it is until Probe may be asked again: 0 when it would be true now. While a probe is under way it is
// 50 ms at least, but the probe's end is what there is to wait for.
func (b *Breaker) Wait(now time.Time) time.Duration {
	if !b.open {
		return 0
	}
	wait := max(b.until-b.clock.at(now), 0)
	if b.probing {
		wait = max(wait, firstPause)
	}
	return wait
}

// Open says whether the breaker holds the segment, and since when.
func (b *Breaker) Open() (since time.Time, open bool) {
	if !b.open {
		return time.Time{}, false
	}
	return b.since, true
}
