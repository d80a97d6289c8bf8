package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DB is a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Record is what became of a slot.
type Record struct {
	Job, Tenant string
	Slot        time.Time
	// State is "waiting" for a process, "running", "retrying" after a pause; "done", "failed" for good, "missed" without having
	// begun, or "replaced" by a later slot.
	State string
	// Attempts is how often it was begun, Failures how many of them failed or ended with their process.
	Attempts, Failures int
	// Error is of the last attempt that failed, or says why the slot was missed.
	Error string
	// Owner is the process of the last attempt.
	Owner              string
	StartedAt, EndedAt time.Time // zero: not yet, or never
}

// Option changes what [History], [List] and [Summarize] read.
type Option func(*reading)

type reading struct {
	schema string
	tenant *string
	limit  int
}

// InSchema names the PostgreSQL schema of the store. Default "daybook".
func InSchema(schema string) Option { return func(r *reading) { r.schema = schema } }

// OfTenant reads one tenant only. Default: all.
func OfTenant(tenant string) Option { return func(r *reading) { r.tenant = &tenant } }

// AtMost is how many are returned. Default 100.
func AtMost(n int) Option { return func(r *reading) { r.limit = n } }

func readingOf(options []Option) reading {
	r := reading{schema: defaultSchema, limit: 100}
	for _, o := range options {
		o(&r)
	}
	return r
}

// History returns what became of the slots of a job, the latest first: those that were missed, too. Firings that ended
// longer ago than Config.Keep are gone.
func History(ctx context.Context, db DB, job string, options ...Option) ([]Record, error) {
	o := readingOf(options)
	rows, err := db.Query(ctx, in(o.schema, historySQL), job, o.tenant, o.limit)
	if err != nil {
		return nil, fmt.Errorf("schedule: history of %s: %w", job, err)
	}
	list, err := pgx.CollectRows(rows, func(line pgx.CollectableRow) (Record, error) {
		r := Record{Job: job}
		var started, ended *time.Time
		err := line.Scan(&r.Tenant, &r.Slot, &r.State, &r.Attempts, &r.Failures, &r.Error, &r.Owner, &started, &ended)
		r.Slot, r.StartedAt, r.EndedAt = r.Slot.UTC(), utc(started), utc(ended)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("schedule: history of %s: %w", job, err)
	}
	return list, nil
}

// Schedule is a job, or the job of a tenant, as it stands.
type Schedule struct {
	Job, Tenant string
	Cron, Zone  string // as they were written
	Missed      Missed
	Overlap     Overlap
	// Next is the slot that comes next. Overdue is how long it has been due without a decision, by the database's clock: it
	// waits for an earlier one, or nobody runs.
	Next    time.Time
	Overdue time.Duration
	// Open is how many firings wait, run or are tried again; Last is the last slot decided about, zero when there was none.
	Open int
	Last time.Time
	// Seen is when a process said last that it knows the job. Orphaned are those that none has known for five minutes: they
	// stay as they are, do not fire, and go on where they were when a process knows them again.
	Seen     time.Time
	Orphaned bool
}

// List returns the schedules of the store, by job and tenant.
func List(ctx context.Context, db DB, options ...Option) ([]Schedule, error) {
	o := readingOf(options)
	rows, err := db.Query(ctx, in(o.schema, listSQL), o.tenant, o.limit, forgotten)
	if err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(line pgx.CollectableRow) (Schedule, error) {
		var s Schedule
		var last *time.Time
		err := line.Scan(&s.Job, &s.Tenant, &s.Cron, &s.Zone, &s.Missed, &s.Overlap, &s.Next, &s.Overdue, &last, &s.Seen, &s.Orphaned, &s.Open)
		s.Next, s.Last, s.Seen = s.Next.UTC(), utc(last), s.Seen.UTC()
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("schedule: list: %w", err)
	}
	return list, nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

const (
	historySQL = `
SELECT tenant, slot, state, attempt, failures, error, owner, started_at, ended_at FROM {schema}.schedule_firings
 WHERE job = $1 AND ($2::text IS NULL OR tenant = $2) ORDER BY slot DESC, tenant LIMIT $3::int`

	listSQL = `
SELECT s.job, s.tenant, s.expression, s.zone, s.missed, s.overlap, s.next_slot,
       greatest(extract(epoch FROM clock_timestamp() - s.next_slot), 0) * interval '1 second', s.last_slot, s.seen_at, s.seen_at < clock_timestamp() - $3::interval,
       (SELECT count(*) FROM {schema}.schedule_firings f WHERE f.job = s.job AND f.tenant = s.tenant AND f.ended_at IS NULL)::int
  FROM {schema}.schedules s WHERE $1::text IS NULL OR s.tenant = $1 ORDER BY s.job, s.tenant LIMIT $2::int`
)
