package retry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	defaultAttempts = 5
	defaultBase     = time.Second
	defaultCap      = 60 * time.Second
)

// Policy says how often a message is tried, and how long the pauses are. The zero value works. It is a value: use it
// from many goroutines.
type Policy struct {
	// Attempts is how often one message is tried before it is parked, the first time included. Default 5.
	Attempts int
	// Base is the upper bound of the first pause; each pause has twice the bound of the one before. Default 1 s.
	Base time.Duration
	// Cap is the upper bound of every pause. Default 60 s.
	Cap time.Duration
}

// WithDefaults puts the defaults where nothing is set.
func (p Policy) WithDefaults() Policy {
	p.Attempts = cmp.Or(p.Attempts, defaultAttempts)
	p.Base = cmp.Or(p.Base, defaultBase)
	p.Cap = cmp.Or(p.Cap, defaultCap)
	return p
}

// Validate joins all faults. The other methods of a policy that is refused return pauses that are never negative, and
// promise nothing else.
func (p Policy) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if p.Attempts < 0 {
		fault("Policy.Attempts: %d: must be at least 1, or 0 for %d", p.Attempts, defaultAttempts)
	}
	if p.Base < 0 {
		fault("Policy.Base: %v: must be above 0, or 0 for %v", p.Base, defaultBase)
	}
	if p.Cap < 0 {
		fault("Policy.Cap: %v: must be above 0, or 0 for %v", p.Cap, defaultCap)
	}
	if full := p.WithDefaults(); full.Base > 0 && full.Cap > 0 && full.Cap < full.Base {
		fault("Policy.Cap: %v is below Policy.Base, %v: set Cap to at least Base, or Base to at most Cap", full.Cap, full.Base)
	}
	return errors.Join(faults...)
}

// Spent says whether a message that has failed so often is to be parked.
func (p Policy) Spent(failed int) bool { return failed >= p.WithDefaults().Attempts }

// Delay is the pause after the given number of failed attempts: uniform in [0, min(Cap, Base·2^(failed-1))), so that
// what failed together does not come back together. 0 for no failed attempt. random returns numbers in [0, 1), e.g.
// [math/rand/v2.Float64], which nil stands for.
func (p Policy) Delay(failed int, random func() float64) time.Duration {
	return below(p.WithDefaults().bound(failed), random)
}

// Worst is the sum of the greatest pauses between the first attempt and the last: 15 s by default. A sum that is no
// [time.Duration] is the greatest one.
func (p Policy) Worst() time.Duration {
	p = p.WithDefaults()
	var sum time.Duration
	for failed := 1; failed < p.Attempts; failed++ {
		bound := p.bound(failed)
		pauses := time.Duration(1)
		if bound == p.Cap || bound <= 0 { // so are all that follow
			pauses = time.Duration(p.Attempts - failed)
		}
		if bound > 0 && pauses > (math.MaxInt64-sum)/bound {
			return math.MaxInt64
		}
		sum += pauses * bound
		if pauses > 1 {
			break
		}
	}
	return sum
}

// bound is the upper bound of the pause. p has its defaults.
func (p Policy) bound(failed int) time.Duration {
	if failed < 1 || p.Base <= 0 || p.Cap <= 0 {
		return 0
	}
	bound := min(p.Base, p.Cap)
	for range failed - 1 { // at most 63 times
		if bound > p.Cap/2 {
			return p.Cap
		}
		bound *= 2
	}
	return bound
}

// below is a random pause in [0, bound).
func below(bound time.Duration, random func() float64) time.Duration {
	if bound <= 0 {
		return 0
	}
	if random == nil {
		random = rand.Float64
	}
	r := random()
	if !(r > 0) { // also what is no number
		return 0
	}
	if r >= 1 { // such a product may be no duration
		return bound - 1
	}
	return time.Duration(r * float64(bound))
}
