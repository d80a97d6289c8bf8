package schedule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/timers"
)

// ErrLost says that a firing is not the caller's any more: another process has taken it over, a later slot has replaced it,
// or it has ended. Nothing was written; in a transaction, roll it back. Return it, or any error, from Job.Run.
var ErrLost = errors.New("schedule: the firing was taken over, replaced or has ended")

// Firing is one slot of a job, in the hands of the one who carries it out. Its methods are safe for concurrent use, also with
// other firings. The zero value, for tests of a job, saves and finishes nothing, without an error.
type Firing struct {
	Job string
	// Tenant is empty for a job without tenants.
	Tenant string
	// Slot is the time that the calendar says, in UTC. It is the same in each attempt.
	Slot time.Time
	// Attempt counts from 1 how often the firing was begun, by whatever process.
	Attempt int

	run *run
}

// run is an attempt at a firing.
type run struct {
	r     *Runner
	job   *worker
	timer timers.Timer
	key   key
	slot  time.Time

	failures int

	mu       sync.Mutex
	progress []byte
}

// Progress returns what was saved last, in this attempt or an earlier one; nil when nothing was. A transaction of
// [Firing.SaveTx] that was rolled back counts only within the attempt.
func (f Firing) Progress() []byte {
	if f.run == nil {
		return nil
	}
	f.run.mu.Lock()
	defer f.run.mu.Unlock()
	return bytes.Clone(f.run.progress)
}

// Save records how far the job is, for whoever goes on after this attempt. It commits. The error is [ErrLost] when the
// firing is somebody else's now.
func (f Firing) Save(ctx context.Context, progress []byte) error {
	if f.run == nil {
		return nil
	}
	err := f.run.r.inTx(ctx, func(tx pgx.Tx) error { return f.run.save(ctx, tx, progress) })
	return f.fault("save progress", err)
}

// SaveTx is Save within a transaction on the store's database: progress and what the transaction does commit together, or
// not at all, so that a step that is recorded is not done twice. The caller commits. Nobody takes over the firing before
// the transaction ends, so keep it short.
func (f Firing) SaveTx(ctx context.Context, tx pgx.Tx, progress []byte) error {
	if f.run == nil {
		return nil
	}
	return f.fault("save progress", f.run.save(ctx, tx, progress))
}

// Finish ends the firing within a transaction on the store's database: what the transaction does has its effect once, for
// this slot, whatever dies. The caller commits, and then returns nil from Job.Run. It is the last call in the transaction;
// [ErrLost] means that it must be rolled back. When the transaction is not committed the firing has not ended: return an
// error to have it tried again.
func (f Firing) Finish(ctx context.Context, tx pgx.Tx) error {
	if f.run == nil {
		return nil
	}
	return f.fault("finish", f.run.end(ctx, tx, done, "", f.run.failures))
}

func (f Firing) fault(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost) || timers.Lost(err):
		return fmt.Errorf("schedule: %s of %s for %s: %w", what, title(f.Job, f.Tenant), f.Slot.Format(slotForm), ErrLost)
	}
	return fmt.Errorf("schedule: %s of %s for %s: %w", what, title(f.Job, f.Tenant), f.Slot.Format(slotForm), err)
}

func (a *run) save(ctx context.Context, tx pgx.Tx, progress []byte) error {
	if progress == nil {
		progress = []byte{}
	}
	if err := a.hold(ctx, tx); err != nil {
		return err
	}
	if err := a.update(ctx, tx, saveSQL, progress); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress = bytes.Clone(progress)
	return nil
}

// hold locks the timer, which nobody can claim then.
func (a *run) hold(ctx context.Context, tx pgx.Tx) error {
	held, err := timers.Held(ctx, tx, a.r.cfg.Schema, []timers.Timer{a.timer})
	if err == nil && len(held) == 0 {
		err = ErrLost
	}
	return err
}

// update changes the row of the firing, as long as it is this attempt's.
func (a *run) update(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	tag, err := tx.Exec(ctx, a.r.sql(sql), append([]any{a.key.job, a.key.tenant, a.slot, a.timer.Token}, args...)...)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrLost
	}
	return err
}

// end removes the timer and writes down how it ended. A later slot that had to wait is looked at as soon as tx commits.
func (a *run) end(ctx context.Context, tx pgx.Tx, state, text string, failures int) error {
	if err := a.hold(ctx, tx); err != nil {
		return err
	}
	now := a.r.cfg.now()
	if err := a.update(ctx, tx, endSQL, state, text, failures, now); err != nil {
		return err
	}
	b := &pgx.Batch{}
	timers.Finish(b, a.r.cfg.Schema, []timers.Timer{a.timer})
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	var next time.Time
	switch err := tx.QueryRow(ctx, a.r.sql(waitsSQL), a.key.job, a.key.tenant, now).Scan(&next); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	b = &pgx.Batch{}
	timers.Set(b, a.r.cfg.Schema, now, []timers.Setting{tickOf(a.key.job, a.key.tenant, next)})
	return send(ctx, tx, b)
}

const (
	saveSQL = `
UPDATE {schema}.schedule_firings SET progress = $5
 WHERE job = $1 AND tenant = $2 AND slot = $3 AND token = $4 AND state = 'running'`

	endSQL = `
UPDATE {schema}.schedule_firings SET state = $5, error = $6, failures = $7, ended_at = coalesce($8::timestamptz, clock_timestamp())
 WHERE job = $1 AND tenant = $2 AND slot = $3 AND token = $4 AND state = 'running'`

	waitsSQL = `
SELECT next_slot FROM {schema}.schedules
 WHERE job = $1 AND tenant = $2 AND overlap = 'forbid' AND next_slot <= coalesce($3::timestamptz, clock_timestamp())`
)
