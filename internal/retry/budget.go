package retry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	defaultShare = 0.2
	defaultFloor = 10

	window  = 10 * time.Second
	buckets = 40
	span    = window / buckets
	// full keeps sums of buckets far from overflow.
	full = int64(1) << 40
)

// BudgetConfig says how many retries a [Budget] lets through. The zero value works.
type BudgetConfig struct {
	// Share is how many retries there may be for each first attempt over 10 s: a handler whose every attempt fails costs
	// at most this much more than one that works. 1 and above are allowed. Default 0.2.
	Share float64
	// Floor is how many retries a second there may always be, counted over 10 s. It lets a consumer retry to which
	// nothing new comes. Default 10.
	Floor int
}

// WithDefaults puts the defaults where nothing is set.
func (c BudgetConfig) WithDefaults() BudgetConfig {
	c.Share = cmp.Or(c.Share, defaultShare)
	c.Floor = cmp.Or(c.Floor, defaultFloor)
	return c
}

// Validate joins all faults.
func (c BudgetConfig) Validate() error {
	var faults []error
	if !(c.Share >= 0) || math.IsInf(c.Share, 0) {
		faults = append(faults, fmt.Errorf("BudgetConfig.Share: %v: must be a number above 0, or 0 for %v", c.Share, defaultShare))
	}
	if c.Floor < 0 {
		faults = append(faults, fmt.Errorf("BudgetConfig.Floor: %d: must be at least 1, or 0 for %d", c.Floor, defaultFloor))
	}
	return errors.Join(faults...)
}

// Budget keeps the retries of one handler a small part of its work, so that what fails cannot crowd out what does not.
// The zero value has the defaults of [BudgetConfig]. It is safe for concurrent use: all workers of a handler share it.
type Budget struct {
	mu     sync.Mutex
	config BudgetConfig
	clock  steady
	// Both rings end with the bucket of the present, newest. Retries are counted over one bucket more, so over 10 s at
	// least, and first attempts over 10 s at most.
	newest  int64
	first   [buckets + 1]int64
	retries [buckets + 1]int64
	next    time.Duration // when the next retry that does not fit is to ask again
}

// NewBudget returns the faults of the configuration, if it has any.
func NewBudget(config BudgetConfig) (*Budget, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Budget{config: config}, nil
}

// First tells of n first attempts that are being made. Attempts that are made again because the environment was away
// are first attempts.
func (b *Budget) First(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	if i := b.newest % (buckets + 1); n > 0 {
		b.first[i] = min(b.first[i]+min(int64(n), full), full)
	}
}

// Retry asks for one retry. When it is true the retry is counted, and has to be made now. When it is false nothing is
// counted, and the retry is put off: ask again after wait, which is above 0 and at most 10 s. The waits of many are
// spread at the pace at which the budget lets retries through.
func (b *Budget) Retry(now time.Time) (ok bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.advance(now)
	var first, retries int64
	for i := range int64(buckets + 1) {
		retries += b.retries[i]
		if i != (b.newest+1)%(buckets+1) { // the oldest
			first += b.first[i]
		}
	}
	if retries < b.allowed(first) {
		b.retries[b.newest%(buckets+1)]++
		return true, 0
	}
	pace := window / time.Duration(b.allowed(first))
	at := max(t+b.fits(t, first, retries), b.next)
	if at-t > window {
		return false, window
	}
	b.next = at + max(pace, 1)
	return false, at - t
}

// fits says after what time there is room for one more, if nothing happens in between.
func (b *Budget) fits(t time.Duration, first, retries int64) time.Duration {
	for k := int64(1); ; k++ { // ends with the last bucket, when no retry is counted
		retries -= b.retries[(b.newest+k)%(buckets+1)]
		if k < buckets+1 {
			first -= b.first[(b.newest+k+1)%(buckets+1)]
		}
		if retries < b.allowed(first) || k == buckets+1 {
			return time.Duration(b.newest+k)*span - t
		}
	}
}

// allowed is how many retries there may be for so many first attempts.
func (b *Budget) allowed(first int64) int64 {
	c := b.config.WithDefaults()
	floor := min(int64(c.Floor), full) * int64(window/time.Second)
	return max(floor, int64(min(c.Share*float64(first), float64(full*buckets))))
}

// advance empties the buckets that time has passed.
func (b *Budget) advance(now time.Time) time.Duration {
	t := b.clock.at(now)
	bucket := int64(t / span)
	for range min(bucket-b.newest, buckets+1) {
		b.newest++
		b.first[b.newest%(buckets+1)], b.retries[b.newest%(buckets+1)] = 0, 0
	}
	b.newest = bucket
	return t
}
