package saga

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// CountsCap is how far [Counts] counts: a number that is CountsCap stands for that many or more.
const CountsCap = 10_000

// Count is how many instances a saga has under way, and what keeps them.
type Count struct {
	Saga string `json:"saga"`
	// Running and Compensating are all that have not ended; Stuck are those of them that do not go on by themselves, as the
	// managers know it, Paused those that somebody has paused.
	Running      int       `json:"running"`
	Compensating int       `json:"compensating"`
	Stuck        int       `json:"stuck"`
	StuckSince   time.Time `json:"stuck_since,omitzero"` // the first of them
	Paused       int       `json:"paused"`
	// Timers were due more than 30 s ago and nobody has them; OverdueSince is when the first of them was due.
	Timers       int       `json:"overdue_timers"`
	OverdueSince time.Time `json:"overdue_since,omitzero"`
}

// Counts counts what each saga that has instances has under way, in the order of their names, at most 100 sagas. Each
// number is counted by an index, up to [CountsCap]. Of the options it takes [InSchema] and [At].
func Counts(ctx context.Context, db DB, options ...ExplainOption) ([]Count, error) {
	counts := []Count{}
	o := explainOptions(options)
	err := o.read(ctx, db, "counts", func(tx pgx.Tx) error {
		names, err := o.sagas(ctx, tx, 100)
		if err != nil {
			return err
		}
		var now *time.Time
		if !o.at.IsZero() {
			now = &o.at
		}
		for _, name := range names {
			c := Count{Saga: name}
			var stuck, overdue *time.Time
			err := tx.QueryRow(ctx, o.sql(countsSQL), name, timerQueue(name), CountsCap, now, explainPatience).
				Scan(&c.Running, &c.Compensating, &c.Stuck, &stuck, &c.Paused, &c.Timers, &overdue)
			if err != nil {
				return err
			}
			c.StuckSince, c.OverdueSince = explainTime(stuck), explainTime(overdue)
			counts = append(counts, c)
		}
		return nil
	})
	return counts, err
}

const countsSQL = `
SELECT (SELECT count(*) FROM (SELECT FROM {schema}.sagas s WHERE s.saga = $1 AND s.state = 'running' AND s.ended_at IS NULL LIMIT $3) k)::int,
       (SELECT count(*) FROM (SELECT FROM {schema}.sagas s WHERE s.saga = $1 AND s.state = 'compensating' AND s.ended_at IS NULL LIMIT $3) k)::int,
       (SELECT count(*) FROM (SELECT FROM {schema}.sagas s WHERE s.saga = $1 AND s.stuck <> '' LIMIT $3) k)::int,
       (SELECT s.stuck_since FROM {schema}.sagas s WHERE s.saga = $1 AND s.stuck <> '' ORDER BY s.stuck_since LIMIT 1),
       (SELECT count(*) FROM (SELECT FROM {schema}.sagas s WHERE s.saga = $1 AND s.paused_at IS NOT NULL LIMIT $3) k)::int,
       o.timers, o.since
  FROM (SELECT count(*)::int AS timers, min(k.due_at) AS since FROM (
          SELECT t.due_at FROM {schema}.timers t
           WHERE t.queue || '' = $2 AND t.visible_at < coalesce($4::timestamptz, clock_timestamp()) - $5::interval ORDER BY t.visible_at LIMIT $3) k) o`
