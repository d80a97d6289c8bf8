package schedule

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/timers"
)

// known is a schedule that this process defines.
type known struct {
	key
	job *worker
}

// chunk is how many schedules one transaction defines.
const chunk = 1000

// refresh asks for tenants, and sees to it that each schedule has a row and a timer. Definitions are written by the first
// one only, so that processes that differ do not take turns.
func (r *Runner) refresh(ctx context.Context, first bool) error {
	var faults []error
	for list := range slices.Chunk(r.mine(ctx), chunk) {
		need := list
		if !first {
			var err error
			if need, err = r.lacking(ctx, list); err != nil {
				faults = append(faults, err)
				continue
			}
		}
		faults = append(faults, r.define(ctx, need, first))
	}
	return errors.Join(faults...)
}

// mine lists the schedules of the jobs. Tenants that cannot be asked for stay what they were.
func (r *Runner) mine(ctx context.Context) []known {
	var all []known
	for _, w := range r.jobs {
		if w.Tenants == nil {
			all = append(all, known{key{w.Name, ""}, w})
			continue
		}
		w.ask(ctx, r)
		w.mu.Lock()
		for tenant := range w.tenants {
			all = append(all, known{key{w.Name, tenant}, w})
		}
		w.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b known) int { return a.compare(b.key) })
	return all
}

// ask asks for the tenants of a job. One that cannot be a tenant is left out, and said.
func (w *worker) ask(ctx context.Context, r *Runner) {
	tenants, err := w.Job.Tenants(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.cfg.Logger.Warn("tenants cannot be asked for; those known stay", "job", w.Name, "error", err.Error())
		}
		return
	}
	set := make(map[string]bool, len(tenants))
	for _, tenant := range tenants {
		if err := checkTenant(tenant); err != nil {
			r.cfg.Logger.Error("a tenant is left out", "job", w.Name, "error", err.Error())
			continue
		}
		set[tenant] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants = set
}

// lacking says that schedules are known, and returns those that have no row or no timer that is due in time.
func (r *Runner) lacking(ctx context.Context, list []known) ([]known, error) {
	keys := make([]key, len(list))
	for i, k := range list {
		keys[i] = k.key
	}
	jobs, tenants := columns(keys)
	now := r.cfg.now()
	if _, err := r.pool.Exec(ctx, r.sql(seenSQL), jobs, tenants, now); err != nil {
		return nil, fmt.Errorf("schedule: say what is known: %w", err)
	}
	rows, err := r.pool.Query(ctx, r.sql(lackingSQL), jobs, tenants, ticks)
	if err != nil {
		return nil, fmt.Errorf("schedule: look for timers: %w", err)
	}
	places, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("schedule: look for timers: %w", err)
	}
	need := make([]known, len(places))
	for i, n := range places {
		need[i] = list[n-1]
	}
	return need, nil
}

// define writes rows and timers. The first slot of what is new, or has another calendar, is the first from now on, and
// behind the last one that was decided.
func (r *Runner) define(ctx context.Context, list []known, redefine bool) error {
	if len(list) == 0 {
		return nil
	}
	keys := make([]key, len(list))
	for i, k := range list {
		keys[i] = k.key
	}
	jobs, tenants := columns(keys)
	err := r.inTx(ctx, func(tx pgx.Tx) error {
		// One at a time: of two that add a schedule at once, the timer of one must not be later than the row of the other.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lockOf(r.cfg.Schema)); err != nil {
			return err
		}
		stored, now, err := r.lockRows(ctx, tx, jobs, tenants)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		var settings []timers.Setting
		for _, k := range list {
			want := row{
				job: k.job.Name, tenant: k.tenant, expression: k.job.Cron, zone: k.job.calendar.zone.String(),
				missed: k.job.Missed, overlap: k.job.Overlap, tooLate: k.job.TooLate,
			}
			had, there := stored[k.key]
			want.next = had.next
			if there && !redefine {
				settings = append(settings, tickOf(k.job.Name, k.tenant, had.next))
				continue
			}
			if !there || had.expression != want.expression || had.zone != want.zone {
				from := now
				if had.last != nil && had.last.After(from) {
					from = *had.last
				}
				if want.next, err = k.job.calendar.of(k.job.Name, k.tenant).next(from); err != nil {
					return err
				}
			}
			b.Queue(r.sql(defineSQL), want.job, want.tenant, want.expression, want.zone, string(want.missed), string(want.overlap), want.tooLate, want.next, now)
			settings = append(settings, tickOf(k.job.Name, k.tenant, want.next))
		}
		timers.Set(b, r.cfg.Schema, r.cfg.now(), settings)
		return send(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("schedule: register: %w", err)
	}
	r.ticks.Wake()
	return nil
}

func lockOf(schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("daybook schedules\x00" + schema))
	return int64(h.Sum64())
}

