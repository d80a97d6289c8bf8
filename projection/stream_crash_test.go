package projection

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/outbox"
)

// A process that follows the stream, killed between its handlers and the commit, and behind the commit: each event counts
// once. Another process than the projection's waits for it.
func TestStreamKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	w := newStreamWorld(t, crashStrict, crashCounts)
	w.expect(crashStrict.Name, crashStrict)
	w.expect(crashCounts.Name, crashCounts)
	b := &pipes{}
	w.run(w.relay(b, outbox.Config{}))
	f := w.traffic()
	for _, what := range []string{crashStrict.Name, crashCounts.Name} {
		for _, place := range []string{"applied", "committed"} {
			for visit := range visits() {
				t.Logf("%s, %s, visit %d", what, place, visit+1)
				p := w.spawnFollower(t, b, what, fmt.Sprintf("%s:%d:kill", place, visit+1), "300ms 5")
				f.while("it lives", p.Ended())
			}
		}
		last := w.spawnFollower(t, b, what, "", "300ms 50")
		w.finish(f, what)
		last.Kill()
	}
}

// while appends now and then until something is closed.
func (f *traffic) while(what string, ends <-chan struct{}) {
	f.t.Helper()
	livetest.Eventually(f.t, "no longer: "+what, func() bool {
		f.append(3)
		select {
		case <-ends:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
}

// finish waits for one of the two projections of a child, and checks it.
func (w *streamWorld) finish(f *traffic, what string) {
	w.t.Helper()
	if what == crashStrict.Name {
		w.wait(f.token, crashStrict)
		f.check(crashStrict)
		return
	}
	w.wait(f.token, crashCounts)
	f.checkRows(crashCounts)
}

// A process that is frozen in the middle of a batch for twice its lease: another takes over, and nothing of the batch
// takes effect when the first wakes.
func TestStreamFrozenOwner(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for _, what := range []string{crashStrict.Name, crashCounts.Name} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newStreamWorld(t, crashStrict, crashCounts)
			w.expect(crashStrict.Name, crashStrict)
			w.expect(crashCounts.Name, crashCounts)
			b := &pipes{}
			w.run(w.relay(everywhere{b, w.channel}, outbox.Config{}))
			f := w.traffic()
			frozen := w.spawnFollower(t, b, what, "applied:2:stop", lease.String()+" 5")
			f.until(frozen, "at applied")
			asleep := time.Now()
			var def Definition = crashCounts
			if what == crashStrict.Name {
				def = crashStrict
			}
			w.run(w.reader(w.subscription(w.channel, outbox.SubscriptionConfig{Group: what}), Config{Lease: lease}, def))
			f.append(10)
			w.finish(f, what)
			<-time.After(time.Until(asleep.Add(2 * lease)))
			frozen.Signal(syscall.SIGCONT)
			frozen.Says("awake")
			if got := frozen.Says(batchLine); got == batchLine+"<nil>" {
				t.Error("the frozen process committed its batch")
			}
			f.append(20)
			w.finish(f, what)
		})
	}
}

// until appends until a process says something.
func (f *traffic) until(p *livetest.Process, line string) {
	f.t.Helper()
	said := make(chan struct{})
	go func() {
		defer close(said)
		p.Says(line)
	}()
	f.while("it does not say "+line, said)
}

// A process that wakes so soon that the server has not ended its transaction, and that does not know yet that another
// has taken over: the fence alone refuses its batch.
func TestStreamOvertakenOwnerIsFenced(t *testing.T) {
	t.Parallel()
	w := newStreamWorld(t, crashCounts)
	w.expect(crashCounts.Name, crashCounts)
	b := &pipes{}
	w.run(w.relay(everywhere{b, w.channel}, outbox.Config{}))
	f := w.traffic()
	frozen := w.spawnFollower(t, b, crashCounts.Name, "applied:2:stop", "5m 5") // nothing runs out or is renewed while the test lasts
	f.until(frozen, "at applied")
	if n := w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE consumer = $1", crashCounts.Name); n != 1 {
		t.Fatalf("%d leases ran out, want 1", n)
	}
	w.follow(w.subscription(w.channel, outbox.SubscriptionConfig{Group: crashCounts.Name}), Config{}, crashCounts)
	f.append(10)
	w.finish(f, crashCounts.Name)
	frozen.Signal(syscall.SIGCONT)
	frozen.Says("awake")
	if got := frozen.Says(batchLine); !strings.Contains(got, "another owner has taken over") || !strings.Contains(got, "DB002") {
		t.Errorf("%s: want it refused by the fence", got)
	}
	f.append(20)
	w.finish(f, crashCounts.Name)
}

// Two processes share one group of the broker, so that each message goes to one of them only. Both projections become
// complete: what went to the other is found in the outbox.
func TestStreamSharedGroup(t *testing.T) {
	t.Parallel()
	w := newStreamWorld(t, crashStrict, crashCounts)
	w.expect(crashStrict.Name, crashStrict)
	w.expect(crashCounts.Name, crashCounts)
	b := &pipes{shared: true}
	w.run(w.relay(b, outbox.Config{}))
	w.spawnFollower(t, b, crashStrict.Name, "", "10s 50").Says("running")
	w.spawnFollower(t, b, crashCounts.Name, "", "10s 50").Says("running")
	f := w.traffic()
	for range 5 {
		f.append(20)
		f.applied(crashStrict, crashCounts)
	}
}

// PostgreSQL killed and started again under relay and consumers.
func TestStreamSurvivesPostgres(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
		t.Fatal(err)
	}
	p, v := strict("survivor"), counts("survivor_view")
	w := openStreamWorld(t, pool, p, v)
	w.run(w.relay(w.channel, outbox.Config{BatchSize: 20}))
	s := w.subscription(w.channel, outbox.SubscriptionConfig{Silence: 300 * time.Millisecond})
	at, crash := make(chan string), atomic.Pointer[string]{}
	w.follow(s, Config{BatchSize: 10, probe: func(place string) {
		if want := crash.Load(); want != nil && *want == place && crash.CompareAndSwap(want, nil) {
			at <- place
			<-at // the server is gone
		}
	}}, p, v)
	f := w.traffic()
	f.append(10)
	f.applied(p, v)
	// What the workers of this process believe to be applied may be undone by the crash until they have noticed it, so
	// the database is asked, as from another process.
	elsewhere, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(elsewhere.Close)
	for _, place := range []string{"applied", "committed", "applied"} {
		crash.Store(&place)
		f.append(60)
		<-at
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		at <- ""
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "the database is back", func() bool { return pool.Ping(t.Context()) == nil })
		pool.Reset()
		elsewhere.Reset()
		if err := NewWaiter(elsewhere, WaiterConfig{}).WaitFor(t.Context(), f.token, p, v); err != nil {
			t.Fatal(err)
		}
		f.applied(p, v)
	}
	f.append(30)
	f.applied(p, v)
}
