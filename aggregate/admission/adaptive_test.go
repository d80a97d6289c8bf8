package admission_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/internal/testscale"
)

// backend takes longer the more it does at once: first side by side, then at each other's cost.
type backend struct {
	running   atomic.Int64
	done      atomic.Int64
	crosstalk atomic.Int64 // in millionths per pair
}

func (b *backend) work(context.Context) error {
	n := float64(b.running.Add(1))
	defer b.running.Add(-1)
	slower := 1 + 0.02*(n-1) + float64(b.crosstalk.Load())/1e6*n*(n-1)
	elapse(time.Duration(float64(service) * slower))
	b.done.Add(1)
	return nil
}

// phase is a stretch of a run under overload.
type phase struct {
	crosstalk int64
	during    time.Duration
	rate      float64 // completions a second in its second half
	limit     float64 // its average there
}

func pressed(t *testing.T, cfg admission.Config, phases []phase) []phase {
	out := make([]phase, len(phases))
	synctest.Test(t, func(t *testing.T) {
		w, b, r := newWorld(newGate(t, cfg)), &backend{}, rand.New(rand.NewPCG(7, 0))
		for i, p := range phases {
			b.crosstalk.Store(p.crosstalk)
			begin, half, done := time.Now(), false, int64(0)
			looks, sum := 0, 0
			for time.Since(begin) < p.during {
				elapse(time.Duration(r.ExpFloat64() / 1500 * float64(time.Second)))
				w.send(normal(""), b.work)
				if !half && time.Since(begin) >= p.during/2 {
					half, done = true, b.done.Load()
				}
				if half {
					looks++
					sum += w.gate.Stats().Limit
				}
			}
			p.rate = float64(b.done.Load()-done) / (p.during / 2).Seconds()
			p.limit = float64(sum) / float64(max(looks, 1))
			out[i] = p
		}
		w.finished(t)
	})
	return out
}

// The limit comes down when requests get in each other's way, keeps the throughput near what the best fixed limit has,
// and comes up again.
func TestAdaptiveLimitFollowsTheBackend(t *testing.T) {
	healthy, ill := phase{crosstalk: 2000, during: 40 * time.Second}, phase{crosstalk: 20000, during: 40 * time.Second}
	// For these crosstalks the best limits are near the root of 0.98 over it.
	best := func(limit int, p phase) float64 {
		if testscale.Factor() < 1 {
			p.during /= 4 // a limit that does not move has nothing to find
		}
		return pressed(t, admission.Config{MinConcurrency: limit, MaxConcurrency: limit}, []phase{p})[0].rate
	}
	bestHealthy, bestIll := best(22, healthy), best(7, ill)
	got := pressed(t, admission.Config{InitialConcurrency: 100}, []phase{healthy, ill, healthy})
	for i, want := range []float64{bestHealthy, bestIll, bestHealthy} {
		t.Logf("phase %d: %.0f/s, the best fixed limit %.0f/s; limit %.1f on average", i+1, got[i].rate, want, got[i].limit)
		if got[i].rate < 0.8*want {
			t.Errorf("phase %d: %.0f/s; want 80 %% of %.0f/s", i+1, got[i].rate, want)
		}
	}
	if got[0].limit > 40 || got[1].limit > 0.7*got[0].limit || got[2].limit < 1.3*got[1].limit {
		t.Errorf("limits %.1f, %.1f, %.1f on average; want it to come down from 100, further, and up again", got[0].limit, got[1].limit, got[2].limit)
	}
}

// A request that was cut short, or never began, moves nothing.
func TestAdaptiveLimitIsNotMovedByWhatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := func(took time.Duration, err error) admission.Stats {
			g := newGate(t, admission.Config{InitialConcurrency: 10})
			for range 400 {
				var passes []*admission.Pass
				for range 10 {
					passes = append(passes, ask(t, g, normal(""), 0).in(t))
				}
				elapse(took)
				for _, p := range passes {
					p.Done(err)
				}
				elapse(time.Millisecond)
			}
			empty(t, g)
			return g.Stats()
		}
		if s := batches(time.Millisecond, context.Canceled); s.Limit != 10 || s.ServiceTime != 0 {
			t.Errorf("limit %d, service time %v; want 10 and nothing", s.Limit, s.ServiceTime)
		}
		// Nor does work of no duration divide anything by zero.
		if s := batches(0, nil); s.Limit != 10 || s.ServiceTime != 0 {
			t.Errorf("limit %d, service time %v; want 10 and nothing", s.Limit, s.ServiceTime)
		}
		if s := batches(time.Millisecond, nil); s.Limit == 10 || s.ServiceTime != time.Millisecond {
			t.Errorf("limit %d, service time %v; want it to have moved", s.Limit, s.ServiceTime)
		}
	})
}

func TestManyGoroutinesAdaptive(t *testing.T) {
	crowd(t, newGate(t, admission.Config{}), 64, 50, 64)
}

// A quiet time does not leave a gate that has no room for the burst after it.
func TestAdaptiveLimitAfterAQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(newGate(t, admission.Config{}))
		w.poisson(rand.New(rand.NewPCG(3, 0)), 20, minute, func() admission.Request { return normal("") })
		if limit := w.gate.Stats().Limit; limit < 20 {
			t.Errorf("limit %d; want at least the 20 that it began with", limit)
		}
		for range 40 {
			w.send(normal(""), work)
		}
		if in := share(w.finished(t), nil); in < 1 {
			t.Errorf("%.2f %% in time", 100*in)
		}
	})
}
