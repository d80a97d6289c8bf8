package saga

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/timers"
)

// timerWorkers is how many transactions of due timers of one saga run at once in a process.
const timerWorkers = 2

// newTimers makes the runner of a saga's timers. Every process runs one: timers are claimed one by one.
func (u *unit) newTimers(db func() *pgxpool.Pool) (*timers.Runner, error) {
	cfg := timers.Config{
		Schema: u.schema, Queue: timerQueue(u.name), Lease: u.cfg.Lease, Poll: u.cfg.Poll, Batch: min(u.cfg.BatchSize, 1000),
		Workers: timerWorkers, Retry: u.cfg.policy(), Clock: u.cfg.Clock, Logger: u.log, Probe: u.cfg.Probe,
	}
	if poll := u.cfg.Lease / 4; cfg.Poll > poll { // what is claimed ahead must not outlive its lease
		cfg.Poll = poll
	}
	return timers.NewRunner(cfg, func(ctx context.Context, due []timers.Timer) error { return u.fire(ctx, db(), due) })
}

// fire lets instances react to timers that are due, as far as everything before them is taken; see [unit.settle]. The others
// are given back, without an attempt. What the database alone is to blame for counts as no attempt either.
func (u *unit) fire(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) error {
	// Those that came together were set for different times perhaps, and by one transaction or several: time decides.
	slices.SortStableFunc(due, func(a, b timers.Timer) int { return a.Due.Compare(b.Due) })
	ready, later, err := u.settle(ctx, db, due)
	if err == nil && len(ready) > 0 {
		err = u.fireNow(ctx, db, ready)
	}
	if err != nil || len(later) == 0 {
		return u.excused(err, len(due) == 1)
	}
	b := &pgx.Batch{}
	b.Queue(planSQL)
	timers.Release(b, u.schema, later)
	err = db.SendBatch(ctx, b).Close()
	u.wakeTimers()
	if err != nil && len(ready) == 0 {
		return fmt.Errorf("saga: put off timers of %q: %w", u.name, err)
	}
	return nil // those that could not be given back come when their leases pass
}

// fireNow lets instances react to timers in one transaction. Of several one that fails fails them all, and then each comes
// alone.
func (u *unit) fireNow(ctx context.Context, db *pgxpool.Pool, due []timers.Timer) error {
	var places []place
	names := map[string]flow.Ref{}
	for _, timer := range due {
		if ref, _, ok := parseTimer(u.name, timer.Name); ok {
			names[timer.Name] = ref
			places = append(places, place{ref.Key, ref.Run})
		}
	}
	t := u.turn()
	err := u.transact(ctx, db, func(b *pgx.Batch) { t.load(b, nil, nil, places) }, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
		held, err := timers.Held(ctx, tx, u.schema, due)
		if err != nil {
			return err
		}
		t.counts.timersIgnored += int64(len(due) - len(held)) // cancelled, set anew or taken over
		slices.SortStableFunc(held, func(a, b timers.Timer) int { return a.Due.Compare(b.Due) })
		for n, timer := range held {
			if err := u.ring(ctx, t, timer, n); err != nil {
				return err
			}
		}
		timers.Finish(b, u.schema, held)
		u.cfg.Probe(ProbeFired)
		return t.write(ctx, tx, b)
	})
	if err == nil {
		u.committed(t)
		return nil
	}
	if timer := due[0]; len(due) == 1 && unwritable(err) && u.policy.Spent(timer.Attempts+1) {
		return u.spent(ctx, db, timer, names[timer.Name], err)
	}
	return err
}

// faultyReaction is a failure of a definition, not of the database.
type faultyReaction struct{ error }

func (e faultyReaction) Unwrap() error { return e.error }

// atFault reports whether a definition is to blame, or what it sends, and not the database.
func atFault(err error) bool {
	var reaction faultyReaction
	var input *faultyInput
	return errors.As(err, &reaction) || errors.As(err, &input) || errors.Is(err, eventstore.ErrInvalid)
}

