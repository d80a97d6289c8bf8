package timers_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/timers"
)

const crashLease = 2 * time.Second

// R-ST03: a process is killed in its handler, whose effect is not committed. Another handles the timer when the lease has
// passed, and it has its effect once.
func TestKilledInTheHandler(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	set(t, pool, nil, timers.Setting{Name: "x"})
	cmd := self(t, pool)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "handling" {
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended with %v", err)
	}
	if n := count(t, pool, "fired"); n != 0 {
		t.Fatalf("%d effects of a transaction that was not committed", n)
	}
	until := value[time.Time](t, pool, `SELECT visible_at FROM daybook.timers`)
	run(t, pool, timers.Config{Poll: 50 * time.Millisecond}, effects(pool, "next"))
	eventually(t, "another has handled it", func() bool { return count(t, pool, "fired") == 1 })
	if now := value[time.Time](t, pool, `SELECT clock_timestamp()`); now.Before(until) {
		t.Errorf("taken over at %s, within the lease, which ends at %s", now, until)
	}
	if by := value[string](t, pool, `SELECT string_agg(runner, ',') FROM fired`); by != "next" {
		t.Errorf("effects by %s", by)
	}
}

func self(t testing.TB, pool *pgxpool.Pool) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = append(os.Environ(), childURL+"="+postgrestest.URL(pool))
	cmd.Stderr = os.Stderr
	return cmd
}

// R-ST11: all connections are cut again and again while timers fire. Nothing is lost and nothing happens twice, and what
// the database's end did to a call is no failure of its timers.
func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	const n = 400
	var settings []timers.Setting
	for i := range n {
		settings = append(settings, timers.Setting{Name: fmt.Sprint(i), Spread: 2 * time.Second})
	}
	set(t, pool, nil, settings...)
	worked, err := pgxpool.New(t.Context(), postgrestest.URL(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer worked.Close()
	var stops []running
	for i := range 2 {
		stops = append(stops, run(t, worked, timers.Config{Poll: 50 * time.Millisecond, Ahead: -1, Lease: time.Second, Group: 5}, effects(worked, fmt.Sprint(i))))
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	cuts := 0
	eventually(t, "all have fired", func() bool {
		if cuts < 20 {
			cuts += min(1, value[int](t, conn, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.3`))
		}
		return !value[bool](t, conn, `SELECT EXISTS (SELECT FROM daybook.timers)`)
	})
	if all := value[int](t, conn, `SELECT count(*) FROM fired`); all != n || value[int](t, conn, `SELECT count(DISTINCT name) FROM fired`) != n {
		t.Errorf("%d effects of %d timers", all, n)
	}
	if cuts < 5 {
		t.Errorf("only %d cuts", cuts)
	}
	for _, r := range stops {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		t.Logf("%+v", r.Status())
	}
}

// R-ST08: three runners whose clocks are 5 s apart, one timer a minute for ten minutes. The next time is that of the
// occurrence that fired and a minute, and there are ten.
func TestRecurringTimerAndClocksThatDiffer(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	clock := &steps{now: second0}
	handle := func(ctx context.Context, due []timers.Timer) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			held, err := timers.Held(ctx, tx, schema, due)
			if err != nil {
				return err
			}
			if err := write(ctx, tx, "", held); err != nil {
				return err
			}
			b := &pgx.Batch{}
			for _, x := range held {
				timers.Set(b, schema, nil, []timers.Setting{{Queue: x.Queue, Name: x.Name, From: x.Due, After: time.Minute, Payload: []byte(x.Due.Format(time.RFC3339))}})
				b.Queue(`UPDATE fired SET runner = $1 WHERE runner = ''`, x.Due.Sub(second0).String())
			}
			return tx.SendBatch(ctx, b).Close()
		})
	}
	set(t, pool, at(0), timers.Setting{Name: "every minute", After: time.Minute})
	for _, skew := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		run(t, pool, timers.Config{Clock: func() time.Time { return clock.time().Add(skew) }, Poll: 5 * time.Millisecond}, handle)
	}
	for second := 10; second <= 605; second += 10 {
		clock.step(10 * time.Second)
		want := min((second+5)/60, 10) // by the clock that is ahead
		eventually(t, fmt.Sprintf("%d firings after %d s", want, second), func() bool { return count(t, pool, "fired") >= want })
	}
	slots := strings.Split(value[string](t, pool, `SELECT string_agg(runner, ' ' ORDER BY runner) FROM fired`), " ")
	want := []string{"10m0s", "1m0s", "2m0s", "3m0s", "4m0s", "5m0s", "6m0s", "7m0s", "8m0s", "9m0s"}
	if !slices.Equal(slots, want) {
		t.Errorf("fired at %v, want %v", slots, want)
	}
}

// R-RL07: a runner that is stopped and run again five times has nothing of before in its memory.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	runner, err := timers.NewRunner(timers.Config{Queue: queue, Lease: 5 * time.Minute, Ahead: 2 * time.Minute}, effects(pool, ""))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		set(t, pool, nil, timers.Setting{Name: fmt.Sprint("held-", i), After: time.Minute}, timers.Setting{Name: fmt.Sprint("now-", i)})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := runner.Run(ctx, pool); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it has fired, and the others are held", func() bool { return count(t, pool, "fired") == i+1 && runner.Status().Held == i+1 })
		if err := runner.Run(ctx, pool); err == nil {
			t.Error("it runs twice at once")
		}
		cancel()
		done.Wait()
		if s := runner.Status(); s.Held != 0 || s.Handling != 0 || s.State != timers.Stopped {
			t.Errorf("%+v", s)
		}
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE owner = '' AND visible_at = due_at`); n != 5 {
		t.Errorf("%d were given back as they were", n)
	}
}
