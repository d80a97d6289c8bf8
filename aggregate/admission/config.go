package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	defaultQueue   = 20
	defaultMin     = 4
	defaultMax     = 200
	defaultInitial = 20

	defaultCriticalWait = 2 * time.Second
	defaultNormalWait   = time.Second
	defaultBulkWait     = 500 * time.Millisecond

	// mostQueue and mostConcurrency keep a slip of the keyboard from being a bound that binds nothing.
	mostQueue       = 1 << 20
	mostConcurrency = 1 << 16
)

// Config of a [Gate]. The zero value works.
type Config struct {
	// Queue is how many requests of all classes wait at most. It is what decides how long an accepted request takes at
	// worst: Queue times the time between two completions. Default 20.
	Queue int
	// MaxWaitCritical, MaxWaitNormal and MaxWaitBulk are how long a request of the class waits at most. Defaults 2 s,
	// 1 s, 500 ms.
	MaxWaitCritical, MaxWaitNormal, MaxWaitBulk time.Duration
	// MinConcurrency and MaxConcurrency bound how many requests run at once; InitialConcurrency is the limit to begin
	// with. In between, the limit follows the measured time that requests take. Equal bounds fix it, and nothing is
	// measured for it. MaxConcurrency above the connections of the pool only moves the queue there. Defaults 4, 200,
	// 20, each as far as the others allow.
	MinConcurrency, MaxConcurrency, InitialConcurrency int
	// Measures says whether the duration of a request that ended with err tells how long requests take. Default: all
	// but those whose error is [context.Canceled] (the client left), [eventstore.ErrInvalid] (nothing was done) or
	// [ErrOverloaded] (a gate further in).
	Measures func(err error) bool
	// Observer is told of each decision, outside of the lock of the gate. Default: none.
	Observer eventstore.Observer
	// Rand returns numbers in [0, 1) for the jitter; it is called from many goroutines at once. Default
	// [rand.Float64].
	Rand func() float64
}

// validate joins all faults.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Queue < 0 || c.Queue > mostQueue {
		fault("Config.Queue: %d: must be between 1 and %d, or 0 for %d", c.Queue, mostQueue, defaultQueue)
	}
	for _, w := range []struct {
		name       string
		value, def time.Duration
	}{
		{"Critical", c.MaxWaitCritical, defaultCriticalWait},
		{"Normal", c.MaxWaitNormal, defaultNormalWait},
		{"Bulk", c.MaxWaitBulk, defaultBulkWait},
	} {
		if w.value < 0 {
			fault("Config.MaxWait%s: %v: must be positive, or 0 for %v", w.name, w.value, w.def)
		}
	}
	bad := false
	for _, l := range []struct {
		name       string
		value, def int
	}{
		{"Min", c.MinConcurrency, defaultMin}, {"Max", c.MaxConcurrency, defaultMax}, {"Initial", c.InitialConcurrency, defaultInitial},
	} {
		if l.value < 0 || l.value > mostConcurrency {
			bad = true
			fault("Config.%sConcurrency: %d: must be between 1 and %d, or 0 for %d", l.name, l.value, mostConcurrency, l.def)
		}
	}
	if d := c.withDefaults(); !bad && d.MinConcurrency > d.MaxConcurrency {
		fault("Config.MinConcurrency: %d: must not be above MaxConcurrency, which is %d", d.MinConcurrency, d.MaxConcurrency)
	} else if !bad && (d.InitialConcurrency < d.MinConcurrency || d.InitialConcurrency > d.MaxConcurrency) {
		fault("Config.InitialConcurrency: %d: must be between MinConcurrency (%d) and MaxConcurrency (%d)",
			d.InitialConcurrency, d.MinConcurrency, d.MaxConcurrency)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(c.Queue, defaultQueue)
	c.MaxWaitCritical = cmp.Or(c.MaxWaitCritical, defaultCriticalWait)
	c.MaxWaitNormal = cmp.Or(c.MaxWaitNormal, defaultNormalWait)
	c.MaxWaitBulk = cmp.Or(c.MaxWaitBulk, defaultBulkWait)
	c.MaxConcurrency = cmp.Or(c.MaxConcurrency, max(defaultMax, c.MinConcurrency, c.InitialConcurrency))
	c.MinConcurrency = cmp.Or(c.MinConcurrency, min(defaultMin, c.MaxConcurrency))
	if c.InitialConcurrency == 0 {
		c.InitialConcurrency = max(c.MinConcurrency, min(defaultInitial, c.MaxConcurrency))
	}
	if c.Measures == nil {
		c.Measures = measures
	}
	if c.Observer == nil {
		c.Observer = eventstore.NopObserver{}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

func (c Config) maxWait(class Class) time.Duration {
	switch class {
	case Critical:
		return c.MaxWaitCritical
	case Bulk:
		return c.MaxWaitBulk
	}
	return c.MaxWaitNormal
}

// measures: a deadline that was missed does tell something, namely that it takes at least as long.
func measures(err error) bool {
	return !errors.Is(err, context.Canceled) && !errors.Is(err, eventstore.ErrInvalid) && !errors.Is(err, ErrOverloaded)
}