// lockRows locks schedules, in order, and reads them, and then the time.
func (r *Runner) lockRows(ctx context.Context, tx pgx.Tx, jobs, tenants []string) (map[key]row, time.Time, error) {
	rows, err := tx.Query(ctx, r.sql(lockSQL), jobs, tenants)
	if err != nil {
		return nil, time.Time{}, err
	}
	all := map[key]row{}
	var s row
	_, err = pgx.ForEachRow(rows, []any{&s.job, &s.tenant, &s.expression, &s.zone, &s.missed, &s.overlap, &s.tooLate, &s.next, &s.last, &s.seen}, func() error {
		s.next = s.next.UTC()
		all[key{s.job, s.tenant}] = s
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	var now time.Time
	err = tx.QueryRow(ctx, `SELECT coalesce($1::timestamptz, clock_timestamp())`, r.cfg.now()).Scan(&now)
	return all, now.UTC(), err
}

const (
	lockSQL = `
SELECT s.job, s.tenant, s.expression, s.zone, s.missed, s.overlap, s.too_late, s.next_slot, s.last_slot, s.seen_at
  FROM unnest($1::text[], $2::text[]) AS k(job, tenant) JOIN {schema}.schedules s ON s.job = k.job AND s.tenant = k.tenant
 ORDER BY s.job, s.tenant FOR UPDATE OF s`

	defineSQL = `
INSERT INTO {schema}.schedules AS s (job, tenant, expression, zone, missed, overlap, too_late, next_slot, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (job, tenant) DO UPDATE SET expression = excluded.expression, zone = excluded.zone, missed = excluded.missed, overlap = excluded.overlap,
       too_late = excluded.too_late, seen_at = greatest(s.seen_at, excluded.seen_at),
       next_slot = CASE WHEN s.expression = excluded.expression AND s.zone = excluded.zone THEN s.next_slot ELSE excluded.next_slot END`

	// What is locked is being decided about, and seen next time.
	seenSQL = `
WITH n AS MATERIALIZED (SELECT coalesce($3::timestamptz, clock_timestamp()) AS now),
old AS MATERIALIZED (
  SELECT s.job, s.tenant, n.now FROM n, unnest($1::text[], $2::text[]) AS k(job, tenant) JOIN {schema}.schedules s ON s.job = k.job AND s.tenant = k.tenant
   WHERE s.seen_at < n.now - interval '50 seconds' ORDER BY s.job, s.tenant FOR UPDATE OF s SKIP LOCKED)
UPDATE {schema}.schedules s SET seen_at = old.now FROM old WHERE s.job = old.job AND s.tenant = old.tenant`

	lackingSQL = `
SELECT k.nth::int FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(job, tenant, nth)
  LEFT JOIN {schema}.schedules s ON s.job = k.job AND s.tenant = k.tenant
  LEFT JOIN {schema}.timers t ON t.queue = $3 AND t.name = k.job || '/' || k.tenant
 WHERE s.job IS NULL OR t.name IS NULL OR t.owner = '' AND t.due_at > s.next_slot + interval '10 seconds'`
)
