package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/timers"
)

const (
	claimBatch  = 500
	claimTimers = 20_000           // of each side of a round
	herdTimers  = 100_000          // due at one moment
	calmTimers  = 20_000           // due one after the other
	timersFor   = 4 * time.Second  // how long timers come at half the rate
	otherTimers = 200              // of another queue, beside the herd, one every 10 ms
	timersWait  = 60 * time.Second // bounds each drain
)

// timerFigures measures claims against bare ones, how late timers are, and what a herd does to its queue and to another.
func timerFigures(ctx context.Context, e *env) ([]figure, error) {
	claims, rate, err := claimFigure(ctx, e)
	if err != nil {
		return nil, err
	}
	late, err := lateFigure(ctx, e, rate/2)
	if err != nil {
		return nil, err
	}
	herd, err := herdFigures(ctx, e)
	return append([]figure{claims, late}, herd...), err
}

// claimFigure claims timers as runners do, and with an update that takes what is due, on one connection each. It returns
// the median of claims too.
func claimFigure(ctx context.Context, e *env) (figure, float64, error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return figure{}, 0, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, plainPlanSQL); err != nil {
		return figure{}, 0, err
	}
	plain := func() (float64, error) {
		return drainedBy(ctx, conn, "plain", func() (int, error) {
			rows, err := conn.Query(ctx, plainClaimSQL, "plain", claimBatch)
			if err != nil {
				return 0, err
			}
			list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t timers.Timer, err error) {
				return t, row.Scan(&t.Name, &t.Due, &t.Payload)
			})
			return len(list), err
		})
	}
	var rates []float64
	ours := func() (float64, error) {
		r, err := drainedBy(ctx, conn, "ours", func() (int, error) {
			list, err := timers.Claim(ctx, conn, timers.ClaimRequest{Schema: "daybook", Queue: "ours", Owner: "bench", Limit: claimBatch, Lease: time.Hour})
			return len(list), err
		})
		rates = append(rates, r)
		return r, err
	}
	for _, warm := range []func() (float64, error){plain, ours} {
		if _, err := warm(); err != nil {
			return figure{}, 0, err
		}
	}
	rates = nil
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), `RESET ALL`) }()
	ratios, err := alternately(fmt.Sprintf("timers claimed a second, %d at a time, barely and by timers", claimBatch), plain, ours)
	if err != nil {
		return figure{}, 0, err
	}
	return newFigure("timers", fmt.Sprintf("claims/s, %d at a time", claimBatch), "", "UPDATE … RETURNING of what is due", 0.5, true, ratios), median(rates), nil
}

// drainedBy sets timers that are due, claims them all, and returns how many a second.
func drainedBy(ctx context.Context, conn *pgxpool.Conn, queue string, claim func() (int, error)) (float64, error) {
	if err := freshTimers(ctx, conn, queue, claimTimers, "clock_timestamp() - interval '1 hour' + i * interval '1 millisecond'"); err != nil {
		return 0, err
	}
	begun := time.Now()
	for claimed := 0; claimed < claimTimers; {
		n, err := claim()
		if err != nil {
			return 0, fmt.Errorf("claim of %q: %w", queue, err)
		}
		if n == 0 {
			return 0, fmt.Errorf("claim of %q: %d of %d timers were claimed", queue, claimed, claimTimers)
		}
		claimed += n
	}
	return claimTimers / time.Since(begun).Seconds(), nil
}

// freshTimers empties the table and sets n timers; i counts them.
func freshTimers(ctx context.Context, db timers.DB, queue string, n int, due string) error {
	b := &pgx.Batch{}
	b.Queue(`DELETE FROM daybook.timers WHERE queue = $1`, queue)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(`VACUUM ANALYZE daybook.timers`)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(`INSERT INTO daybook.timers (queue, name, due_at, visible_at, payload)
		SELECT $1, 'order-' || i || '/deadline', due, due, repeat('x', 100)::bytea FROM (SELECT i, `+due+` AS due FROM generate_series(1, $2::int) i OFFSET 0) t`, queue, n)
	return db.SendBatch(ctx, b).Close()
}

// firings are what handlers have finished, by the database's time.
type firings struct {
	mu    sync.Mutex
	names map[string]int
	late  []float64 // seconds
	last  time.Time
	done  chan struct{} // when there are want
	want  int
}

func newFirings(want int) *firings {
	return &firings{names: make(map[string]int, want), want: want, done: make(chan struct{})}
}

func (f *firings) handler(pool *pgxpool.Pool) timers.Handler {
	return func(ctx context.Context, due []timers.Timer) error {
		var at time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
		timers.Finish(b, "daybook", due)
		if err := pool.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, t := range due {
			f.names[t.Name]++
			f.late = append(f.late, at.Sub(t.Due).Seconds())
		}
		f.last = time.Now()
		if f.want -= len(due); f.want == 0 {
			close(f.done)
		}
		return nil
	}
}

