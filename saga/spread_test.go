package saga

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// TestTimersAreSpread looks at what a transaction sets for many instances at once.
func TestTimersAreSpread(t *testing.T) {
	t.Parallel()
	const herd, window = 1_000, time.Hour
	places := func() []time.Duration {
		tn := &turn{u: &unit{name: "herd", schema: "s", sql: newStatements("s")}}
		for n := range herd {
			tn.order = append(tn.order, &instance{
				facts:  flow.Instance{Ref: flow.Ref{Saga: "herd", Key: fmt.Sprint(n), Run: 1}},
				timers: map[string]*flow.Timer{dueTimer: {Name: dueTimer, After: time.Minute, Spread: window}},
			})
		}
		var b pgx.Batch
		tn.writeTimers(&b)
		return b.QueuedQueries[0].Arguments[3].([]time.Duration)
	}
	set := places()
	quarters := [4]int{}
	for n, after := range places() {
		if after < time.Minute || after >= time.Minute+window {
			t.Fatalf("a timer is due after %v", after)
		}
		if after != set[n] {
			t.Errorf("timer %d is due after %v, and after %v", n, after, set[n])
		}
		quarters[(after-time.Minute)/(window/4)]++
	}
	for _, n := range quarters {
		if n < herd/5 {
			t.Errorf("the quarters of the window have %v timers", quarters)
		}
	}
}
