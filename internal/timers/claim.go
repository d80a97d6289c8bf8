package timers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Schema, Queue string
	// Owner says for people who claims. It must not be empty.
	Owner string
	// Now is what is compared with due times, and what the lease is counted from. Nil: the database's clock.
	Now *time.Time
	// Ahead claims what is due so much later too. The caller keeps it until it is due. A lease is never cut short by it.
	Ahead time.Duration
	Limit int
	Lease time.Duration
}

// Claim takes timers that are due, the first due first, at most Limit. Of timers that others claim or finish at the moment
// none is waited for. A timer whose lease has passed is taken over, under the next token. It is one transaction, unless db
// is one: then the caller commits, and settings of the planner stay for the rest of it.
func Claim(ctx context.Context, db DB, request ClaimRequest) ([]Timer, error) {
	return claim(ctx, db, request, from{})
}

// from is where a claim begins. Rows that were removed are visited by each claim until no snapshot can see them any more,
// which a backup may keep from happening for hours: who claims often leaves them out. The zero value leaves nothing out.
type from struct {
	behind *Timer         // leaves out what was visible before it, it too
	recent *time.Duration // leaves out what has been visible for longer
}

func claim(ctx context.Context, db DB, request ClaimRequest, begin from) ([]Timer, error) {
	var since *time.Time
	var id int64
	if begin.behind != nil {
		since, id = &begin.behind.Visible, begin.behind.ID
	}
	b := &pgx.Batch{}
	b.Queue(inOrderSQL)
	b.Queue(in(request.Schema, claimSQL), request.Queue, micros(request.Now), request.Ahead.Truncate(time.Microsecond), request.Limit,
		request.Owner, request.Lease.Truncate(time.Microsecond), since, id, begin.recent)
	results := db.SendBatch(ctx, b)
	claimed, err := readClaim(results, request.Queue)
	if closing := results.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("timers: claim of %q: %w", request.Queue, err)
	}
	slices.SortFunc(claimed, earlier)
	return claimed, nil
}

func readClaim(results pgx.BatchResults, queue string) ([]Timer, error) {
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Timer, error) {
		t := Timer{Queue: queue}
		err := row.Scan(&t.Name, &t.ID, &t.Due, &t.Visible, &t.Token, &t.ClaimedAt, &t.LeasedUntil, &t.Attempts, &t.Does, &t.Payload)
		return t, err
	})
}

// earlier is the order in which timers are claimed.
func earlier(a, b Timer) int {
	return cmp.Or(a.Visible.Compare(b.Visible), cmp.Compare(a.ID, b.ID))
}

// Renew makes the leases of timers last from now on, and returns those that are still held, with the new ends. Timers that a
// transaction has locked, such as the one that handles them, are held without being renewed: nobody can claim them before
// that transaction ends.
func Renew(ctx context.Context, db DB, schema string, now *time.Time, lease time.Duration, timers []Timer) ([]Timer, error) {
	return still(ctx, "renew", timers, func(k keys) (pgx.Rows, error) {
		return db.Query(ctx, in(schema, renewSQL), k.queues, k.names, k.ids, k.tokens, micros(now), lease.Truncate(time.Microsecond))
	})
}

// Held locks timers in the order of queues and names, and returns those that still are the caller's: neither cancelled, nor
// set anew, nor taken over. Until the transaction ends they stay so, and [Finish] cannot fail because of them.
func Held(ctx context.Context, tx pgx.Tx, schema string, timers []Timer) ([]Timer, error) {
	return still(ctx, "lock", timers, func(k keys) (pgx.Rows, error) {
		return tx.Query(ctx, in(schema, heldSQL), k.queues, k.names, k.ids, k.tokens)
	})
}

