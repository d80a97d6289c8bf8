package schedule

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// The crash test runs this test binary again as a process of its own, which runs a job and kills itself at a named place.
const (
	childURL = "DAYBOOK_SCHEDULE_TEST_URL"
	childAt  = "DAYBOOK_SCHEDULE_TEST_AT" // "place:n": at the n-th visit of the place
)

// secondly has an effect for each slot, once, by the database's own clock.
func secondly(pool *pgxpool.Pool) Job {
	return Job{Name: "secondly", Cron: "* * * * * *", Missed: All, Attempts: 20, RetryBase: time.Millisecond, RetryCap: time.Millisecond, Run: func(ctx context.Context, f Firing) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO effects (slot) VALUES ($1)`, f.Slot); err != nil {
				return err
			}
			return f.Finish(ctx, tx)
		})
	}}
}

func childConfig() Config {
	return Config{Lease: 300 * time.Millisecond, Poll: 20 * time.Millisecond}
}

func child() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv(childURL))
	if err != nil {
		return err
	}
	place, n, _ := strings.Cut(os.Getenv(childAt), ":")
	visits, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	cfg := childConfig()
	cfg.probe = func(at string) {
		if at != place {
			return
		}
		if visits--; visits == 0 {
			fmt.Println("at", place)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	r, err := NewRunner(pool, cfg, secondly(pool))
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// A process is killed at each place; the slots that came are all there, each with one effect.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE effects (slot timestamptz)`)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{probeDecided, probeBegun, probeRan, probeEnded} {
		cmd := exec.Command(exe, "-test.run=^$")
		cmd.Env = append(os.Environ(), childURL+"="+postgrestest.URL(w.pool), childAt+"="+place+":2")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		reached := bufio.NewScanner(out).Scan()
		_ = cmd.Wait()
		timer.Stop()
		if !reached {
			t.Fatalf("the process did not come to %s", place)
		}
	}
	stop := w.start(w.runner(childConfig(), secondly(w.pool)))
	w.eventually("all that was due has ended", func() bool {
		return ask[bool](w, `SELECT count(*) > 8 AND bool_and(state = 'done') AND max(slot) > clock_timestamp() - interval '1.5 seconds' FROM daybook.schedule_firings`)
	})
	stop()
	w.exec(`DELETE FROM daybook.schedule_firings WHERE ended_at IS NULL`) // one that began as the runner ended
	if got := ask[bool](w, `SELECT count(*) = count(DISTINCT e.slot) AND count(*) = (SELECT count(*) FROM daybook.schedule_firings)
	  AND count(*) = 1 + extract(epoch FROM max(e.slot) - min(e.slot)) FROM effects e`); !got {
		t.Errorf("not every second has one effect:\n%s", ask[string](w, `SELECT string_agg(slot::text, ' ' ORDER BY slot) FROM effects`))
	}
}