// wait waits for the last one, and looks whether any came twice or early.
func (f *firings) wait(ctx context.Context) error {
	timer := time.NewTimer(timersWait)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("%d timers have not fired within %s", f.want, timersWait)
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.names {
		if n > 1 {
			return fmt.Errorf("timer %q fired %d times", name, n)
		}
	}
	slices.Sort(f.late)
	if len(f.late) > 0 && f.late[0] < 0 {
		return fmt.Errorf("a timer fired %f s before it was due", -f.late[0])
	}
	return nil
}

// p99 of the lateness, after wait.
func (f *firings) p99() float64 { return f.late[len(f.late)*99/100] }

// beside runs a runner of each queue while do is at work.
func beside(ctx context.Context, pool *pgxpool.Pool, handlers map[string]timers.Handler, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(handlers))
	for queue, handle := range handlers {
		runner, err := timers.NewRunner(timers.Config{Queue: queue, Workers: 2}, handle)
		if err != nil {
			return err
		}
		go func() { ended <- runner.Run(ctx, pool) }()
	}
	err := do()
	stop()
	for range handlers {
		err = errors.Join(err, <-ended)
	}
	return err
}

// lateFigure lets timers come due at a rate, and looks when they are finished.
func lateFigure(ctx context.Context, e *env, rate float64) (figure, error) {
	var values []float64
	n := int(rate * timersFor.Seconds())
	for range rounds {
		if err := freshTimers(ctx, e.pool, "even", n, fmt.Sprintf("clock_timestamp() + interval '3 seconds' + i * interval '%f microseconds'", 1e6/rate)); err != nil {
			return figure{}, err
		}
		f := newFirings(n)
		if err := beside(ctx, e.pool, map[string]timers.Handler{"even": f.handler(e.pool)}, func() error { return f.wait(ctx) }); err != nil {
			return figure{}, err
		}
		fmt.Printf("  %.0f timers a second: half are %.3f s late at most, 99 %% %.3f s, all %.3f s\n", rate, f.late[len(f.late)/2], f.p99(), f.late[len(f.late)-1])
		values = append(values, f.p99())
	}
	return newFigure("timers", fmt.Sprintf("p99 lateness at %.0f a second", rate), "s", "due by the database's time, at half the rate of claims", 1, false, values), nil
}

// herdFigures drains timers that are due at one moment and such that are not, each with an idle queue beside it.
func herdFigures(ctx context.Context, e *env) ([]figure, error) {
	var others []float64
	drain := func(n int, due string) (float64, error) {
		if err := freshTimers(ctx, e.pool, "herd", n, due); err != nil {
			return 0, err
		}
		if err := freshTimers(ctx, e.pool, "other", otherTimers, "clock_timestamp() + i * interval '10 milliseconds'"); err != nil {
			return 0, err
		}
		herd, other := newFirings(n), newFirings(otherTimers)
		begun := time.Now()
		err := beside(ctx, e.pool, map[string]timers.Handler{"herd": herd.handler(e.pool), "other": other.handler(e.pool)}, func() error {
			return errors.Join(herd.wait(ctx), other.wait(ctx))
		})
		if err != nil {
			return 0, err
		}
		if n == herdTimers {
			others = append(others, other.p99())
			fmt.Printf("  beside the herd, which took %.2f s, 99 %% of another queue's timers are %.3f s late at most\n", herd.last.Sub(begun).Seconds(), other.p99())
		}
		return float64(n) / herd.last.Sub(begun).Seconds(), nil
	}
	calm := func() (float64, error) {
		return drain(calmTimers, "clock_timestamp() - interval '1 hour' + i * interval '1 millisecond'")
	}
	herd := func() (float64, error) { return drain(herdTimers, "'2020-01-01'::timestamptz") }
	ratios, err := alternately("timers finished a second, one after the other and as a herd", calm, herd)
	if err != nil {
		return nil, err
	}
	return []figure{
		newFigure("timers", fmt.Sprintf("claimed and finished/s of a herd of %d", herdTimers), "", fmt.Sprintf("%d due one after the other", calmTimers), 0.8, true, ratios),
		newFigure("timers", "p99 lateness beside the herd", "s", "due by the database's time, another queue", 1, false, others),
	}, nil
}

// The least that takes each due timer: no token, no lease that others respect, no thought of who claims beside it. Plan and
// index are those of claims by timers.
const (
	plainPlanSQL  = `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off`
	plainClaimSQL = `
UPDATE daybook.timers SET owner = 'bench', visible_at = clock_timestamp() + interval '1 hour'
 WHERE ctid = ANY(ARRAY(SELECT ctid FROM daybook.timers WHERE queue || '' = $1 AND visible_at <= now() ORDER BY visible_at, id + 0 LIMIT $2))
RETURNING name, due_at, payload`
)
