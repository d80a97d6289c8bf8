package parking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Item is one letter of a plan to try letters again.
type Item struct {
	Redrive uuid.UUID
	Item    int
	Letter  uuid.UUID
	Key
	Partition int
	// Begun: an owner has begun with it, perhaps one before this.
	Begun bool
	// Due is when the plan's rate lets it begin.
	Due time.Time
}

// The states of items that have ended.
const (
	ItemSucceeded = "succeeded"
	ItemFailed    = "failed"
	ItemSkipped   = "skipped" // its letter was no longer open
)

// maxItems bounds what one look returns of each plan.
const maxItems = 500

// minRate is the lowest rate that a plan keeps: one sequence in eleven days. What lies beyond leads out of the calendar.
const minRate = 1e-6

// Look is what an owner finds when it looks for plans.
type Look struct {
	// Items of the owner's partitions, in the order of their plans: those that were begun, and those that may begin within
	// a second.
	Items []Item
	// Running: there are plans, for whichever partitions.
	Running bool
	// ParkedRev is the revision of the segment: another one than the owner's means that its set is old.
	ParkedRev int64
}

// LookFor reads which items of running plans are for the owner of a segment. Items behind the canary do not show before
// all of the canary have ended well, and none of the canary while one of it is being tried.
func LookFor(ctx context.Context, q Querier, o Owner, segment, first, last int, now time.Time) (Look, error) {
	var look Look
	rows, err := q.Query(ctx, textsFor(o).look, o.Consumer, o.Version, segment, first, last, now, maxItems)
	if err != nil {
		return look, fmt.Errorf("parking: look for redrives of %q: %w", o.Consumer, err)
	}
	var plan, letter *uuid.UUID
	var item, partition *int
	var topic, sequence, state *string
	var rate *float64
	var from *time.Time
	n := map[uuid.UUID]int{}
	_, err = pgx.ForEachRow(rows, []any{&look.ParkedRev, &plan, &rate, &from, &item, &letter, &topic, &sequence, &partition, &state}, func() error {
		look.Running = look.Running || plan != nil
		if item == nil {
			return nil
		}
		i := Item{Redrive: *plan, Item: *item, Letter: *letter, Key: Key{*topic, *sequence}, Partition: *partition, Begun: *state == "running", Due: now}
		if !i.Begun && *rate > 0 {
			i.Due = latest(now, *from).Add(time.Duration(float64(n[*plan]) / max(*rate, minRate) * float64(time.Second)))
			n[*plan]++
		}
		look.Items = append(look.Items, i)
		return nil
	})
	if err != nil {
		return look, fmt.Errorf("parking: look for redrives of %q: %w", o.Consumer, err)
	}
	return look, nil
}

// MayBegin says whether an item may still begin now. Put it off to again when the rate says so; again is zero when it may
// not begin at all, or not before another one has ended: of a canary one begins at a time, whoever owns its partition, so
// that what was not mended fails once.
func MayBegin(ctx context.Context, q Querier, o Owner, i Item, now time.Time) (may bool, again time.Time, err error) {
	var next time.Time
	err = q.QueryRow(ctx, textsFor(o).item, i.Redrive, i.Item).Scan(&next)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, time.Time{}, nil
	case err != nil:
		return false, time.Time{}, fmt.Errorf("parking: look at redrive %s: %w", i.Redrive, err)
	case next.After(now):
		return false, next, nil
	}
	return true, time.Time{}, nil
}

// Begin notes that the letter of an item is being tried; the transaction also holds how the attempt ended.
func (c *Changes) Begin(i Item, now time.Time) {
	i.Begun = true
	ch := c.of(i.Key)
	ch.item, ch.begins = &i, true
	x := c.set.texts
	c.ends = append(c.ends, func(b *pgx.Batch) { b.Queue(x.begin, i.Redrive, i.Item, now) })
}

