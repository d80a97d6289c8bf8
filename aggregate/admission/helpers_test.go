package admission_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
)

const (
	service = 10 * time.Millisecond
	giveUp  = time.Second
)

func newGate(t testing.TB, cfg admission.Config) *admission.Gate {
	t.Helper()
	g, err := admission.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// one is a gate in front of something that does one thing at a time.
func one(cfg admission.Config) admission.Config {
	cfg.MinConcurrency, cfg.MaxConcurrency = 1, 1
	return cfg
}

// answer is what became of one request.
type answer struct {
	class   admission.Class
	tenant  string
	arrived time.Duration // since the beginning
	took    time.Duration
	err     error
}

func (a answer) inTime() bool { return a.err == nil && a.took <= giveUp }

// world is clients and a server in virtual time.
type world struct {
	gate    *admission.Gate
	begin   time.Time
	mu      sync.Mutex
	answers []answer
	wait    sync.WaitGroup
	inside  atomic.Int64
	most    atomic.Int64 // inside at once
}

func newWorld(g *admission.Gate) *world { return &world{gate: g, begin: time.Now()} }

// send lets a client ask for work, in a goroutine of its own, which gives up after a second.
func (w *world) send(r admission.Request, work func(context.Context) error) {
	begin := time.Now()
	w.wait.Go(func() {
		ctx, cancel := context.WithDeadline(context.Background(), begin.Add(giveUp))
		defer cancel()
		n := w.inside.Add(1)
		for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
		}
		pass, err := w.gate.Admit(ctx, r)
		if err == nil {
			err = work(ctx)
			pass.Done(err)
		}
		w.inside.Add(-1)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answers = append(w.answers, answer{r.Class, r.Tenant, begin.Sub(w.begin), time.Since(begin), err})
	})
}

// elapse lets time go by: virtual time, that of a bubble of testing/synctest, which costs none and waits for nobody.
func elapse(d time.Duration) {
	if time.Now().Year() != 2000 { // where the clock of a bubble begins
		panic("elapse outside of a bubble")
	}
	time.Sleep(d)
}

// poisson sends requests at a rate for a time.
func (w *world) poisson(r *rand.Rand, rate float64, during time.Duration, request func() admission.Request) {
	end := time.Now().Add(during)
	for {
		elapse(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		if !time.Now().Before(end) {
			return
		}
		w.send(request(), work)
	}
}

// work takes ten milliseconds, whether anybody still wants it or not.
func work(context.Context) error {
	elapse(service)
	return nil
}

// finished waits for all clients and checks that nothing is left in the gate.
func (w *world) finished(t *testing.T) []answer {
	t.Helper()
	w.wait.Wait()
	empty(t, w.gate)
	return w.answers
}

func empty(t testing.TB, g *admission.Gate) {
	t.Helper()
	if s := g.Stats(); s.Waiting() != 0 || s.Tenants != 0 || s.Running != 0 || s.Operators != 0 {
		t.Errorf("the gate is not empty: %+v", s)
	}
}

// share is which part of the answers was in time.
func share(answers []answer, of func(answer) bool) float64 {
	all, good := 0, 0
	for _, a := range answers {
		if of == nil || of(a) {
			all++
			if a.inTime() {
				good++
			}
		}
	}
	return float64(good) / float64(max(all, 1))
}

// accepted returns the sorted times of those that were served.
func accepted(answers []answer, of func(answer) bool) []time.Duration {
	var times []time.Duration
	for _, a := range answers {
		if a.err == nil && (of == nil || of(a)) {
			times = append(times, a.took)
		}
	}
	slices.Sort(times)
	return times
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// queued is one request that stands at the gate, in a synctest bubble.
type queued struct {
	class  admission.Class
	pass   *admission.Pass
	err    error
	after  time.Duration
	ended  atomic.Bool // what else is here is set before
	cancel context.CancelFunc
}

// ask sends a request and returns when it has been let in, sent away, or waits.
func ask(t *testing.T, g *admission.Gate, r admission.Request, timeout time.Duration) *queued {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), timeout)
	}
	q := &queued{class: r.Class, cancel: cancel}
	begin := time.Now()
	go func() {
		q.pass, q.err = g.Admit(ctx, r)
		q.after = time.Since(begin)
		q.ended.Store(true)
	}()
	synctest.Wait()
	return q
}

func normal(tenant string) admission.Request { return admission.Request{Tenant: tenant} }

func of(class admission.Class) admission.Request { return admission.Request{Class: class} }

// shed checks that a request was sent away for a reason.
func (q *queued) shed(t *testing.T, reason admission.Reason) *admission.OverloadedError {
	t.Helper()
	synctest.Wait()
	var over *admission.OverloadedError
	if !q.ended.Load() || q.pass != nil || !errors.As(q.err, &over) || !errors.Is(q.err, admission.ErrOverloaded) || over.Reason != reason {
		t.Fatalf("ended %t, pass %v, error %v; want it sent away: %s", q.ended.Load(), q.pass != nil, q.err, reason)
	}
	return over
}

func (q *queued) in(t *testing.T) *admission.Pass {
	t.Helper()
	synctest.Wait()
	if !q.ended.Load() || q.err != nil || q.pass == nil {
		t.Fatalf("ended %t, error %v; want it let in", q.ended.Load(), q.err)
	}
	return q.pass
}

func (q *queued) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if q.ended.Load() {
		t.Fatalf("ended with error %v; want it to wait", q.err)
	}
}

func retryAfter(t *testing.T, err error) time.Duration {
	var over *admission.OverloadedError
	if !errors.As(err, &over) {
		t.Errorf("error %v; want an OverloadedError", err)
		return giveUp
	}
	return over.RetryAfter
}
