package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/panics"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/timers"
)

// The states of a firing, as they are stored.
const (
	waiting  = "waiting"
	running  = "running"
	retrying = "retrying"
	done     = "done"
	failed   = "failed"
	missed   = "missed"
)

func (w *worker) handler(r *Runner) timers.Handler {
	return func(ctx context.Context, due []timers.Timer) error {
		for _, t := range due { // one
			if err := r.carryOut(ctx, w, t); err != nil {
				return err
			}
		}
		return nil
	}
}

// carryOut makes one attempt at a firing. An error is of the database: the firing is left to the next attempt.
func (r *Runner) carryOut(ctx context.Context, w *worker, t timers.Timer) error {
	tenant, slot, err := slotOf(t.Name)
	if err != nil {
		return err
	}
	a := &run{r: r, job: w, timer: t, key: key{w.Name, tenant}, slot: slot}
	early, began := context.WithTimeout(ctx, r.cfg.margin)
	attempt, err := a.begin(early)
	began()
	if err != nil || attempt == 0 {
		return err
	}
	r.cfg.probe(probeBegun)
	timed, expire := context.WithTimeout(ctx, w.Timeout)
	defer expire()
	inner, cancel := context.WithCancelCause(timed)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		a.watch(inner, cancel)
	}()
	fault := a.safely(inner, Firing{w.Name, tenant, slot, attempt, a})
	lost, expired := context.Cause(inner), timed.Err() != nil
	cancel(nil)
	<-watched
	r.cfg.probe(probeRan)
	// What became of it is written down also when the call's own time is over.
	late, end := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Lease/2)
	defer end()
	switch {
	case errors.Is(lost, ErrLost):
		err = a.hasten(late)
	case fault == nil:
		err = a.patiently(late, func() error {
			return r.inTx(late, func(tx pgx.Tx) error { return a.end(late, tx, done, "", a.failures) })
		})
	case (*r.stop.Load()).Err() != nil:
		return a.giveBack(late, fault)
	default:
		if expired && errors.Is(fault, context.DeadlineExceeded) {
			fault = fmt.Errorf("it took longer than Timeout, %v: %w", w.Timeout, fault)
		}
		err = a.patiently(late, func() error { return a.fail(late, fault) })
	}
	if errors.Is(err, ErrLost) || timers.Lost(err) { // also when the job itself has finished it
		err = nil
	}
	if err == nil {
		r.cfg.probe(probeEnded)
		r.ticks.Wake()
	}
	return err
}

// begin writes down that an attempt begins, and returns its number; 0 when there is nothing to do.
func (a *run) begin(ctx context.Context) (attempt int, err error) {
	var over string
	err = a.r.inTx(ctx, func(tx pgx.Tx) error {
		attempt, over = 0, ""
		if err := a.hold(ctx, tx); err != nil {
			return err
		}
		var state string
		var token int64
		var owner string
		var s row
		var now time.Time
		err := tx.QueryRow(ctx, a.r.sql(firingSQL), a.key.job, a.key.tenant, a.slot, a.r.cfg.now()).
			Scan(&state, &attempt, &a.failures, &token, &owner, &a.progress, &s.missed, &s.tooLate, &now)
		if errors.Is(err, pgx.ErrNoRows) { // it has ended, or was removed by hand
			attempt = 0
			b := &pgx.Batch{}
			timers.Finish(b, a.r.cfg.Schema, []timers.Timer{a.timer})
			return send(ctx, tx, b)
		} else if err != nil {
			return err
		}
		if len(a.progress) == 0 {
			a.progress = nil
		}
		if state == running && (token != a.timer.Token || owner != a.r.owner) {
			a.failures++ // its process died with it, or was silent
		}
		attempt++
		tooOld := attempt == 1 && s.late(now.Sub(a.slot))
		spent := a.failures > 0 && a.job.policy.Spent(a.failures)
		number := attempt
		if tooOld || spent {
			number, attempt = attempt-1, 0
		}
		_, err = tx.Exec(ctx, a.r.sql(beginSQL), a.key.job, a.key.tenant, a.slot, number, a.failures, a.timer.Token, a.r.owner, now)
		if err != nil {
			return err
		}
		if tooOld {
			return a.end(ctx, tx, missed, tooLate(now.Sub(a.slot)), 0)
		}
		if spent {
			over = fmt.Sprintf("its process ended, or was silent for the lease, in attempt %d; %d of %d failed", number, a.failures, a.job.policy.WithDefaults().Attempts)
			return a.end(ctx, tx, failed, over, a.failures)
		}
		return nil
	})
	if errors.Is(err, ErrLost) || timers.Lost(err) {
		return 0, nil
	}
	if err == nil && attempt == 0 {
		a.r.ticks.Wake()
	}
	if err == nil && over != "" {
		a.r.cfg.Logger.Error("a firing has failed", "job", a.key.job, "tenant", a.key.tenant, "slot", a.slot, "error", over)
	}
	return attempt, err
}

// watch ends the context of the job when the firing is somebody else's.
func (a *run) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for wait(ctx, a.r.cfg.Poll); ctx.Err() == nil; wait(ctx, a.r.cfg.Poll) {
		var mine bool
		err := a.r.pool.QueryRow(ctx, a.r.sql(mineSQL), a.key.job, a.key.tenant, a.slot, a.timer.Token).Scan(&mine)
		if err == nil && !mine {
			cancel(ErrLost)
			return
		}
	}
}