// excused marks an error that no timer is to blame for, but the database: it could not be reached, was busy, or too slow. The
// runner waits, and counts no attempt. Several timers that took too long together are handled one by one instead.
func (u *unit) excused(err error, alone bool) error {
	var pg *pgconn.PgError
	switch {
	case err == nil, unwritable(err), timers.Lost(err):
		return err
	case errors.As(err, &pg) && ofTheDatabase(pg.Code), alone && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", eventstore.ErrBusy, err)
	}
	return err
}

// ofTheDatabase tells codes of a database that is away, busy, too slow or being changed.
func ofTheDatabase(code string) bool {
	switch code {
	case "55P03", "25006", "25P03": // lock timeout, read-only, a transaction that rested too long
		return true
	}
	for _, class := range [...]string{"08", "40", "53", "57", "58"} { // connection, rolled back, out of resources, interfered with, input or output
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// ring lets an instance react to one timer.
func (u *unit) ring(ctx context.Context, t *turn, timer timers.Timer, n int) error {
	ref, name, ok := parseTimer(u.name, timer.Name)
	in := t.instances[place{ref.Key, ref.Run}]
	switch {
	case !ok, in == nil, in.ended():
		t.counts.timersIgnored++
		return nil
	}
	if set, touched := in.timers[name]; touched && set == nil || in.cancelAll || set != nil {
		t.counts.timersIgnored++ // by one before it in this transaction
		return nil
	}
	s := stimulus{Input: flow.Input{Timer: name}, index: n}
	if err := t.react(ctx, in, s); err != nil {
		return faultyReaction{err}
	}
	t.counts.timersFired++
	return nil
}

// spent gives up a timer whose reaction fails: its instance is stuck, and the timer does nothing until an operator retries.
func (u *unit) spent(ctx context.Context, db *pgxpool.Pool, timer timers.Timer, ref flow.Ref, cause error) error {
	text := standingText(timer.Name[len(timerPrefix(ref)):], timer.Attempts+1, cause)
	t := u.turn()
	places := []place{{ref.Key, ref.Run}}
	given := false
	err := u.transact(ctx, db, func(b *pgx.Batch) { t.load(b, nil, nil, places) }, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
		held, err := timers.Held(ctx, tx, u.schema, []timers.Timer{timer})
		if err != nil || len(held) == 0 {
			return err
		}
		given = true
		timers.Retry(b, u.schema, u.clock(), []timers.Failure{{Timer: timer, After: never, Err: cause}})
		in := t.instances[places[0]]
		if in == nil || in.machine == nil {
			return nil
		}
		b.Queue(u.sql.stuck, u.name, in.key, in.run, u.clock(), text)
		if in.facts.Stuck.Reason == "" {
			t.sticks(in, flow.Stuck{Reason: flow.DeadLetter})
		}
		in.history = append(in.history, flow.Entry{Kind: "stuck", Text: text})
		t.change(in, 0)
		t.writeHistory(b)
		return nil
	})
	if err != nil || !given {
		return err
	}
	u.committed(t)
	u.sum.timersFailed.Add(1)
	u.log.Error("a timer was given up: its instance is stuck until an operator retries", "key", ref.Key, "run", ref.Run, "error", text)
	return nil
}

const (
	// never is when a timer comes again that was given up.
	never = 250 * 365 * 24 * time.Hour
	// frozen is how long after it is due a timer of a paused instance would come: by it those are known from what was given up.
	frozen = 260 * 365 * 24 * time.Hour
)

// stuckSQL: what is stuck already stays so.
const stuckSQL = `
UPDATE {schema}.sagas s
   SET stuck = CASE s.stuck WHEN '' THEN 'dead_letter' ELSE s.stuck END, stuck_text = CASE s.stuck WHEN '' THEN $5 ELSE s.stuck_text END,
       stuck_since = CASE s.stuck WHEN '' THEN coalesce($4::timestamptz, clock_timestamp()) ELSE s.stuck_since END,
       entries = s.entries + 1, changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = s.revision + 1
 WHERE s.saga = $1 AND s.key = $2 AND s.run = $3`
