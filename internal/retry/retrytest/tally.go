package retrytest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

// Tally counts what became of the messages of a load. The zero value is ready. It is safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	ends   map[int]end
	faults []error
}

type end struct {
	attempts  int
	delivered bool
	extra     time.Duration
}

// Delivered tells that a message succeeded at the attempt with this number, and how much later that was than it would
// have been at the first attempt.
func (t *Tally) Delivered(message, attempts int, extra time.Duration) {
	t.add(message, end{attempts, true, extra})
}

// Parked tells that a message was given up after so many attempts, and how much later than its first.
func (t *Tally) Parked(message, attempts int, extra time.Duration) {
	t.add(message, end{attempts, false, extra})
}

func (t *Tally) add(message int, e end) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.ends[message]; ok {
		t.faults = append(t.faults, fmt.Errorf("message %d ended twice: %+v, then %+v", message, old, e))
		return
	}
	if t.ends == nil {
		t.ends = make(map[int]end)
	}
	t.ends[message] = e
}

// Messages is how many have ended.
func (t *Tally) Messages() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ends)
}

// Succeeded is the share of all messages that were delivered at the attempt with this number.
func (t *Tally) Succeeded(attempt int) float64 {
	return t.share(func(e end) bool { return e.delivered && e.attempts == attempt })
}

// ParkedShare is the share of all messages that were given up.
func (t *Tally) ParkedShare() float64 { return t.share(func(e end) bool { return !e.delivered }) }

// ParkedMessages are those that were given up, in order.
func (t *Tally) ParkedMessages() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parked []int
	for message, e := range t.ends {
		if !e.delivered {
			parked = append(parked, message)
		}
	}
	slices.Sort(parked)
	return parked
}

// PerMessage is the number of attempts divided by the number of messages.
func (t *Tally) PerMessage() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := 0
	for _, e := range t.ends {
		sum += e.attempts
	}
	return float64(sum) / float64(max(len(t.ends), 1))
}

// Delay is the extra delay that the share q of the delivered messages did not exceed: 0.5 is the median, 1 the longest.
func (t *Tally) Delay(q float64) time.Duration {
	delays := t.delays(func(e end) bool { return e.delivered })
	if len(delays) == 0 {
		return 0
	}
	slices.Sort(delays)
	i := int(math.Ceil(q*float64(len(delays)))) - 1
	return delays[min(max(i, 0), len(delays)-1)]
}

// Longest is the longest extra delay of any message, delivered or parked.
func (t *Tally) Longest() time.Duration {
	return slices.Max(append(t.delays(func(end) bool { return true }), 0))
}

// Check compares with what the load and the policy make certain: the share of each attempt, of what is parked, the
// attempts per message, no message above [retry.Policy.Worst], and pauses that are on average half their bounds. Each
// average may be off by six standard deviations of a fair run of this size, counts by three messages more, and each
// message may be late by slack. All faults are joined. classified says that poison is given up at its first attempt.
func (t *Tally) Check(policy retry.Policy, classified bool, slack time.Duration) error {
	policy = policy.WithDefaults()
	n := float64(t.Messages())
	if n == 0 {
		return errors.New("retrytest: no message has ended")
	}
	t.mu.Lock()
	faults := slices.Clone(t.faults)
	t.mu.Unlock()
	near := func(what string, got, want, tolerance float64) {
		if !(math.Abs(got-want) <= tolerance) {
			faults = append(faults, fmt.Errorf("%s: %.4f, want %.4f ± %.4f", what, got, want, tolerance))
		}
	}
	const healthy = 1 - 1.0/PoisonOneIn
	share := func(what string, got, p, certain float64) {
		near(what, got, p+certain, (6*math.Sqrt(n*p*(1-p))+3)/n)
	}
	left, mean, square := 1.0, 0.0, 0.0 // left: the share of the healthy that come to this attempt
	for k := 1; k <= policy.Attempts && left > 1e-12; k++ {
		share(fmt.Sprintf("succeeded at attempt %d", k), t.Succeeded(k), healthy*left*(1-UnluckyShare), 0)
		mean += left
		square += left * float64(2*k-1)
		left *= UnluckyShare
	}
	share("parked", t.ParkedShare(), healthy*left, 1-healthy)
	poison, early := float64(policy.Attempts), 0.0
	if classified {
		poison, early = 1, 1-healthy
	}
	first := func(e end) bool { return !e.delivered && e.attempts == 1 && policy.Attempts > 1 }
	share("parked at the first attempt", t.share(first), 0, early)
	if other := len(t.delays(func(e end) bool { return !e.delivered && !first(e) && e.attempts != policy.Attempts })); other > 0 {
		faults = append(faults, fmt.Errorf("%d messages were parked after another number of attempts than %d", other, policy.Attempts))
	}
	near("attempts per message", t.PerMessage(), healthy*mean+(1-healthy)*poison,
		(6*math.Sqrt(n*healthy*(square-mean*mean))+3*float64(policy.Attempts))/n)

	if longest := t.Longest(); longest > policy.Worst()+slack {
		faults = append(faults, fmt.Errorf("longest extra delay: %v, want at most %v", longest, policy.Worst()+slack))
	}
	if before := t.delays(func(e end) bool { return e.extra < 0 }); len(before) > 0 {
		faults = append(faults, fmt.Errorf("%d messages ended before they began", len(before)))
	}
	half := 0.0 // of the bounds of the pauses before attempt k, and the sum of their squares
	squares := 0.0
	for k := 1; k <= policy.Attempts && k <= 63; k++ {
		if k > 1 {
			bound := (retry.Policy{Attempts: k, Base: policy.Base, Cap: policy.Cap}.Worst() -
				retry.Policy{Attempts: k - 1, Base: policy.Base, Cap: policy.Cap}.Worst()).Seconds()
			half, squares = half+bound/2, squares+bound*bound
		}
		delays := t.delays(func(e end) bool { return e.attempts == k && (e.delivered || k > 1) })
		if len(delays) == 0 {
			continue
		}
		var sum float64
		for _, d := range delays {
			sum += d.Seconds()
		}
		tolerance := 6*math.Sqrt(squares/12/float64(len(delays))) + slack.Seconds()/2
		near(fmt.Sprintf("mean extra delay in seconds of what ended at attempt %d", k), sum/float64(len(delays)), half+slack.Seconds()/2, tolerance)
	}
	return errors.Join(faults...)
}

func (t *Tally) delays(of func(end) bool) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var delays []time.Duration
	for _, e := range t.ends {
		if of(e) {
			delays = append(delays, e.extra)
		}
	}
	return delays
}

func (t *Tally) share(of func(end) bool) float64 {
	return float64(len(t.delays(of))) / float64(max(t.Messages(), 1))
}
