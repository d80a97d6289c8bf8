package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/owner"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/timers"
)

// forgotten is how long nobody has known a job until it is an orphan.
const forgotten = 5 * time.Minute

// Runner carries out the firings of its jobs, and decides what is due of all jobs of the store. Any number of processes
// run the same jobs, or some of them. It is made by [NewRunner]. It is safe for concurrent use, but Run only once at a time.
type Runner struct {
	pool    *pgxpool.Pool
	cfg     Config
	owner   string
	jobs    []*worker
	byName  map[string]*worker
	ticks   *timers.Runner
	running atomic.Bool
	stop    atomic.Pointer[context.Context] // of the Run that is under way

	mu        sync.Mutex
	calendars map[[2]string]calendar // of expression and zone
}

// worker is a job with what runs its firings.
type worker struct {
	job
	runs *timers.Runner

	mu      sync.Mutex
	tenants map[string]bool // nil: not asked yet, or none; see knows
}

// knows says whether the job is this process's for a tenant.
func (w *worker) knows(tenant string) bool {
	if w.Tenants == nil {
		return tenant == ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tenants[tenant]
}

// NewRunner checks the jobs; it touches no database. The error names all faults, each with job, field, value and remedy:
// an expression that cannot be read or never comes, a zone that is not known.
//
// pool is of the store's database. The runner takes connections from it for short transactions only, none while a job
// runs.
func NewRunner(pool *pgxpool.Pool, cfg Config, jobs ...Job) (*Runner, error) {
	faults := []error{cfg.validate()}
	if pool == nil {
		faults = append(faults, errors.New("schedule: pool is nil: pass the pool of the store's database"))
	}
	cfg = cfg.withDefaults()
	r := &Runner{pool: pool, cfg: cfg, owner: owner.Name(), byName: map[string]*worker{}, calendars: map[[2]string]calendar{}}
	for _, j := range jobs {
		made, err := j.check()
		faults = append(faults, err)
		if r.byName[j.Name] != nil {
			faults = append(faults, fmt.Errorf("schedule: job %q: Name: is that of another job too: give each its own", j.Name))
		}
		w := &worker{job: made}
		r.jobs, r.byName[j.Name] = append(r.jobs, w), w
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	var err error
	shared := timers.Config{Schema: cfg.Schema, Owner: r.owner, Lease: cfg.Lease, Poll: cfg.Poll, Clock: cfg.Clock, Logger: cfg.Logger}
	looks := shared
	looks.Queue, looks.Retry = ticks, retry.Policy{Base: cfg.Poll}
	if r.ticks, err = timers.NewRunner(looks, r.decideDue); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	for _, w := range r.jobs {
		runs := shared
		runs.Queue, runs.Group, runs.Batch, runs.Workers, runs.Timeout = queueOf(w.Name), 1, w.Workers, w.Workers, w.Timeout+cfg.margin
		runs.Retry = retry.Policy{Base: cfg.Poll} // of faults of the database; what the job fails of has its own
		if w.runs, err = timers.NewRunner(runs, w.handler(r)); err != nil {
			return nil, fmt.Errorf("schedule: %w", err)
		}
	}
	return r, nil
}

// Run registers the jobs and carries out their firings until ctx ends; then it returns within two seconds. The contexts
// of jobs that are at work end a second after ctx: a firing that does not come to its end is given back with its progress, and
// goes on elsewhere at once. A database that is away is waited for. The error is nil, one of the store that is not there, or
// names firings whose jobs have not returned.
//
// A job that the store knows with another Cron or Zone has its next slot by the new ones, from now on; of several programs
// that differ, the one that began to run last counts.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("schedule: run: the runner runs already: make another, or call Run once")
	}
	defer r.running.Store(false)
	r.stop.Store(&ctx)
	if err := r.register(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	runs := func(t *timers.Runner) {
		all.Go(func() {
			if err := t.Run(ctx, r.pool); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Errorf("schedule: %w", err))
			}
		})
	}
	runs(r.ticks)
	for _, w := range r.jobs {
		runs(w.runs)
	}
	all.Go(func() { r.tend(ctx) })
	all.Wait()
	return errors.Join(faults...)
}

// register makes the jobs known, as soon as the database answers.
func (r *Runner) register(ctx context.Context) error {
	var pause time.Duration
	for {
		err := r.refresh(ctx, true)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42501" || pg.Code == "3F000" || pg.Code == "42703") {
			return fmt.Errorf("schedule: run: the store is not there, too old, or not granted to the role: migrate it, and grant what its grants file lists: %w", err)
		}
		pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
		r.cfg.Logger.Warn("schedules cannot be registered; trying again", "error", err.Error())
		wait(ctx, pause)
	}
}

// tend asks for tenants, says that the jobs are known, and removes old firings.
func (r *Runner) tend(ctx context.Context) {
	var cleaned time.Time
	for wait(ctx, r.cfg.Refresh); ctx.Err() == nil; wait(ctx, r.cfg.Refresh) {
		err := r.refresh(ctx, false)
		if err == nil && time.Since(cleaned) >= time.Hour {
			cleaned = time.Now()
			err = r.clean(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("schedules cannot be looked after; trying again", "error", err.Error())
		}
	}
}

// clean removes firings that ended long ago, a few at a time.
func (r *Runner) clean(ctx context.Context) error {
	for ctx.Err() == nil {
		tag, err := r.pool.Exec(ctx, r.sql(cleanSQL), pgx.QueryExecModeExec, r.cfg.now(), r.cfg.Keep)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
	}
	return nil
}

const cleanSQL = `
DELETE FROM {schema}.schedule_firings f USING (
  SELECT job, tenant, slot FROM {schema}.schedule_firings
   WHERE ended_at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval ORDER BY ended_at LIMIT 1000) AS old
 WHERE f.job = old.job AND f.tenant = old.tenant AND f.slot = old.slot`

// calendarOf reads what a row says; the last ones are kept.
func (r *Runner) calendarOf(expression, zone string) (calendar, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := [2]string{expression, zone}
	if c, ok := r.calendars[k]; ok {
		return c, nil
	}
	c, err := calendarFor(expression, zone)
	if err != nil {
		return calendar{}, err
	}
	if len(r.calendars) >= 1000 {
		clear(r.calendars)
	}
	r.calendars[k] = c
	return c, nil
}

// Health says how the jobs of this runner are doing, as this process knows it; it touches no database. Not ready is a runner
// that does not run or waits for the database. A job with a run that ignores the end of its context is in state "stuck", in
// its part and in the whole; all others go on, so that it is ready. Whether slots are overdue because nobody runs, [List] says.
func (r *Runner) Health(ctx context.Context) eventstore.Health {
	h := r.ticks.Health(ctx)
	h.Component, h.Parts = "schedules", nil
	for _, w := range r.jobs {
		part := w.runs.Health(ctx)
		part.Component = "job " + w.Name
		if hung := w.runs.Status().Hung; len(hung) > 0 {
			part.State, part.Since = "stuck", hung[0].Since
			if h.State == string(timers.Running) {
				h.State, h.Since, h.Reason = part.State, part.Since, part.Component+": "+part.Reason
			}
		} else if !part.Ready && h.Ready {
			h.Ready, h.State, h.Since, h.Reason = false, part.State, part.Since, part.Component+": "+part.Reason
		}
		h.Parts = append(h.Parts, part)
	}
	return h
}

// wait ends early with ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
