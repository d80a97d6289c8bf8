package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/saga/schedule"
)

// during runs a runner while f works.
func during(ctx context.Context, r *schedule.Runner, f func() error) error {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

// until looks again and again.
func until(ctx context.Context, is func() bool) error {
	for !is() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// A report for every night. Its rows and the end of the firing are one transaction, so that each night has one report,
// whatever dies. The program was away for three nights, and makes the report of the last of them.
func Example() {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, _ *postgres.Store) error {
		if _, err := pool.Exec(ctx, "CREATE TABLE reports (night date PRIMARY KEY)"); err != nil {
			return err
		}
		// region job
		nightlyReport := schedule.Job{
			Name: "nightly-report", Cron: "30 2 * * *", Zone: "Europe/Berlin", TooLate: 12 * time.Hour,
			Run: func(ctx context.Context, f schedule.Firing) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "INSERT INTO reports VALUES ($1)", f.Slot); err != nil {
						return err
					}
					return f.Finish(ctx, tx)
				})
			},
		}
		// endregion
		var now atomic.Pointer[time.Time] // programs leave Clock out: the database's clock counts
		sleep := func(until time.Time) { now.Store(&until) }
		sleep(time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC))
		cfg := schedule.Config{Clock: func() time.Time { return *now.Load() }, Poll: 20 * time.Millisecond}

		runner, err := schedule.NewRunner(pool, cfg, nightlyReport)
		if err != nil {
			return err
		}
		reports := func(n int) error {
			return until(ctx, func() bool {
				list, err := schedule.History(ctx, pool, "nightly-report")
				return err == nil && len(list) == n && list[0].State == "done"
			})
		}
		err = during(ctx, runner, func() error {
			if err := until(ctx, func() bool { list, err := schedule.List(ctx, pool); return err == nil && len(list) == 1 }); err != nil {
				return err
			}
			sleep(time.Date(2027, 3, 27, 1, 30, 0, 0, time.UTC))
			return reports(1)
		})
		if err != nil {
			return err
		}
		sleep(time.Date(2027, 3, 30, 6, 0, 0, 0, time.UTC))
		if err := during(ctx, runner, func() error { return reports(4) }); err != nil {
			return err
		}
		list, err := schedule.History(ctx, pool, "nightly-report")
		berlin, _ := time.LoadLocation("Europe/Berlin")
		for _, r := range list {
			fmt.Printf("%s: %s\n", r.Slot.In(berlin).Format("Mon 2 Jan 15:04 MST"), r.State)
		}
		return err
	})
	// Output:
	// Tue 30 Mar 02:30 CEST: done
	// Mon 29 Mar 02:30 CEST: missed
	// Sun 28 Mar 03:00 CEST: missed
	// Sat 27 Mar 02:30 CET: done
}

// A long job records how far it is. When it fails in the middle, or its process dies, the next attempt goes on from there.
func ExampleFiring_Save() {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, _ *postgres.Store) error {
		letters := schedule.Job{
			Name: "letters", Cron: "* * * * * *", RetryBase: time.Millisecond,
			Run: func(ctx context.Context, f schedule.Firing) error {
				var sent int
				_, _ = fmt.Sscan(string(f.Progress()), &sent)
				for sent < 4 {
					if f.Attempt == 1 && sent == 2 {
						fmt.Println("the printer is on fire")
						return errors.New("the printer is on fire")
					}
					sent++
					fmt.Println("attempt", f.Attempt, "sends letter", sent)
					if err := f.Save(ctx, fmt.Append(nil, sent)); err != nil {
						return err
					}
				}
				return nil
			},
		}
		var now atomic.Pointer[time.Time] // one slot, for the example
		tick := func(d time.Duration) { later := now.Load().Add(d); now.Store(&later) }
		start := time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)
		now.Store(&start)
		cfg := schedule.Config{Clock: func() time.Time { return *now.Load() }, Poll: 20 * time.Millisecond}
		runner, err := schedule.NewRunner(pool, cfg, letters)
		if err != nil {
			return err
		}
		return during(ctx, runner, func() error {
			if err := until(ctx, func() bool { list, err := schedule.List(ctx, pool); return err == nil && len(list) == 1 }); err != nil {
				return err
			}
			tick(time.Second)
			return until(ctx, func() bool {
				tick(100 * time.Microsecond)
				list, err := schedule.History(ctx, pool, "letters")
				return err == nil && len(list) > 0 && list[0].State == "done"
			})
		})
	})
	// Output:
	// attempt 1 sends letter 1
	// attempt 1 sends letter 2
	// the printer is on fire
	// attempt 2 sends letter 3
	// attempt 2 sends letter 4
}
