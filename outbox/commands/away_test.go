package commands

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// PostgreSQL killed under the dispatcher, at the named places, and away for longer than all attempts of a command last:
// it is waited for, every command is done, and the time of its absence is nobody's.
func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
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
	w, err := openWorld(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	w.t = t
	s := newSender(w)
	at, crash := make(chan struct{}), atomic.Pointer[string]{}
	reached := func(place string) {
		if want := crash.Load(); want != nil && *want == place && crash.CompareAndSwap(want, nil) {
			at <- struct{}{}
			<-at // the server is gone
		}
	}
	w.puts(func(_ context.Context, place string, _ put) { reached(place) })
	d := w.dispatcher(nil, Config{BatchSize: 20, Attempts: 2, Timeout: 2 * time.Second, probe: reached})
	w.start(d)
	for _, place := range []string{atDeciding, atAppended, probeRan, probeReplied, consumer.ProbeCommitted} {
		crash.Store(&place)
		for n := range 30 {
			s.put(fmt.Sprint(n % 3))
		}
		<-at
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		at <- struct{}{}
		livetest.Eventually(t, "health says that the database is away", func() bool {
			h := d.Health(t.Context())
			return !h.Ready && h.State == "waiting" && h.Reason != ""
		})
		if place == atDeciding {
			<-time.After(3 * time.Second) // longer than a command may take
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "the database is back", func() bool { return pool.Ping(t.Context()) == nil })
		pool.Reset()
		s.allDone()
	}
	livetest.Eventually(t, "health is ready", func() bool { return d.Health(t.Context()).Ready })
}

// Connections that the server ends again and again: every command is done once.
func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSender(w)
	for n := range 150 {
		s.put(fmt.Sprint(n % 6))
	}
	w.puts(func(context.Context, string, put) { <-time.After(2 * time.Millisecond) })
	ended := func() (n int, err error) {
		err = w.pool.QueryRow(context.Background(), "SELECT count(*) FROM daybook.operations WHERE finished_at IS NOT NULL").Scan(&n)
		return n, err
	}
	stopped := make(chan struct{})
	var breaking sync.WaitGroup
	breaking.Go(func() {
		for last := -1; ; {
			select {
			case <-stopped:
				return
			case <-time.After(400 * time.Millisecond):
				n, err := ended()
				if err != nil || n == last { // however slow the machine is, something gets through
					continue
				}
				last = n
				_, _ = w.pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
			}
		}
	})
	w.run(Config{BatchSize: 10, Attempts: 50})
	livetest.Eventually(t, "half of the commands end", func() bool {
		n, err := ended()
		return err == nil && n > 75
	})
	close(stopped)
	breaking.Wait()
	s.allDone()
}

// A connection that was ended while others still answer: the next attempt gives the server the time to go.
func TestAnEndedConnectionIsNotTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var first time.Time
	w.handles(func(context.Context, anything) (bus.Reply, error) {
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) < firstPause/2 {
			return bus.Reply{}, &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to unexpected postmaster exit"}
		}
		return bus.Reply{}, nil
	})
	w.run(Config{Attempts: 2})
	w.ends(w.send(anything{"a"}), bus.OperationDone)
}
