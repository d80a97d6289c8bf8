package postgres

const (
	secretSQL = `SELECT s.secret FROM {schema}.store s WHERE s.singleton`

	lockKeySQL = `SELECT pg_advisory_xact_lock($1::bigint)`

	// lockKeyOneSQL takes the locks of a key and of a stream that exists. It may find that there is no such stream before it
	// locks the key: then the append is refused, and nothing is stored.
	lockKeyOneSQL = `
SELECT 1 FROM (SELECT pg_advisory_xact_lock($2::bigint) OFFSET 0) AS k, {schema}.streams s WHERE s.stream_id = $1 FOR NO KEY UPDATE OF s`

	holdKeySQL = `SELECT pg_try_advisory_xact_lock($1::bigint)`

	firstOutcomeSQL = `
SELECT o.call, o.request, o.kind, o.code, o.reason, o.content_type, o.result, o.streams, o.versions, o.events, o.stored_at
  FROM {schema}.outcomes o WHERE o.scope = $1 AND o.key = $2 LIMIT 1`

	// storeOutcomeSQL is the common part of the statements that store an outcome. They run after the key's lock, and so see
	// what it was waited for: an outcome that is stored under the key ends the transaction, with the append in it. A look-up
	// in a statement of its own, or inside the function, would cost more. A part that is not known is refused by the table.
	storeOutcomeSQL = `
INSERT INTO {schema}.outcomes (part, scope, key, call, request, kind, code, reason, content_type, result, streams, versions, events, stored_at)
SELECT (SELECT t.turn % 2 FROM {schema}.outcome_turn t WHERE t.singleton), $1::text, $2::text, $3::uuid, $4::bytea, $5::smallint, $6::text, $7::text,
       $8::text, $9::bytea, $10::text[], $11::bigint[], $12::int[], coalesce($13::timestamptz, clock_timestamp())
 WHERE (SELECT {schema}.refuse_known_key() FROM {schema}.outcomes o WHERE o.scope = $1 AND o.key = $2 LIMIT 1) IS NULL`

	// Without streams.
	storeOutcomeAloneSQL = storeOutcomeSQL + `
RETURNING stored_at`

	// With streams it is stored unless the append before it in the transaction was refused. $10 to $12 are the streams, all of
	// them locked and so with a row, with their versions after the append and the number of their events: each must be at that
	// version, and those with events must have been brought there by this transaction. With one stream the statement's plan
	// is kept; that for several is made anew each time, for the length of the arrays.
	storeOutcomeOneSQL = storeOutcomeSQL + `
   AND EXISTS (
  SELECT FROM {schema}.streams s
   WHERE s.stream_id = ($10::text[])[1] AND s.version = ($11::bigint[])[1] AND (($12::int[])[1] = 0 OR s.xmin = pg_current_xact_id()::xid))
RETURNING stored_at`

	storeOutcomeManySQL = storeOutcomeSQL + `
   AND NOT EXISTS (
  SELECT FROM unnest($10::text[], $11::bigint[], $12::int[]) AS u(stream_id, version, n)
    LEFT JOIN LATERAL (SELECT x.version, x.xmin FROM {schema}.streams x WHERE x.stream_id = u.stream_id LIMIT 1) s ON true
   WHERE coalesce(s.version <> u.version OR u.n > 0 AND s.xmin <> pg_current_xact_id()::xid, true))
RETURNING stored_at`

	turnOutcomesSQL = `SELECT {schema}.turn_outcomes($1::interval, coalesce($2::timestamptz, clock_timestamp()))`
)
