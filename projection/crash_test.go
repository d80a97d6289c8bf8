package projection

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// load appends events to a few streams and keeps what the rows must become.
type load struct {
	w    *world
	n    int64
	want map[string]count
	all  []int64
}

func (l *load) append(n int) (token eventstore.Token) {
	l.w.t.Helper()
	if l.want == nil {
		l.want = map[string]count{}
	}
	for range n {
		l.n++
		id := fmt.Sprint("s", l.n%5)
		token = l.w.append(id, added{l.n})
		c := l.want[id]
		l.want[id] = count{c.Sum + l.n, c.Events + 1, c.Last + 1}
		l.all = append(l.all, l.n)
	}
	return token
}

func (l *load) check() {
	l.w.t.Helper()
	if diff := cmp.Diff(l.want, rowsOf(l.w, crashView)); diff != "" {
		l.w.t.Errorf("view: %s", diff)
	}
}

func (l *load) checkLog() {
	l.w.t.Helper()
	if diff := cmp.Diff(l.all, values(l.w, "crash_log")); diff != "" {
		l.w.t.Errorf("handlers: %s", diff)
	}
}

// A process killed at every place where it hurts, again and again, applies everything once (R-PR13).
func TestKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, crashView, crashHandlers)
	l := &load{w: w}
	for _, what := range []string{"view", "handlers"} {
		for _, place := range []string{"taken", "applied", "committed"} {
			for visit := range visits() {
				n := visit + 1
				if place == "taken" {
					n = 1
				}
				t.Logf("%s, %s, visit %d", what, place, n)
				l.append(20)
				w.spawn(t, what, fmt.Sprintf("%s:%d:kill", place, n), "300ms 7").Dies()
			}
		}
		token := l.append(5)
		last := w.spawn(t, what, "", "300ms 7")
		if what == "view" {
			w.wait(token, crashView)
			l.check()
		} else {
			w.wait(token, crashHandlers)
			l.checkLog()
		}
		last.Kill()
	}
}

// A process killed at random moments.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, crashView, crashHandlers)
	l := &load{w: w}
	var token eventstore.Token
	for range rounds(100) {
		p := w.spawn(t, "handlers", "", "200ms 3")
		p.Says("running")
		token = l.append(10)
		<-time.After(time.Duration(random.IntN(60)) * time.Millisecond)
		p.Kill()
		p.Dies()
	}
	w.start(w.runner(Config{Lease: 200 * time.Millisecond}, crashHandlers))
	w.wait(token, crashHandlers)
	l.checkLog()
}

// Two runners, one of them frozen in the middle of a batch for twice its lease: the other takes over within about a
// lease, and the frozen one writes nothing when it wakes.
func TestFrozenOwner(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for _, what := range []string{"view", "handlers"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, crashView, crashHandlers)
			l := &load{w: w}
			l.append(20)
			frozen := w.spawn(t, what, "applied:2:stop", lease.String()+" 7")
			frozen.Says("at applied")
			asleep := time.Now()
			var def Definition = crashView
			if what == "handlers" {
				def = crashHandlers
			}
			w.start(w.runner(Config{Lease: lease}, def))
			token := l.append(5)
			w.wait(token, def)
			// The lease, the pause between two looks at it, and room for a machine that is busy; far from two leases.
			if took := time.Since(asleep); took > lease+time.Second+lease/3 {
				t.Errorf("the takeover took %v with a lease of %v", took, lease)
			}
			epoch := ask[int64](w, "SELECT epoch FROM daybook.segments WHERE consumer = $1", def.ConsumerRef().Name)
			<-time.After(time.Until(asleep.Add(2 * lease)))
			frozen.Signal(syscall.SIGCONT)
			frozen.Says("awake")
			if got := frozen.Says(batchLine); got == batchLine+"<nil>" {
				t.Error("the frozen process committed its batch")
			}
			token = l.append(20)
			w.wait(token, def)
			if what == "view" {
				l.check()
			} else {
				l.checkLog()
			}
			if now := ask[int64](w, "SELECT epoch FROM daybook.segments WHERE consumer = $1", def.ConsumerRef().Name); now != epoch {
				t.Errorf("epoch is %d, was %d: the frozen process took over again", now, epoch)
			}
		})
	}
}

// A process that wakes so soon that the server has not ended its transaction, and that does not know yet that another
// has taken over: its batch reaches the database, and the fence alone refuses it.
func TestOvertakenOwnerIsFenced(t *testing.T) {
	t.Parallel()
	const lease = "5m 7" // nothing runs out or is renewed while the test lasts
	w := newWorld(t, crashView, crashHandlers)
	l := &load{w: w}
	for what, def := range map[string]Definition{"view": crashView, "handlers": crashHandlers} {
		l.append(20)
		frozen := w.spawn(t, what, "applied:2:stop", lease)
		frozen.Says("at applied")
		if n := w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE consumer = $1 AND owner <> ''", def.ConsumerRef().Name); n != 1 {
			t.Fatalf("%s: %d leases ran out, want 1", what, n)
		}
		w.start(w.runner(Config{}, def))
		w.wait(l.append(5), def)
		frozen.Signal(syscall.SIGCONT)
		frozen.Says("awake")
		if got := frozen.Says(batchLine); !strings.Contains(got, "another owner has taken over") || !strings.Contains(got, "DB002") {
			t.Errorf("%s, %s: want it refused by the fence", what, got)
		}
		w.wait(l.append(20), def)
		if what == "view" {
			l.check()
		} else {
			l.checkLog()
		}
	}
}

// R-PR14: stopped and started under load, there is never more than one writer.
func TestStopAndStart(t *testing.T) {
	t.Parallel()
	var one sync.Mutex
	p := logged("restarted", func(ctx context.Context, _ pgx.Tx, _ Event[added]) error {
		if !one.TryLock() {
			return fmt.Errorf("two writers")
		}
		defer one.Unlock()
		select {
		case <-time.After(rand.N(10 * time.Millisecond)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	w := newWorld(t, p)
	var token eventstore.Token
	var want []int64
	for i := range int64(50) {
		stop := w.start(w.runner(Config{BatchSize: 3, OnFailure: Stop, Attempts: 1}, p))
		for range 3 {
			token = w.append("s", added{i})
			want = append(want, i)
		}
		stop()
		if owner := ask[string](w, "SELECT owner FROM daybook.segments WHERE consumer = 'restarted'"); owner != "" {
			t.Fatalf("the lease is still %q after the stop", owner)
		}
	}
	w.start(w.runner(Config{}, p))
	w.wait(token, p)
	if diff := cmp.Diff(want, values(w, "restarted")); diff != "" {
		t.Error(diff)
	}
}

// R-PR10: backends terminated under load, with two runners.
func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, crashView, crashHandlers)
	l := &load{w: w}
	killed := 0
	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = "victim"
	victims, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(victims.Close)
	for range 2 {
		r, err := NewRunner(victims, w.store.Log(), Config{BatchSize: 5, Lease: time.Second}, crashView, crashHandlers)
		if err != nil {
			t.Fatal(err)
		}
		w.start(r)
	}
	var token eventstore.Token
	for killed < 20 {
		token = l.append(10)
		killed += ask[int](w, `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
		                        WHERE datname = current_database() AND application_name = 'victim'`)
	}
	w.wait(token, crashView, crashHandlers)
	l.check()
	l.checkLog()
}
