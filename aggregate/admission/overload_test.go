package admission_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/internal/testscale"
)

const (
	overload = time.Minute
	settling = 2 * time.Second
	calm     = 20 * time.Second
)

// calmAfter runs twenty seconds of bearable load, the same for a seed, after a time of ten times what can be done.
func calmAfter(t *testing.T, seed uint64, pressed time.Duration) (later, during []answer, inside int64, tenants int) {
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(newGate(t, one(admission.Config{}))), 0
		request := func() admission.Request {
			n++
			s := w.gate.Stats()
			tenants = max(tenants, s.Tenants)
			if s.Waiting() > 20 || s.Running > 1 {
				t.Fatalf("%+v", s)
			}
			return admission.Request{Class: admission.Class(n % 3), Tenant: fmt.Sprint(n)}
		}
		w.poisson(rand.New(rand.NewPCG(seed, 1)), 1000, pressed, request)
		elapse(time.Until(w.begin.Add(pressed)))
		n = 0
		w.poisson(rand.New(rand.NewPCG(seed, 2)), 70, calm, request)
		for _, a := range w.finished(t) {
			switch {
			case a.arrived < pressed:
				during = append(during, a)
			case a.arrived >= pressed+settling:
				later = append(later, a)
			}
		}
		inside = w.most.Load()
	})
	return later, during, inside, tenants
}

// Ten times as much as can be done, for a minute, of as many tenants as there are requests: nothing grows, as much is
// done as can be, and two seconds after its end requests take as long as if nothing had been.
func TestTenfoldOverload(t *testing.T) {
	few := seeds[:1]
	if testscale.Factor() >= 1 {
		few = seeds[:3]
	}
	for _, seed := range few {
		never, _, _, _ := calmAfter(t, seed, 0)
		later, during, inside, tenants := calmAfter(t, seed, overload)
		was, is := quantile(accepted(never, nil), 0.99), quantile(accepted(later, nil), 0.99)
		served := float64(len(accepted(during, nil))) / overload.Seconds()
		t.Logf("seed %d: p99 %v, without the overload %v; %.1f served a second, %d inside and %d tenants at most", seed, is, was, served, inside, tenants)
		if len(later) < 1000 || is > was+service || share(later, nil) < 0.99 {
			t.Errorf("seed %d: p99 %v of %d, without the overload %v; %.2f %% in time", seed, is, len(later), was, 100*share(later, nil))
		}
		// Those inside: 20 wait, one runs, and a few that are on their way out.
		if served < 99 || inside > 50 || tenants > 20 {
			t.Errorf("seed %d: %.1f served a second, %d inside, %d tenants at most", seed, served, inside, tenants)
		}
	}
}

// What is told to those sent away: never all the same, never out of bounds, and longer the more were sent away.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 0))
		g := newGate(t, one(admission.Config{Queue: 20, MaxWaitNormal: time.Hour, Rand: r.Float64}))
		running := ask(t, g, normal(""), 0).in(t)
		waiting := make([]*queued, 0, 20)
		full := func() {
			for len(waiting) < 20 {
				waiting = append(waiting, ask(t, g, normal(""), 0))
			}
		}
		shed := func(n int) (least, mean, most time.Duration) {
			least = time.Hour
			for range n {
				after := ask(t, g, normal(""), 0).shed(t, admission.QueueFull).RetryAfter
				least, most, mean = min(least, after), max(most, after), mean+after/time.Duration(n)
			}
			return least, mean, most
		}
		full()
		if least, _, most := shed(50); least < 100*time.Millisecond || most > 300*time.Millisecond || least == most {
			t.Errorf("before anything was measured: %v to %v; want 100ms to 300ms", least, most)
		}
		for range 100 { // 10 ms each: a queue of 20 is 200 ms
			elapse(service)
			running.Done(nil)
			running, waiting = waiting[0].in(t), waiting[1:]
			full()
		}
		if p := g.Stats().Pace; p != service {
			t.Errorf("pace %v; want %v", p, service)
		}
		elapse(10 * time.Second) // those sent away before are forgotten
		if least, mean, most := shed(40); least < 100*time.Millisecond || least > 200*time.Millisecond || most < 300*time.Millisecond || most > 900*time.Millisecond ||
			mean < 250*time.Millisecond || mean > 550*time.Millisecond {
			t.Errorf("20 to 60 to be done, 10ms each: %v to %v, %v on average; want about 200ms to 600ms, halved to one and a half", least, most, mean)
		}
		shed(1000)
		if _, mean, _ := shed(40); mean < 7*time.Second || mean > 14*time.Second {
			t.Errorf("after a thousand more: %v on average; want about 10s", mean)
		}
		shed(4000)
		if least, _, most := shed(100); least < 10*time.Second || most > 30*time.Second || most < 25*time.Second {
			t.Errorf("after thousands more: %v to %v; want 10s to 30s", least, most)
		}
		running.Done(nil)
		for _, w := range waiting {
			w.in(t).Done(nil)
		}
		empty(t, g)
	})
}

// Clients that come back when they are told to are served in the end, and do not press meanwhile.
func TestClientsThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(newGate(t, one(admission.Config{})))
		attempts, late := 0, 0
		for range 2000 {
			w.wait.Go(func() {
				for {
					w.mu.Lock()
					attempts++
					w.mu.Unlock()
					pass, err := w.gate.Admit(t.Context(), normal(""))
					if err == nil {
						_ = work(t.Context())
						pass.Done(nil)
						break
					}
					elapse(retryAfter(t, err))
				}
				if time.Since(w.begin) > time.Minute {
					w.mu.Lock()
					late++
					w.mu.Unlock()
				}
			})
		}
		w.finished(t)
		t.Logf("%d attempts for 2000 requests, done after %v", attempts, time.Since(w.begin))
		// 20 s are needed if the place is never free.
		if attempts > 20000 || late > 0 {
			t.Errorf("%d attempts, %d served after more than a minute", attempts, late)
		}
	})
}