// safely makes an error of a panic.
func (a *run) safely(ctx context.Context, f Firing) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the job panicked: %s", panics.Describe(value))
			a.r.cfg.Logger.Error("a job panicked", "job", f.Job, "tenant", f.Tenant, "slot", f.Slot, "panic", panics.Describe(value), "stack", panics.Stack())
		}
	}()
	return a.job.Run(ctx, f)
}

// patiently writes down what became of an attempt; a database that is away for a moment does not make it run again.
func (a *run) patiently(ctx context.Context, write func() error) error {
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		err := write()
		if err == nil || errors.Is(err, ErrLost) || timers.Lost(err) || (*a.r.stop.Load()).Err() != nil {
			return err
		}
		if wait(ctx, pause); ctx.Err() != nil {
			return err
		}
	}
}

// fail writes down that an attempt has failed, and when the next one is.
func (a *run) fail(ctx context.Context, fault error) error {
	text := retry.Text(fault.Error())
	failures := a.failures + 1
	if a.job.policy.Spent(failures) {
		err := a.r.inTx(ctx, func(tx pgx.Tx) error {
			return a.end(ctx, tx, failed, text, failures)
		})
		if err == nil {
			a.r.cfg.Logger.Error("a firing has failed", "job", a.key.job, "tenant", a.key.tenant, "slot", a.slot, "failures", failures, "error", text)
		}
		return err
	}
	delay := a.job.policy.Delay(failures, nil)
	err := a.r.inTx(ctx, func(tx pgx.Tx) error {
		if err := a.hold(ctx, tx); err != nil {
			return err
		}
		if err := a.update(ctx, tx, retrySQL, text, failures); err != nil {
			return err
		}
		b := &pgx.Batch{}
		timers.Retry(b, a.r.cfg.Schema, a.r.cfg.now(), []timers.Failure{{Timer: a.timer, After: delay, Err: fault}})
		return send(ctx, tx, b)
	})
	if err == nil && delay < 2*a.r.cfg.Poll {
		a.job.runs.Wake()
	}
	return err
}

// giveBack leaves the firing as it was, for another process or the next Run: that this process ends is nobody's fault.
func (a *run) giveBack(ctx context.Context, fault error) error {
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := a.r.inTx(brief, func(tx pgx.Tx) error {
		if err := a.hold(brief, tx); err != nil {
			return err
		}
		return a.update(brief, tx, backSQL)
	})
	if err != nil && !errors.Is(err, ErrLost) {
		a.r.cfg.Logger.Warn("a firing could not be given back: others have it when the lease passes", "job", a.key.job, "tenant", a.key.tenant, "slot", a.slot, "error", err.Error())
	}
	return fault // the timer is given back by who runs it
}

// hasten lets the firing that has replaced this one begin: this one has returned.
func (a *run) hasten(ctx context.Context) error {
	err := a.r.inTx(ctx, func(tx pgx.Tx) error {
		var slot time.Time
		if err := tx.QueryRow(ctx, a.r.sql(behindSQL), a.key.job, a.key.tenant, a.slot).Scan(&slot); err != nil {
			return err
		}
		b := &pgx.Batch{}
		name := nameOf(a.key.tenant, slot)
		timers.Set(b, a.r.cfg.Schema, a.r.cfg.now(), []timers.Setting{{Queue: queueOf(a.key.job), Name: name, Does: fmt.Sprintf("runs %s for %s", title(a.key.job, a.key.tenant), slot.UTC().Format(slotForm))}})
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		// With its timer locked nobody begins it; somebody may have before.
		var still bool
		if err := tx.QueryRow(ctx, a.r.sql(stillSQL), a.key.job, a.key.tenant, slot).Scan(&still); err != nil {
			return err
		}
		if !still {
			return pgx.ErrNoRows
		}
		return nil
	})
	if err == nil {
		a.job.runs.Wake()
	} else if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return err
}

const (
	firingSQL = `
SELECT f.state, f.attempt, f.failures, f.token, f.owner, f.progress, coalesce(s.missed, 'once'), coalesce(s.too_late, '0'), coalesce($4::timestamptz, clock_timestamp())
  FROM {schema}.schedule_firings f LEFT JOIN {schema}.schedules s ON s.job = f.job AND s.tenant = f.tenant
 WHERE f.job = $1 AND f.tenant = $2 AND f.slot = $3 AND f.ended_at IS NULL FOR UPDATE OF f`

	beginSQL = `
UPDATE {schema}.schedule_firings SET state = 'running', attempt = $4, failures = $5, token = $6, owner = $7, started_at = CASE WHEN $4::int > 0 THEN coalesce(started_at, $8) END
 WHERE job = $1 AND tenant = $2 AND slot = $3`

	mineSQL = `SELECT EXISTS (SELECT FROM {schema}.schedule_firings
 WHERE job = $1 AND tenant = $2 AND slot = $3 AND token = $4 AND (state = 'running' OR state = 'done'))`

	retrySQL = `
UPDATE {schema}.schedule_firings SET state = 'retrying', error = $5, failures = $6
 WHERE job = $1 AND tenant = $2 AND slot = $3 AND token = $4 AND state = 'running'`

	backSQL = `
UPDATE {schema}.schedule_firings SET state = 'waiting'
 WHERE job = $1 AND tenant = $2 AND slot = $3 AND token = $4 AND state = 'running'`

	behindSQL = `
SELECT slot FROM {schema}.schedule_firings
 WHERE job = $1 AND tenant = $2 AND slot > $3 AND state = 'waiting' AND attempt = 0 AND ended_at IS NULL ORDER BY slot LIMIT 1`

	stillSQL = `SELECT state = 'waiting' FROM {schema}.schedule_firings WHERE job = $1 AND tenant = $2 AND slot = $3 FOR UPDATE`
)
