package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// clean removes instances that have ended Config.KeepEnded ago, some at a time, with all that belongs to them. It reports
// whether there may be more.
func (k *keeper) clean(ctx context.Context) (bool, error) {
	if time.Since(k.cleaned) < cleanEvery {
		return false, nil
	}
	var instances, alone int
	sql := k.u.sql.clean
	what := &instances
	if k.u.reactor != nil {
		sql, what = k.u.sql.cleanAlone, &alone
	}
	b := &pgx.Batch{}
	b.Queue("begin isolation level read committed read write")
	b.Queue(k.u.settings)
	b.Queue(planSQL)
	b.Queue(customSQL)
	b.Queue(sql, k.u.name, k.u.clock(), k.u.cfg.KeepEnded, cleanAtOnce, consumerName(k.u.name)).QueryRow(func(row pgx.Row) error { return row.Scan(what) })
	b.Queue("commit")
	if err := k.db.SendBatch(ctx, b).Close(); err != nil {
		return false, fmt.Errorf("saga: remove what has ended of %q: %w", k.u.name, err)
	}
	k.u.sum.cleaned.Add(int64(*what))
	if *what < cleanAtOnce {
		k.cleaned = time.Now()
	}
	return *what == cleanAtOnce, nil
}

const (
	// safeSQL is up to where all events have been passed, and none is set aside: what began behind it stays, because an event
	// that is still to come may be one of those that are known by it.
	safeSQL = `
  SELECT least((SELECT min(g.floor) FROM {schema}.segments g WHERE g.consumer = $5 AND g.version = 1),
               (SELECT min(p.first_position) - 1 FROM {schema}.parked p WHERE p.consumer = $5 AND p.version = 1)) AS upto`

	// What is cleaned is known from the moment when it is gone. The clock is read once, in a subquery: a volatile function would
	// keep the index from ending the scan.
	cleanSQL = `
WITH safe AS MATERIALIZED (` + safeSQL + `),
old AS MATERIALIZED (
  SELECT s.ctid AS at, s.key, s.run, s.began FROM {schema}.sagas s, safe
   WHERE s.saga = $1 AND s.ended_at < (SELECT coalesce($2::timestamptz, clock_timestamp()) - $3::interval) AND s.began <= safe.upto
   ORDER BY s.ended_at LIMIT $4 FOR UPDATE OF s SKIP LOCKED),
known AS (
  UPDATE {schema}.saga_names n SET cleaned = greatest(n.cleaned, (SELECT max(began) FROM old)), runs = greatest(n.runs, (SELECT max(run) FROM old))
   WHERE n.saga = $1 AND EXISTS (SELECT FROM old)),
lines AS (
  DELETE FROM {schema}.saga_history WHERE ctid = ANY (ARRAY(
    SELECT r.at FROM old CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.saga_history x WHERE x.saga = $1 AND x.key = old.key AND x.run = old.run OFFSET 0) r))),
sent AS (
  DELETE FROM {schema}.saga_commands WHERE ctid = ANY (ARRAY(
    SELECT r.at FROM old CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.saga_commands x WHERE x.saga = $1 AND x.key = old.key AND x.run = old.run OFFSET 0) r))),
kept AS (
  DELETE FROM {schema}.saga_inputs WHERE ctid = ANY (ARRAY(
    SELECT r.at FROM old CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.saga_inputs x WHERE x.saga = $1 AND x.key = old.key AND x.run = old.run OFFSET 0) r))),
gone AS (DELETE FROM {schema}.sagas WHERE ctid = ANY (ARRAY(SELECT at FROM old)) RETURNING 1)
SELECT count(*)::int FROM gone`

	// Of reactors, whose commands belong to nothing else. Those whose ends are not known stay: a dispatcher that was away carries
	// out none that has no row.
	cleanAloneSQL = `
WITH safe AS MATERIALIZED (` + safeSQL + `),
old AS MATERIALIZED (
  SELECT c.ctid AS at, c.position FROM {schema}.saga_commands c, safe
   WHERE c.saga = $1 AND c.run = 0 AND c.state <> 'sent' AND c.sent_at < (SELECT coalesce($2::timestamptz, clock_timestamp()) - $3::interval) AND c.position <= safe.upto
   ORDER BY c.sent_at LIMIT $4 FOR UPDATE OF c SKIP LOCKED),
known AS (
  UPDATE {schema}.saga_names n SET cleaned = greatest(n.cleaned, (SELECT max(position) FROM old))
   WHERE n.saga = $1 AND EXISTS (SELECT FROM old)),
gone AS (DELETE FROM {schema}.saga_commands WHERE ctid = ANY (ARRAY(SELECT at FROM old)) RETURNING 1)
SELECT count(*)::int FROM gone`
)
