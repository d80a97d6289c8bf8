package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
)

// Whatever comes, waits, leaves, and ends in whatever order: no more run than may, no more wait than may, whoever waits
// does so because every place is taken, and in the end nobody is left and every place is free.
func TestRandomHistories(t *testing.T) {
	var sum admission.Stats
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		steps := make([]int, 200)
		for i := range steps {
			steps[i] = r.IntN(1 << 20)
		}
		limit, places := 1+r.IntN(4), 1+r.IntN(8)
		s, problem := history(t, limit, places, steps)
		if problem != "" {
			t.Fatalf("seed %d, limit %d, queue %d: %s", seed, limit, places, problem)
		}
		sum.Admitted, sum.Cancelled = sum.Admitted+s.Admitted, sum.Cancelled+s.Cancelled
		sum.Shed.QueueFull += s.Shed.QueueFull
		sum.Shed.Displaced += s.Shed.Displaced
		sum.Shed.OverShare += s.Shed.OverShare
		sum.Shed.WaitedTooLong += s.Shed.WaitedTooLong
		sum.Shed.Stale += s.Shed.Stale
	}
	t.Logf("%d let in, %d left, sent away %+v", sum.Admitted, sum.Cancelled, sum.Shed)
	if c := sum.Shed; min(sum.Admitted, sum.Cancelled, c.QueueFull, c.Displaced, c.OverShare, c.WaitedTooLong, c.Stale) < 50 {
		t.Errorf("the histories do not go everywhere: %+v", sum)
	}
}

// history runs steps in virtual time and returns what was wrong.
func history(t *testing.T, limit, places int, steps []int) (end admission.Stats, problem string) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, admission.Config{Queue: places, MinConcurrency: limit, MaxConcurrency: limit})
		var asked []*queued
		passes := func() (held []*queued) {
			for _, q := range asked {
				if q.ended.Load() && q.pass != nil {
					held = append(held, q)
				}
			}
			return held
		}
		check := func(step int) {
			synctest.Wait()
			s, waiting, running, operators := g.Stats(), 0, 0, 0
			for _, q := range asked {
				switch {
				case !q.ended.Load():
					waiting++
				case q.pass == nil && q.err == nil, q.pass != nil && q.err != nil:
					problem = fmt.Sprintf("step %d: pass %t with error %v", step, q.pass != nil, q.err)
				case q.class == admission.Operator && q.err != nil:
					problem = fmt.Sprintf("step %d: an operator was told %v", step, q.err)
				case q.pass != nil && q.class == admission.Operator:
					operators++
				case q.pass != nil:
					running++
				}
			}
			if problem == "" && (waiting != s.Waiting() || running != s.Running || operators != s.Operators || running > limit || waiting > places ||
				waiting > 0 && running < limit || s.Tenants > waiting) {
				problem = fmt.Sprintf("step %d: %d wait, %d run, %d operators; the gate says %+v", step, waiting, running, operators, s)
			}
		}
		for i, step := range steps {
			kind, pick := step%8, step/8
			switch {
			case kind < 4:
				timeout := time.Duration(pick%7) * 300 * time.Millisecond // 0: none
				r := admission.Request{Class: admission.Class(pick / 7 % 4), Tenant: fmt.Sprint(pick / 28 % 3)}
				asked = append(asked, ask(t, g, r, timeout))
			case kind == 4 && len(asked) > 0:
				asked[pick%len(asked)].cancel()
			case kind == 5:
				elapse(time.Duration(pick%300) * time.Millisecond)
			default:
				if held := passes(); len(held) > 0 {
					q := held[pick%len(held)]
					q.pass.Done([]error{nil, context.Canceled, errors.New("refused")}[pick%3])
					q.pass.Done(nil)
					q.pass, q.err, q.class = nil, errors.New("done"), admission.Normal
				}
			}
			if check(i); problem != "" {
				return
			}
		}
		for range len(asked) + 1 {
			for _, q := range passes() {
				q.pass.Done(nil)
				q.pass, q.err, q.class = nil, errors.New("done"), admission.Normal
			}
			if check(-1); problem != "" {
				return
			}
		}
		end = g.Stats()
		if s := end; s.Waiting()+s.Running+s.Operators+s.Tenants != 0 {
			problem = fmt.Sprintf("not empty: %+v", s)
		}
	})
	return end, problem
}

// Many goroutines in real time, which leave when they like.
func TestManyGoroutines(t *testing.T) {
	const clients, each, limit = 64, 50, 3
	g := newGate(t, admission.Config{MinConcurrency: limit, MaxConcurrency: limit})
	crowd(t, g, clients, each, limit)
}

// crowd lets clients come and go, and checks that no more than limit are inside.
func crowd(t *testing.T, g *admission.Gate, clients, each, limit int) {
	t.Helper()
	var inside, served atomic.Int64
	ended := make(chan struct{}, clients)
	for c := range clients {
		go func() {
			defer func() { ended <- struct{}{} }()
			r := rand.New(rand.NewPCG(uint64(c), 0))
			for i := range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3000))*time.Microsecond)
				if i%3 == 0 {
					cancel()
				}
				class := admission.Class(r.IntN(3))
				pass, err := g.Admit(ctx, admission.Request{Class: class, Tenant: fmt.Sprint(r.IntN(5))})
				switch {
				case err == nil:
					if n := inside.Add(1); n > int64(limit) {
						t.Errorf("%d inside", n)
					}
					served.Add(1)
					for range r.IntN(1000) {
						_ = g.Stats()
					}
					inside.Add(-1)
					pass.Done(ctx.Err())
					pass.Done(nil)
				case !errors.Is(err, admission.ErrOverloaded) && ctx.Err() == nil:
					t.Errorf("error %v", err)
				}
				cancel()
			}
		}()
	}
	for range clients {
		<-ended
	}
	empty(t, g)
	s := g.Stats()
	if uint64(served.Load()) != s.Admitted || s.Admitted+s.Cancelled+s.Shed.Total() != uint64(clients*each) || s.Admitted == 0 {
		t.Errorf("%d served of %d: %+v", served.Load(), clients*each, s)
	}
}
