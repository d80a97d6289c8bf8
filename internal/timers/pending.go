package timers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxCounted bounds what [Overdue] reads.
const maxCounted = 10_000

// Overdue counts timers that could have been claimed since before now-grace, and have not been: nobody runs the queue, or
// too few. Timers that wait for their due times, for the end of a pause, or are being handled, do not count. n is at most
// 10,000; since is the time of the first, zero when there is none. now nil is the database's clock.
func Overdue(ctx context.Context, db DB, schema, queue string, now *time.Time, grace time.Duration) (n int, since time.Time, err error) {
	var first *time.Time
	err = db.QueryRow(ctx, in(schema, overdueSQL), queue, micros(now), grace.Truncate(time.Microsecond), maxCounted).Scan(&n, &first)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("timers: count what is overdue of %q: %w", queue, err)
	}
	if first != nil {
		since = *first
	}
	return n, since, nil
}

// Pending is a timer as it stands, for people.
type Pending struct {
	Queue, Name string
	Due         time.Time
	// Visible is when it is claimed at the earliest. While Owner has claimed it, it is the end of the lease.
	Visible  time.Time
	Owner    string // empty: nobody has claimed it
	Attempts int    // how many have failed
	Error    string // of the last attempt
	Does     string
	SetAt    time.Time // by the database's clock
}

// List returns the timers of the queue whose names begin with prefix, the next due first, at most limit. Each reader of
// such a prefix pays for all of its timers: it is meant for those of one instance.
func List(ctx context.Context, db DB, schema, queue, prefix string, limit int) ([]Pending, error) {
	rows, err := db.Query(ctx, in(schema, listSQL), queue, prefix, behind(prefix), limit)
	if err != nil {
		return nil, fmt.Errorf("timers: list %q: %w", queue, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Pending, error) {
		p := Pending{Queue: queue}
		err := row.Scan(&p.Name, &p.Due, &p.Visible, &p.Owner, &p.Attempts, &p.Error, &p.Does, &p.SetAt)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("timers: list %q: %w", queue, err)
	}
	return list, nil
}

const (
	overdueSQL = `
SELECT count(*)::int, min(visible_at) FROM (
  SELECT visible_at FROM {schema}.timers
   WHERE queue || '' = $1 AND visible_at < (SELECT coalesce($2::timestamptz, clock_timestamp()) - $3::interval)
   ORDER BY visible_at, id + 0 LIMIT $4::int) AS o`

	listSQL = `
SELECT name, due_at, visible_at, owner, attempts, error, does, set_at FROM {schema}.timers
 WHERE queue = $1 AND name >= $2 AND name < $3 ORDER BY due_at, name LIMIT $4::int`
)
