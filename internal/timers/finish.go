package timers

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/internal/retry"
)

// CodeLost is the SQLSTATE of a [Finish] that is refused.
const CodeLost = "DB007"

// Lost reports whether err says that a timer is not the caller's any more: it was taken over, set anew or cancelled. The
// transaction has failed as a whole, and [Held] tells which ones are left.
func Lost(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == CodeLost
}

// Finish queues one statement that removes timers, in the transaction that has their effects. When any is not the caller's
// any more the statement fails, and with it the transaction; see [Lost]. A lease that has passed is none the worse as long
// as nobody has taken the timer over.
func Finish(b *pgx.Batch, schema string, timers []Timer) *pgx.QueuedQuery {
	k := keysOf(timers)
	return b.Queue(in(schema, finishSQL), k.queues, k.names, k.ids, k.tokens)
}

// Failure is a timer whose handling has failed.
type Failure struct {
	Timer
	After time.Duration // how long it is not to be tried again
	Err   error         // its text is kept; nil: none
}

// Retry queues one statement that gives timers back, visible after a pause each, with one attempt more. They cannot be
// finished after it, by a handler that is late. Timers that are not the caller's any more, or that another transaction has
// locked, are left as they are; the tag of the result says how many were not.
func Retry(b *pgx.Batch, schema string, now *time.Time, failures []Failure) *pgx.QueuedQuery {
	list := make([]Timer, len(failures))
	after, texts := make([]time.Duration, len(failures)), make([]string, len(failures))
	for i, f := range failures {
		list[i] = f.Timer
		after[i] = f.After.Truncate(time.Microsecond)
		if f.Err != nil {
			texts[i] = retry.Text(f.Err.Error())
		}
	}
	k := keysOf(list)
	return b.Queue(in(schema, retrySQL), k.queues, k.names, k.ids, k.tokens, micros(now), after, texts)
}

// Release queues one statement that gives timers back as they were before the claim: whoever claims next has them, under
// a token of its own. Timers that are not the caller's any more, or that a transaction has locked, are left as they are.
func Release(b *pgx.Batch, schema string, timers []Timer) *pgx.QueuedQuery {
	k := keysOf(timers)
	visible := make([]time.Time, len(timers))
	for i, t := range timers {
		visible[i] = t.Visible
	}
	return b.Queue(in(schema, releaseSQL), k.queues, k.names, k.ids, k.tokens, visible)
}

const (
	finishSQL = `SELECT {schema}.finish_timers($1, $2, $3, $4)`

	retrySQL = `
WITH mine AS MATERIALIZED (
  SELECT t.queue, t.name, k.after, k.error
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $6::interval[], $7::text[]) AS k(queue, name, id, token, after, error)
    JOIN {schema}.timers t ON t.queue = k.queue AND t.name = k.name AND t.id = k.id AND t.token = k.token
     FOR UPDATE OF t SKIP LOCKED)
UPDATE {schema}.timers t SET visible_at = coalesce($5::timestamptz, clock_timestamp()) + mine.after, token = t.token + 1, owner = '',
       attempts = t.attempts + 1, error = mine.error
  FROM mine WHERE t.queue = mine.queue AND t.name = mine.name`

	releaseSQL = `
WITH mine AS MATERIALIZED (
  SELECT t.queue, t.name, k.visible
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[]) AS k(queue, name, id, token, visible)
    JOIN {schema}.timers t ON t.queue = k.queue AND t.name = k.name AND t.id = k.id AND t.token = k.token
     FOR UPDATE OF t SKIP LOCKED)
UPDATE {schema}.timers t SET visible_at = mine.visible, token = t.token + 1, owner = ''
  FROM mine WHERE t.queue = mine.queue AND t.name = mine.name`
)
