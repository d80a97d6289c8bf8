package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/livetest"
)

// answers are what a process that is asked whether it abstains says, one after the other, the last one for good.
type answers struct {
	mu   sync.Mutex
	list []string
	n    int
}

func (a *answers) next(context.Context, *pgxpool.Pool) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	why := a.list[0]
	if len(a.list) > 1 {
		a.list = a.list[1:]
	}
	return why, nil
}

func (a *answers) from(list ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list, a.n = list, 0
}

func (a *answers) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// Who abstains takes the segment from nobody, and says why. When it is told only behind the takeover, it gives it up and has
// applied nothing.
func TestAbstaining(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("a", "1")
	var a answers
	a.from("too old")
	worker := New(Spec{Ref: testRef, Applier: w, Abstains: a.next}, w.store.Log(), Config{Lease: 400 * time.Millisecond, Timeout: DefaultTimeout})
	w.run(worker)
	const takeovers, owned, seen = "SELECT epoch FROM daybook.segments", "SELECT count(*) FROM daybook.segments WHERE owner <> ''", "SELECT count(*) FROM seen"
	livetest.Eventually(t, "it is asked more than once", func() bool { return a.asked() > 2 })
	if s := worker.Status(); s.State != Standby || s.Reason != "too old" {
		t.Errorf("it is %s: %s", s.State, s.Reason)
	}
	if n := ask[int](w, takeovers); n != 0 {
		t.Errorf("it has taken the segment %d times", n)
	}
	a.from("", "too old by now")
	livetest.Eventually(t, "it is asked behind the takeover", func() bool { return a.asked() > 2 })
	if n := ask[int](w, takeovers); n != 1 {
		t.Errorf("it has taken the segment %d times", n)
	}
	if n := ask[int](w, owned) + ask[int](w, seen); n != 0 {
		t.Error("it owns the segment, or has applied something")
	}
	// Whoever lets it abstain raises the epoch: what it has in hand is lost.
	a.from("")
	livetest.Eventually(t, "it applies", func() bool { return ask[int](w, seen) == 1 })
	a.from("too old again")
	w.exec("UPDATE daybook.segments SET owner = '', epoch = epoch + 1, expires_at = '-infinity'")
	w.append("a", "2")
	livetest.Eventually(t, "it stands by", func() bool { return worker.Status().Reason == "too old again" })
	if n := ask[int](w, seen); n != 1 {
		t.Errorf("%d events were applied", n)
	}
}
