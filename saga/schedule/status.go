package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// lateAfter is how long a slot may be due until its schedule is late: processes look at the latest after a poll.
const lateAfter = 30 * time.Second

// Summary is how the schedules of a store are doing.
type Summary struct {
	// Schedules is how many there are, Late and Failed how many of them are late and how many have failed the last time.
	Schedules, Late, Failed int
	// Troubled are those that are late or have failed, the latest first; AtMost bounds them, and More is how many it left out.
	Troubled []Trouble
	More     int
}

// Trouble is a schedule that is late, or whose last firing failed for good.
type Trouble struct {
	Job, Tenant string
	// Late is how long a slot has been due that has not begun, by the database's clock; zero when that is less than 30 seconds.
	// Nobody has decided about it, or no process that knows the job was free for it.
	Late time.Duration
	// Open says that an earlier firing has begun and not ended, which with Forbid is what the slot waits for.
	Open bool
	// Seen is when a process said last that it knows the job; Orphaned, that this is longer ago than five minutes: it does not
	// fire.
	Seen     time.Time
	Orphaned bool
	// Failed is the last slot that was carried out, when it failed for good, and Error why; zero when it did not.
	Failed time.Time
	Error  string
}

// Summarize counts the schedules of the store, and returns those that somebody should look at.
func Summarize(ctx context.Context, db DB, options ...Option) (Summary, error) {
	var s Summary
	o := readingOf(options)
	rows, err := db.Query(ctx, in(o.schema, summarySQL), o.tenant, o.limit, forgotten, lateAfter)
	if err != nil {
		return s, fmt.Errorf("schedule: summary: %w", err)
	}
	var t Trouble
	var job *string // NULL in the one row that is there when nothing is wrong
	var seen, failed *time.Time
	var all int
	columns := []any{&s.Schedules, &s.Late, &s.Failed, &all, &job, &t.Tenant, &t.Late, &t.Open, &seen, &t.Orphaned, &failed, &t.Error}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if job != nil {
			t.Job, t.Seen, t.Failed = *job, utc(seen), utc(failed)
			s.Troubled = append(s.Troubled, t)
		}
		return nil
	})
	if err != nil {
		return Summary{}, fmt.Errorf("schedule: summary: %w", err)
	}
	s.More = all - len(s.Troubled)
	return s, nil
}

const summarySQL = `
WITH looked AS (
  SELECT s.job, s.tenant, s.seen_at, s.seen_at < now.now - $3::interval AS orphaned, o.begun,
         now.now - least(s.next_slot, o.waits) > $4::interval AS is_late,
         greatest(extract(epoch FROM now.now - least(s.next_slot, o.waits)), 0) * interval '1 second' AS late,
         coalesce(e.state = 'failed', false) AS has_failed, e.slot, e.error
    FROM {schema}.schedules s
   CROSS JOIN (SELECT clock_timestamp() AS now) now
   CROSS JOIN LATERAL (
         SELECT min(f.slot) FILTER (WHERE f.state = 'waiting') AS waits, coalesce(bool_or(f.state <> 'waiting'), false) AS begun
           FROM {schema}.schedule_firings f WHERE f.job = s.job AND f.tenant = s.tenant AND f.ended_at IS NULL) o
    LEFT JOIN LATERAL (
         SELECT f.slot, f.state, f.error FROM {schema}.schedule_firings f
          WHERE f.job = s.job AND f.tenant = s.tenant AND f.state IN ('done', 'failed') ORDER BY f.slot DESC LIMIT 1) e ON true
   WHERE $1::text IS NULL OR s.tenant = $1)
SELECT n.schedules, n.late, n.failed, n.troubled, t.job, coalesce(t.tenant, ''), coalesce(t.late, interval '0'), coalesce(t.begun, false), t.seen_at,
       coalesce(t.orphaned, false), t.slot, coalesce(t.error, '')
  FROM (SELECT count(*)::int AS schedules, count(*) FILTER (WHERE is_late)::int AS late, count(*) FILTER (WHERE has_failed)::int AS failed,
               count(*) FILTER (WHERE is_late OR has_failed)::int AS troubled FROM looked) n
  LEFT JOIN (
       SELECT job, tenant, CASE WHEN is_late THEN late END AS late, begun, seen_at, orphaned,
              CASE WHEN has_failed THEN slot END AS slot, CASE WHEN has_failed THEN error END AS error
         FROM looked WHERE is_late OR has_failed
        ORDER BY CASE WHEN is_late THEN late END DESC NULLS LAST, job, tenant LIMIT $2::int) t ON true
 ORDER BY t.late DESC NULLS LAST, t.job, t.tenant`
