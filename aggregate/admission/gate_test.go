package admission_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

// The newest of the lowest class goes first; within a class, of the tenant with the most.
func TestEvictionOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{Queue: 4}))
		running := ask(t, g, normal(""), 0).in(t)
		bulk := func(tenant string) *queued {
			return ask(t, g, admission.Request{Class: admission.Bulk, Tenant: tenant}, 0)
		}
		a1, a2, b1, n1 := bulk("a"), bulk("a"), bulk("b"), ask(t, g, normal(""), 0)
		bulk("a").shed(t, admission.OverShare)
		c1 := ask(t, g, of(admission.Critical), 0)
		a2.shed(t, admission.Displaced)
		c2 := ask(t, g, of(admission.Critical), 0)
		b1.shed(t, admission.Displaced) // a and b had one each; b's came last
		c3 := ask(t, g, of(admission.Critical), 0)
		a1.shed(t, admission.Displaced)
		ask(t, g, of(admission.Bulk), 0).shed(t, admission.QueueFull)
		ask(t, g, normal(""), 0).shed(t, admission.QueueFull)
		c4 := ask(t, g, of(admission.Critical), 0)
		n1.shed(t, admission.Displaced)
		ask(t, g, of(admission.Critical), 0).shed(t, admission.QueueFull) // they are bounded too
		if s := g.Stats(); s.Critical != 4 || s.Normal != 0 || s.Bulk != 0 || s.Shed.Displaced != 4 || s.Shed.QueueFull != 3 || s.Shed.OverShare != 1 {
			t.Errorf("%+v", s)
		}
		for _, c := range []*queued{c1, c2, c3, c4} {
			c.waits(t)
			running.Done(nil)
			running = c.in(t)
		}
		running.Done(nil)
		empty(t, g)
	})
}

func TestOrderOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{}))
		running := ask(t, g, normal(""), 0).in(t)
		b, n, c := ask(t, g, of(admission.Bulk), 0), ask(t, g, of(admission.Normal), 0), ask(t, g, of(admission.Critical), 0)
		for _, q := range []*queued{c, n, b} {
			q.waits(t)
			running.Done(nil)
			running = q.in(t)
		}
		running.Done(nil)
		empty(t, g)
	})
}

// A full queue has a place for a tenant that has less of it than another.
func TestShareOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{Queue: 4}))
		running := ask(t, g, normal(""), 0).in(t)
		var flood []*queued
		for range 4 {
			flood = append(flood, ask(t, g, normal("flood"), 0))
		}
		ask(t, g, normal("flood"), 0).shed(t, admission.QueueFull)
		first, second := ask(t, g, normal("quiet"), 0), ask(t, g, normal("quiet"), 0)
		flood[3].shed(t, admission.OverShare)
		flood[2].shed(t, admission.OverShare)
		ask(t, g, normal("quiet"), 0).shed(t, admission.QueueFull) // two each
		third := ask(t, g, normal("other"), 0)
		second.shed(t, admission.OverShare)
		ask(t, g, normal("flood"), 0).shed(t, admission.OverShare)
		for _, q := range []*queued{flood[0], first, third, flood[1]} {
			q.waits(t)
			running.Done(nil)
			running = q.in(t)
		}
		running.Done(nil)
		empty(t, g)
	})
}

func TestMaxWaitOfEachClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{}))
		running := ask(t, g, normal(""), 0).in(t)
		c, n, b := ask(t, g, of(admission.Critical), 0), ask(t, g, of(admission.Normal), 0), ask(t, g, of(admission.Bulk), 0)
		elapse(3 * time.Second)
		for q, want := range map[*queued]time.Duration{c: 2 * time.Second, n: time.Second, b: 500 * time.Millisecond} {
			q.shed(t, admission.WaitedTooLong)
			if q.after != want {
				t.Errorf("sent away after %v; want %v", q.after, want)
			}
		}
		running.Done(nil)
		empty(t, g)
	})
}

