package projection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// crashFailing applies one number in four at its third attempt only.
var crashFailing = logged("crash_failing", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
	if e.Payload.N%4 == 3 && Attempt(ctx) < 3 {
		return errBad
	}
	return nil
})

// checkFailing checks that each stream was applied in its order, and once.
func (l *load) checkFailing() {
	l.w.t.Helper()
	want, got := map[int64][]int64{}, map[int64][]int64{}
	for _, n := range l.all {
		want[n%5] = append(want[n%5], n)
	}
	for _, n := range values(l.w, "crash_failing") {
		got[n%5] = append(got[n%5], n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.w.t.Errorf("by stream: %s", diff)
	}
	if n := ask[int](l.w, "SELECT count(*)::int FROM daybook.letters WHERE state <> 'applied' OR attempts <> 2"); n != 0 {
		l.w.t.Errorf("%d letters did not go through at their third attempt", n)
	}
	if n := ask[int](l.w, "SELECT count(*)::int FROM daybook.letters"); n != len(l.all)/4 {
		l.w.t.Errorf("%d letters for %d numbers", n, len(l.all))
	}
}

// rest waits until everything is applied: the log, and what was set aside.
func (l *load) rest(token eventstore.Token) {
	l.w.t.Helper()
	livetest.Eventually(l.w.t, "everything is applied", func() bool {
		return l.w.waiter().WaitFor(context.Background(), token, crashFailing) == nil
	})
	l.w.parked("crash_failing", 0)
}

// A process killed at every place where it hurts while things fail: what was set aside is tried again, drained and released
// by the next, in order, and once.
func TestKilledWhileThingsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, crashFailing)
	l := &load{w: w}
	for _, place := range []string{"applied", "committed", "parked", "retried", "drained", "released"} {
		for visit := range visits() {
			t.Logf("%s, visit %d", place, visit+1)
			l.append(20)
			w.spawn(t, "failing", fmt.Sprintf("%s:%d:kill", place, visit+1), "300ms 7").Dies()
		}
	}
	token := l.append(4)
	w.spawn(t, "failing", "", "300ms 7")
	l.rest(token)
	l.checkFailing()
}

// Two processes at a time, one of which is killed at a random moment, again and again.
func TestTwoWorkersKilledAtRandomWhileThingsFail(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, crashFailing)
	l := &load{w: w}
	var token eventstore.Token
	var two [2]*livetest.Process
	for i := range rounds(60) {
		p := w.spawn(t, "failing", "", fmt.Sprint("200ms ", 1+random.IntN(9)))
		p.Says("running")
		token = l.append(8)
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
		if before := two[i%2]; before != nil {
			before.Kill()
			before.Dies()
		}
		two[i%2] = p
	}
	l.rest(token)
	l.checkFailing()
}