// still returns the timers whose places the query returns, each with the end of its lease.
func still(ctx context.Context, what string, timers []Timer, query func(keys) (pgx.Rows, error)) ([]Timer, error) {
	if len(timers) == 0 {
		return nil, ctx.Err()
	}
	rows, err := query(keysOf(timers))
	if err != nil {
		return nil, fmt.Errorf("timers: %s: %w", what, err)
	}
	held := make([]Timer, 0, len(timers))
	var nth int
	var until time.Time
	_, err = pgx.ForEachRow(rows, []any{&nth, &until}, func() error {
		t := timers[nth-1]
		t.LeasedUntil = until
		held = append(held, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("timers: %s: %w", what, err)
	}
	return held, nil
}

// keys are what timers are found by, as the statements take them.
type keys struct {
	queues, names []string
	ids, tokens   []int64
}

func keysOf(timers []Timer) keys {
	k := keys{make([]string, len(timers)), make([]string, len(timers)), make([]int64, len(timers)), make([]int64, len(timers))}
	for i, t := range timers {
		k.queues[i], k.names[i], k.ids[i], k.tokens[i] = t.Queue, t.Name, t.ID, t.Token
	}
	return k
}

const (
	// Plans that were made while the table was empty must not read it whole when it has grown, and none is compiled because
	// what is off makes it look dear (jit).
	indexesSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`

	// What is due is read in the order of the index, and no further than the limit, however few the planner believes there
	// are; and it is put together with what was claimed by a hash.
	inOrderSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('enable_nestloop', 'off', true),
  set_config('jit', 'off', true)`

	// The clock is read once, in a subquery: a volatile function would keep the index from ending the scan. Leases are not
	// claimed ahead of their ends. Rows that another transaction has changed since the statement began are left out by the
	// update, and come with the next claim.
	claimSQL = `
WITH n AS MATERIALIZED (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now),
due AS MATERIALIZED (
  SELECT ctid, id, visible_at FROM {schema}.timers
   WHERE queue || '' = $1 AND (visible_at, id + 0) > (coalesce($7::timestamptz, (SELECT now - $9::interval FROM n), '-infinity'), $8::bigint)
     AND visible_at <= (SELECT now + $3::interval FROM n)
     AND (owner = '' OR visible_at <= (SELECT now FROM n))
   ORDER BY visible_at, id + 0 LIMIT $4::int FOR UPDATE SKIP LOCKED),
claimed AS (
  UPDATE {schema}.timers SET token = token + 1, owner = $5::text, visible_at = (SELECT now + $6::interval FROM n)
   WHERE ctid = ANY(ARRAY(SELECT ctid FROM due))
  RETURNING name, id, due_at, token, visible_at, attempts, does, payload)
SELECT c.name, c.id, c.due_at, due.visible_at, c.token, (SELECT now FROM n), c.visible_at, c.attempts, c.does, c.payload
  FROM claimed c JOIN due ON due.id = c.id`

	// What is locked by others is left out of the update: a lock that is waited for would let the other leases pass.
	renewSQL = `
WITH k AS MATERIALIZED (
  SELECT k.nth::int AS nth, t.queue, t.name, t.visible_at
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS k(queue, name, id, token, nth)
    JOIN {schema}.timers t ON t.queue = k.queue AND t.name = k.name AND t.id = k.id AND t.token = k.token),
free AS MATERIALIZED (
  SELECT t.queue, t.name, k.nth FROM k JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS r(queue, name, id, token, nth) ON r.nth = k.nth
    JOIN {schema}.timers t ON t.queue = k.queue AND t.name = k.name AND t.id = r.id AND t.token = r.token
     FOR UPDATE OF t SKIP LOCKED),
renewed AS (
  UPDATE {schema}.timers t SET visible_at = coalesce($5::timestamptz, clock_timestamp()) + $6::interval
    FROM free WHERE t.queue = free.queue AND t.name = free.name
  RETURNING free.nth, t.visible_at)
SELECT k.nth, coalesce(r.visible_at, k.visible_at) FROM k LEFT JOIN renewed r ON r.nth = k.nth ORDER BY k.nth`

	heldSQL = `
SELECT k.nth::int, t.visible_at
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS k(queue, name, id, token, nth)
  JOIN {schema}.timers t ON t.queue = k.queue AND t.name = k.name AND t.id = k.id AND t.token = k.token
 ORDER BY t.queue, t.name FOR UPDATE OF t`
)
