package admission_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
)

// A tenant with a thousand waiting requests delays another one by one turn, whenever that one comes.
func TestOneTurnPerTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, one(admission.Config{Queue: 2000, MaxWaitNormal: time.Hour}))
		running := ask(t, g, normal("flood"), 0).in(t)
		var flood []*queued
		for range 1000 {
			flood = append(flood, ask(t, g, normal("flood"), 0))
		}
		served := func() (n int) {
			for _, q := range flood {
				if q.ended.Load() {
					n++
				}
			}
			return n
		}
		turn := func() {
			for i := range flood {
				if !flood[i].ended.Load() {
					running.Done(nil)
					running = flood[i].in(t) // first come, first served
					return
				}
			}
		}
		for _, before := range []int{0, 1, 17} {
			for range before {
				turn()
			}
			quiet, n := ask(t, g, normal("quiet"), 0), served()
			for !quiet.ended.Load() {
				running.Done(nil)
				synctest.Wait()
				for _, q := range flood[n:] {
					if q.ended.Load() {
						running = q.in(t)
					}
				}
				if served() > n+1 {
					t.Fatalf("%d of the flood went before", served()-n)
				}
			}
			running = quiet.in(t)
		}
		for range 1000 - served() {
			turn()
		}
		running.Done(nil)
		empty(t, g)
	})
}

// Nine tenants ask for less than their share and one for ten times as much as there is: they get what they ask for, and
// it gets what is left.
func TestTenTenantsOneFloods(t *testing.T) {
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(newGate(t, one(admission.Config{})))
			r := rand.New(rand.NewPCG(seed, 0))
			quiet := func(tenant string) bool { return tenant != "0" }
			w.poisson(r, 1054, 20*time.Second, func() admission.Request {
				if r.Float64() < 1000.0/1054 {
					return normal("0")
				}
				return normal(fmt.Sprint(1 + r.IntN(9))) // 6 a second each
			})
			answers := w.finished(t)
			of := func(a answer) bool { return quiet(a.tenant) }
			in, p99 := share(answers, of), quantile(accepted(answers, of), 0.99)
			all := float64(len(accepted(answers, nil))) / 20
			t.Logf("seed %d: the quiet %.2f %% in time, p99 %v; %.1f served a second", seed, 100*in, p99, all)
			if in < 0.99 || p99 > 250*time.Millisecond || all < 99 {
				t.Errorf("seed %d: the quiet %.2f %% in time, p99 %v; %.1f served a second", seed, 100*in, p99, all)
			}
		})
	}
}