// measured is a gate that knows that a request takes a second, with one running.
func measured(t *testing.T) (*admission.Gate, *admission.Pass) {
	t.Helper()
	g := newGate(t, one(admission.Config{MaxWaitNormal: time.Minute}))
	pass := ask(t, g, normal(""), 0).in(t)
	elapse(time.Second)
	pass.Done(nil)
	if s := g.Stats(); s.ServiceTime != time.Second {
		t.Fatalf("service time %v; want 1s", s.ServiceTime)
	}
	return g, ask(t, g, normal(""), 0).in(t)
}

func TestStaleIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, running := measured(t)
		ask(t, g, normal(""), 900*time.Millisecond).shed(t, admission.Stale)
		soon, late := ask(t, g, normal(""), 1500*time.Millisecond), ask(t, g, normal(""), 10*time.Second)
		elapse(time.Second)
		soon.shed(t, admission.Stale)
		if soon.after < 500*time.Millisecond || soon.after > 501*time.Millisecond {
			t.Errorf("sent away after %v; want it as soon as it is hopeless, after 500ms", soon.after)
		}
		running.Done(nil)
		late.in(t).Done(nil)
		empty(t, g)
	})
}

// An estimate that has become wrong does not keep everybody out for ever.
func TestStaleIsNotAskedWhileNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, running := measured(t)
		running.Done(context.Canceled)
		for i := 0; g.Stats().ServiceTime > 100*time.Millisecond; i++ {
			if i > 100 {
				t.Fatalf("service time %v after %d quick requests", g.Stats().ServiceTime, i)
			}
			pass := ask(t, g, normal(""), 100*time.Millisecond).in(t)
			elapse(service)
			pass.Done(nil)
		}
		// Cut short by its deadline: it would have taken longer, and says nothing of how much shorter it is.
		before := g.Stats().ServiceTime
		pass := ask(t, g, normal(""), 0).in(t)
		elapse(time.Millisecond)
		pass.Done(context.DeadlineExceeded)
		if after := g.Stats().ServiceTime; after != before {
			t.Errorf("service time %v after a request that was cut short; want %v", after, before)
		}
	})
}

func TestEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, class := range []admission.Class{admission.Normal, admission.Operator} {
			if pass, err := g.Admit(ctx, of(class)); pass != nil || !errors.Is(err, context.Canceled) || errors.Is(err, admission.ErrOverloaded) {
				t.Errorf("%v: pass %v, error %v; want the context's", class, pass, err)
			}
		}
		running := ask(t, g, normal(""), 0).in(t)
		left, timed := ask(t, g, normal(""), 0), ask(t, g, normal(""), 100*time.Millisecond)
		left.cancel()
		elapse(time.Second)
		synctest.Wait()
		if !errors.Is(left.err, context.Canceled) || left.pass != nil {
			t.Errorf("cancelled: error %v", left.err)
		}
		if timed.pass != nil || timed.err == nil || timed.after != 100*time.Millisecond {
			t.Errorf("timed out: error %v after %v", timed.err, timed.after)
		}
		if s := g.Stats(); s.Waiting() != 0 || s.Running != 1 || s.Cancelled < 3 {
			t.Errorf("%+v", s)
		}
		running.Done(nil)
		empty(t, g)
	})
}

// A place that is given to a request in the moment when its context ends is not lost, and the request is not executed.
func TestLeavingAtTheMomentOfEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{}))
		for i := range 500 {
			running := ask(t, g, normal(""), 0).in(t)
			leaves, next := ask(t, g, normal(""), 0), ask(t, g, normal(""), 0)
			leaves.cancel()
			running.Done(nil)
			synctest.Wait()
			if !leaves.ended.Load() || leaves.pass != nil || !errors.Is(leaves.err, context.Canceled) {
				t.Fatalf("round %d: ended %t, pass %t, error %v", i, leaves.ended.Load(), leaves.pass != nil, leaves.err)
			}
			next.in(t).Done(nil)
			empty(t, g)
		}
		if s := g.Stats(); s.Admitted != 1000 || s.Cancelled != 500 {
			t.Errorf("%+v", s)
		}
	})
}

func TestOperatorsAlwaysGetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{Queue: 1}))
		running, waiting := ask(t, g, normal(""), 0).in(t), ask(t, g, of(admission.Critical), 0)
		var passes []*admission.Pass
		for range 100 {
			passes = append(passes, ask(t, g, of(admission.Operator), time.Nanosecond).in(t))
		}
		if s := g.Stats(); s.Operators != 100 || s.Running != 1 {
			t.Errorf("%+v", s)
		}
		for _, p := range passes {
			p.Done(nil)
			p.Done(nil)
		}
		waiting.waits(t)
		running.Done(nil)
		waiting.in(t).Done(nil)
		empty(t, g)
	})
}

func TestDoneTwiceFreesOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{}))
		first := ask(t, g, normal(""), 0).in(t)
		a, b := ask(t, g, normal(""), 0), ask(t, g, normal(""), 0)
		first.Done(nil)
		first.Done(errors.New("late"))
		pass := a.in(t)
		b.waits(t)
		pass.Done(nil)
		b.in(t).Done(nil)
		(*admission.Pass)(nil).Done(nil)
		empty(t, g)
	})
}

type watcher struct {
	eventstore.NopObserver
	mu    sync.Mutex
	seen  []eventstore.AdmissionObservation
	gate  func() *admission.Gate
	panic bool
}

func (w *watcher) ObserveAdmission(o eventstore.AdmissionObservation) {
	if w.panic {
		panic("observer")
	}
	w.gate().Stats() // would hang under the lock
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, o)
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *admission.Gate
		w := &watcher{gate: func() *admission.Gate { return g }}
		g = newGate(t, one(admission.Config{Queue: 1, Observer: w}))
		running, waiting := ask(t, g, normal("a"), 0).in(t), ask(t, g, normal("b"), 0)
		ask(t, g, normal("c"), 0).shed(t, admission.QueueFull)
		elapse(service)
		running.Done(nil)
		waiting.in(t).Done(nil)
		ask(t, g, of(admission.Operator), 0).in(t).Done(nil)
		var got []string
		for _, o := range w.seen {
			got = append(got, o.Class+" "+o.Tenant)
			if o.Limit != 1 || (o.Err != nil) != (o.Tenant == "c") || (o.Waited == service) != (o.Tenant == "b") {
				t.Errorf("%+v", o)
			}
		}
		if want := []string{"normal a", "normal c", "normal b", "operator "}; !slices.Equal(got, want) {
			t.Errorf("observed %q; want %q", got, want)
		}
		// An observer that panics costs no place.
		w.panic = true
		func() {
			defer func() { _ = recover() }()
			_, _ = g.Admit(t.Context(), normal(""))
			t.Error("no panic")
		}()
		empty(t, g)
	})
}

func TestUnknownClass(t *testing.T) {
	g := newGate(t, admission.Config{})
	for _, c := range []admission.Class{-1, 4} {
		if pass, err := g.Admit(t.Context(), of(c)); pass != nil || !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%v: pass %v, error %v", c, pass, err)
		}
	}
	if _, err := admission.ParseClass("Bulk"); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	for c := admission.Normal; c <= admission.Operator; c++ {
		if got, err := admission.ParseClass(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if c, err := admission.ParseClass(""); c != admission.Normal || err != nil {
		t.Errorf("empty: %v, %v", c, err)
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := admission.New(admission.Config{Queue: -1, MaxWaitBulk: -1, MinConcurrency: -1, InitialConcurrency: 1 << 30})
	for _, field := range []string{"admission: New", "Queue", "MaxWaitBulk", "MinConcurrency", "InitialConcurrency"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	for _, c := range []admission.Config{{MinConcurrency: 9, MaxConcurrency: 8}, {MinConcurrency: 3, InitialConcurrency: 2}, {MaxConcurrency: 3, InitialConcurrency: 5}} {
		if _, err := admission.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	for c, limit := range map[*admission.Config]int{
		{}: 20, {MaxConcurrency: 2}: 2, {MinConcurrency: 30}: 30, {MinConcurrency: 300}: 300, {InitialConcurrency: 2}: 0, {InitialConcurrency: 500}: 500,
	} {
		g, err := admission.New(*c)
		switch {
		case limit == 0 && err == nil:
			t.Errorf("%+v is accepted", *c)
		case limit != 0 && (err != nil || g.Stats().Limit != limit):
			t.Errorf("%+v: error %v; want limit %d", *c, err, limit)
		}
	}
}
