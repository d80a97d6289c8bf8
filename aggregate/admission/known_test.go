package admission_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
)

var seeds = []uint64{1, 2, 3, 4, 5}

const (
	offered = 120.0 // a second, where 100 can be served
	minute  = 60 * time.Second
)

// What happens without a gate: every request waits for its turn, and most are served when nobody waits any more.
func TestKnownUnboundedQueue(t *testing.T) {
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		arrived, good := 0, 0
		var now, free float64
		for {
			now += r.ExpFloat64() / offered
			if now >= minute.Seconds() {
				break
			}
			free = max(now, free) + service.Seconds()
			arrived++
			if free-now <= giveUp.Seconds() {
				good++
			}
		}
		in := float64(good) / float64(arrived)
		t.Logf("seed %d: %.1f %% in time", seed, 100*in)
		if in < 0.04 || in > 0.12 {
			t.Errorf("seed %d: %.1f %% in time without a gate; want about 7 %%", seed, 100*in)
		}
	}
}

func TestKnownTwentyWaiting(t *testing.T) {
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(newGate(t, one(admission.Config{})))
			w.poisson(rand.New(rand.NewPCG(seed, 0)), offered, minute, func() admission.Request { return normal("") })
			answers := w.finished(t)
			times := accepted(answers, nil)
			in, p99 := share(answers, nil), quantile(times, 0.99)
			t.Logf("seed %d: %d requests, %.1f %% in time, median %v, p99 %v", seed, len(answers), 100*in, quantile(times, 0.5), p99)
			if in < 0.80 || p99 > 250*time.Millisecond {
				t.Errorf("seed %d: %.1f %% in time, p99 %v; want 80 %% and 250ms", seed, 100*in, p99)
			}
		})
	}
}

// As many are served by a long queue and a bounded wait, but all of them late.
func TestKnownWaitOfOneSecond(t *testing.T) {
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(newGate(t, one(admission.Config{Queue: 10000, MaxWaitNormal: giveUp})))
			w.poisson(rand.New(rand.NewPCG(seed, 0)), offered, minute, func() admission.Request { return normal("") })
			answers := w.finished(t)
			times := accepted(answers, nil)
			in, median := share(answers, nil), quantile(times, 0.5)
			t.Logf("seed %d: %.1f %% in time, median %v", seed, 100*in, median)
			if in < 0.80 || median < 900*time.Millisecond || median > giveUp {
				t.Errorf("seed %d: %.1f %% in time, median %v; want over 80 %% and nearly 1s", seed, 100*in, median)
			}
		})
	}
}

func TestKnownClasses(t *testing.T) {
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(newGate(t, one(admission.Config{})))
			r := rand.New(rand.NewPCG(seed, 0))
			w.poisson(r, offered, minute, func() admission.Request {
				switch p := r.Float64(); {
				case p < 0.2:
					return of(admission.Critical)
				case p < 0.8:
					return of(admission.Normal)
				}
				return of(admission.Bulk)
			})
			answers := w.finished(t)
			times := accepted(answers, nil)
			class := func(c admission.Class) float64 {
				return share(answers, func(a answer) bool { return a.class == c })
			}
			critical, usual, bulk := class(admission.Critical), class(admission.Normal), class(admission.Bulk)
			t.Logf("seed %d: in time: all %.1f %%, critical %.2f %%, normal %.1f %%, bulk %.1f %%; p99 %v",
				seed, 100*share(answers, nil), 100*critical, 100*usual, 100*bulk, quantile(times, 0.99))
			if critical < 0.99 || usual < bulk || share(answers, nil) < 0.80 {
				t.Errorf("seed %d: in time: critical %.2f %%, normal %.1f %%, bulk %.1f %%", seed, 100*critical, 100*usual, 100*bulk)
			}
		})
	}
}
