package retry_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

func TestBreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	breaker := retry.Breaker{Random: func() float64 { return 0 }}
	if _, open := breaker.Open(); open || !breaker.Probe(start) || !breaker.Probe(start) || breaker.Wait(start) != 0 {
		t.Fatal("closed, it lets not everything through")
	}
	wait := breaker.Failed(start)
	if since, open := breaker.Open(); !open || !since.Equal(start) {
		t.Errorf("open %v since %v", open, since)
	}
	if wait != 25*time.Millisecond || breaker.Wait(start) != wait {
		t.Errorf("the first pause is %v, then %v", wait, breaker.Wait(start))
	}
	if breaker.Probe(start) || breaker.Probe(start.Add(wait-1)) {
		t.Error("a probe before the pause is over")
	}
	now := start.Add(wait)
	if breaker.Wait(now) != 0 || !breaker.Probe(now) {
		t.Error("no probe when the pause is over")
	}
	for _, later := range []time.Duration{0, time.Second, time.Hour} {
		if breaker.Probe(now.Add(later)) || breaker.Wait(now.Add(later)) <= 0 {
			t.Errorf("%v later: a second probe beside the first", later)
		}
	}
	now = now.Add(time.Hour)
	wait = breaker.Failed(now)
	if since, open := breaker.Open(); !open || !since.Equal(start) || wait != 50*time.Millisecond {
		t.Errorf("after a probe in vain: open %v since %v, %v", open, since, wait)
	}
	now = now.Add(wait)
	if !breaker.Probe(now) {
		t.Fatal("no second probe")
	}
	breaker.Undecided()
	if !breaker.Probe(now) {
		t.Error("no other probe after one that found nothing out")
	}
	breaker.Succeeded()
	if _, open := breaker.Open(); open || !breaker.Probe(now) || !breaker.Probe(now) {
		t.Error("not closed after success")
	}
	if wait := breaker.Failed(now); wait != 25*time.Millisecond {
		t.Errorf("the first pause of the next outage is %v", wait)
	}
}

// Pauses are between the half and all of 50 ms, 100 ms … 5 s. 64 of each: none is equal, and their mean is three quarters,
// give or take six standard deviations (0.018).
func TestBreakerPauses(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 3)).Float64
	var sums [12]float64
	for range 64 {
		breaker := retry.Breaker{Random: random}
		now, step := start, 50*time.Millisecond
		for i := range sums {
			wait := breaker.Failed(now)
			if wait < step/2 || wait > step {
				t.Fatalf("pause %d is %v, want %v to %v", i, wait, step/2, step)
			}
			sums[i] += float64(wait) / float64(step)
			step = min(2*step, 5*time.Second)
			if now = now.Add(wait); !breaker.Probe(now) {
				t.Fatalf("no probe after pause %d", i)
			}
		}
	}
	for i, sum := range sums {
		if mean := sum / 64; mean < 0.75-0.11 || mean > 0.75+0.11 {
			t.Errorf("pause %d is on average %.3f of its length", i, mean)
		}
	}
	var none retry.Breaker
	if wait := none.Failed(start); wait < 25*time.Millisecond || wait > 50*time.Millisecond {
		t.Errorf("without a source: %v", wait)
	}
}

// Ten attempts were under way when the environment went away. They are one outage, not ten steps.
func TestBreakerLateNews(t *testing.T) {
	t.Parallel()
	breaker := retry.Breaker{Random: func() float64 { return 0.5 }}
	wait := breaker.Failed(start)
	for i := range 9 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		if got := breaker.Failed(at); got != wait-time.Duration(i)*time.Millisecond {
			t.Errorf("late news %d: %v", i, got)
		}
	}
	// One that comes after the pause is as good as a probe.
	if got := breaker.Failed(start.Add(wait)); got != 2*wait {
		t.Errorf("after the pause: %v, want %v", got, 2*wait)
	}
}

func TestBreakerClocksThatJump(t *testing.T) {
	t.Parallel()
	breaker := retry.Breaker{Random: func() float64 { return 0 }}
	wait := breaker.Failed(start)
	back := start.Add(-time.Hour)
	if breaker.Probe(back) || breaker.Wait(back) != wait {
		t.Errorf("an hour back: %v to wait, want %v", breaker.Wait(back), wait)
	}
	if !breaker.Probe(back.Add(wait)) {
		t.Error("a clock that was set back holds the segment")
	}
}