// End ends an item, as one of [ItemSucceeded], [ItemFailed] and [ItemSkipped], counts it, and ends the plan when nothing
// of it is left, or too much has failed.
func (c *Changes) End(i Item, outcome string, now time.Time) {
	ch := c.of(i.Key)
	ch.begins, ch.leaves = false, true
	x := c.set.texts
	c.ends = append(c.ends, func(b *pgx.Batch) {
		b.Queue(x.end, i.Redrive, i.Item, outcome, now)
		c.tally(b, i, outcome, now)
		b.Queue(x.done, i.Redrive, now)
	})
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// lookSQL always returns a row, with the segment's revision.
const lookSQL = `
SELECT s.parked_rev, p.redrive, p.rate, p.next_at, i.item, i.letter, i.topic, i.sequence, i.partition, i.state
  FROM {schema}.segments s
  LEFT JOIN LATERAL (
    SELECT r.redrive, r.rate, r.next_at, r.created_at, r.canary,
           EXISTS (SELECT FROM {schema}.redrive_items w WHERE w.redrive = r.redrive AND w.item <= r.canary
                      AND w.state NOT IN ('succeeded', 'skipped')) AS trying,
           EXISTS (SELECT FROM {schema}.redrive_items w WHERE w.redrive = r.redrive AND w.item <= r.canary
                      AND w.state = 'running') AS begun
      FROM {schema}.redrives r WHERE r.consumer = $1 AND r.version = $2 AND r.state = 'running'
     ORDER BY r.created_at, r.redrive LIMIT 10) p ON true
  LEFT JOIN LATERAL (
    (SELECT a.* FROM {schema}.redrive_items a
      WHERE a.redrive = p.redrive AND a.state = 'running' AND a.partition BETWEEN $4 AND $5 ORDER BY a.item LIMIT $7)
    UNION ALL
    (SELECT w.* FROM {schema}.redrive_items w
      WHERE w.redrive = p.redrive AND w.state = 'waiting' AND w.partition BETWEEN $4 AND $5 AND (NOT p.trying OR w.item <= p.canary AND NOT p.begun)
        AND p.next_at <= $6::timestamptz + interval '1 second'
      ORDER BY w.item LIMIT CASE WHEN p.rate > 0 THEN least(ceil(p.rate), $7)::int ELSE $7 END)) i ON true
 WHERE s.consumer = $1 AND s.version = $2 AND s.segment = $3
 ORDER BY p.created_at, p.redrive, i.item`

// itemSQL and doneSQL find the plan by its key, and not through the index of those that run.
const itemSQL = `
SELECT r.next_at FROM {schema}.redrives r JOIN {schema}.redrive_items i ON i.redrive = r.redrive AND i.item = $2
 WHERE r.redrive = $1 AND r.state NOT IN ('done', 'stopped', 'cancelled') AND i.state = 'waiting'
   AND NOT EXISTS (SELECT FROM {schema}.redrive_items w WHERE w.redrive = r.redrive AND w.item <= r.canary AND w.item < i.item
                      AND w.state NOT IN ('succeeded', 'skipped'))`

// beginSQL leaves a plan without a rate alone: an owner whose clock is ahead would keep the others waiting.
const beginSQL = `
WITH i AS (UPDATE {schema}.redrive_items SET state = 'running' WHERE redrive = $1 AND item = $2 AND state = 'waiting' RETURNING redrive)
UPDATE {schema}.redrives r SET next_at = greatest(r.next_at, $3::timestamptz) + make_interval(secs => 1 / greatest(r.rate, 1e-6))
  FROM i WHERE r.redrive = i.redrive AND r.rate > 0`

const endSQL = `
UPDATE {schema}.redrive_items SET state = $3, ended_at = $4 WHERE redrive = $1 AND item = $2 AND state IN ('waiting', 'running')`

// tallySQL locks the plan's row, so that of two owners that end its last items the second sees what the first has done.
// Who fails in the canary stops the plan, however many may fail.
const tallySQL = `
UPDATE {schema}.redrives r
   SET succeeded = r.succeeded + ($3::text = 'succeeded')::int, failed = r.failed + ($3::text = 'failed')::int,
       state = CASE WHEN $3 = 'failed' AND r.state = 'running' AND (r.most > 0 AND r.failed + 1 >= r.most OR $2 <= r.canary)
               THEN 'stopped' ELSE r.state END,
       ended_at = CASE WHEN $3 = 'failed' AND r.state = 'running' AND (r.most > 0 AND r.failed + 1 >= r.most OR $2 <= r.canary)
               THEN $4::timestamptz ELSE r.ended_at END
 WHERE r.redrive = $1
RETURNING r.state, r.failed`

const lockSQL = `SELECT state FROM {schema}.redrives WHERE redrive = $1 FOR NO KEY UPDATE`

const doneSQL = `
UPDATE {schema}.redrives r SET state = 'done', ended_at = $2
 WHERE r.redrive = $1 AND r.state NOT IN ('done', 'stopped', 'cancelled')
   AND NOT EXISTS (SELECT FROM {schema}.redrive_items i WHERE i.redrive = r.redrive AND i.state IN ('waiting', 'running'))`
