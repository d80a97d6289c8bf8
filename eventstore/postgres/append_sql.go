package postgres

// The statements of an append. Common to all: heads are locked before positions are drawn; positions are drawn over the
// rows of the head's update, so that they rise with versions; a claim that does not hold gives no row and no error, so
// that the transaction of a caller stays usable.

// lockOneSQL locks the head of a stream that exists.
const lockOneSQL = `SELECT 1 FROM {schema}.streams WHERE stream_id = $1 FOR NO KEY UPDATE`

// insertOneSQL is the common part of the one-stream statements: $1 stream, $2 number of events, $3 time or NULL, then one
// array for each column of the events. Columns that are usually the same in a whole append have one element then, and are
// looked up instead of unnested: each unnested array costs a materialized set.
const insertOneSQL = `
ins AS (
  INSERT INTO {schema}.events (position, version, recorded_at, id, partition, schema_version, flags, stream_id, partition_key,
         type, content_type, tenant, correlation_id, causation_id, actor, headers, data)
  SELECT nextval('{schema}.log_position'), h.base + u.ord, h.at, u.id, h.partition,
         ($7::int[])[least(u.ord, cardinality($7::int[]))], ($8::int[])[least(u.ord, cardinality($8::int[]))], $1, h.partition_key,
         u.type, ($6::text[])[least(u.ord, cardinality($6::text[]))], ($9::text[])[least(u.ord, cardinality($9::text[]))],
         ($10::text[])[least(u.ord, cardinality($10::text[]))], ($11::text[])[least(u.ord, cardinality($11::text[]))],
         ($12::text[])[least(u.ord, cardinality($12::text[]))], ($13::bytea[])[least(u.ord, cardinality($13::bytea[]))], u.data
    FROM h, unnest($4::uuid[], $5::text[], $14::bytea[]) WITH ORDINALITY AS u(id, type, data, ord)
  RETURNING position, version, partition, recorded_at)`

// answerOneSQL ends the one-stream statements.
const answerOneSQL = `
SELECT min(position), max(position), min(partition), min(recorded_at),
       CASE WHEN count(*) = 0 THEN (SELECT s.version FROM {schema}.streams s WHERE s.stream_id = $1) END,
       CASE WHEN count(*) = 0 THEN (SELECT s.closed FROM {schema}.streams s WHERE s.stream_id = $1) END
  FROM ins`

// The one-stream statements begin with the head; what the caller claims comes after the other parameters, whose number
// depends on what is published.
const (
	headExistingA = `
WITH h AS (
  UPDATE {schema}.streams SET version = version + $2::int
   WHERE stream_id = $1 AND version = `
	headExistingB = `::bigint AND version > 0 AND NOT closed
  RETURNING version - $2::int AS base, partition, partition_key, coalesce($3::timestamptz, clock_timestamp()) AS at),`

	headNewA = `
WITH h AS (
  INSERT INTO {schema}.streams AS s (stream_id, version, partition, partition_key, floor_position)
  VALUES ($1, $2::int, `
	headNewB = `::int, `
	headNewC = `::text, coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0))
  ON CONFLICT (stream_id) DO UPDATE SET version = excluded.version, partition = excluded.partition,
         partition_key = excluded.partition_key, floor_position = excluded.floor_position
     WHERE s.version = 0 AND NOT s.closed
  RETURNING 0::bigint AS base, s.partition, s.partition_key, coalesce($3::timestamptz, clock_timestamp()) AS at),`
)

const (
	// appendExistingSQL appends to a stream at version $15, which is not 0.
	appendExistingSQL = headExistingA + `$15` + headExistingB + insertOneSQL + answerOneSQL

	// appendNewSQL makes a stream in partition $15 with partition key $16. A row of version 0 was made only to be locked.
	appendNewSQL = headNewA + `$15` + headNewB + `$16` + headNewC + insertOneSQL + answerOneSQL
)

// lockAllSQL locks the heads of streams $1, existing or not, in one order, and writes nothing to those that exist.
const lockAllSQL = `
INSERT INTO {schema}.streams (stream_id, version, partition)
SELECT u.s, 0, u.p FROM unnest($1::text[], $2::int[]) AS u(s, p) ORDER BY u.s COLLATE "C"
ON CONFLICT (stream_id) DO UPDATE SET version = streams.version WHERE false`

// insertManySQL checks all claims and appends, or does nothing. It runs after lockAllSQL, as a statement of its own: in
// one statement with the locks it would see the heads as they were before the wait.
//
// $1..$6 one element for each stream: id, kind of claim (0 exact, 1 exists, 2 any), version claimed, number of events
// (0: only checked), partition, partition key; $7 time or NULL; $8..$20 one element for each event: stream, place in the
// stream's part from 1, then the columns. Positions follow the order of the events.
const insertManySQL = `
WITH w AS MATERIALIZED (
  SELECT u.ord, u.stream_id, u.n, u.partition, u.partition_key, s.version AS actual, s.closed,
         CASE u.kind WHEN 0 THEN s.version = u.expected WHEN 1 THEN s.version > 0 ELSE true END
         AND NOT (s.closed AND u.n > 0) AS ok
    FROM unnest($1::text[], $2::int[], $3::bigint[], $4::int[], $5::int[], $6::text[]) WITH ORDINALITY
         AS u(stream_id, kind, expected, n, partition, partition_key, ord)
    LEFT JOIN LATERAL (SELECT x.version, x.closed FROM {schema}.streams x WHERE x.stream_id = u.stream_id LIMIT 1) s ON true),
verdict AS MATERIALIZED (
  SELECT coalesce(bool_and(coalesce(w.ok, false)), false) AS ok, coalesce($7::timestamptz, clock_timestamp()) AS at,
         coalesce(pg_sequence_last_value('{schema}.log_position'::regclass), 0) AS drawn
    FROM w),
h AS (
  INSERT INTO {schema}.streams AS s (stream_id, version, partition, partition_key, floor_position)
  SELECT w.stream_id, w.n, w.partition, w.partition_key, v.drawn FROM w, verdict v WHERE v.ok AND w.n > 0
  ON CONFLICT (stream_id) DO UPDATE SET version = s.version + excluded.version,
         partition      = CASE WHEN s.version = 0 THEN excluded.partition      ELSE s.partition      END,
         partition_key  = CASE WHEN s.version = 0 THEN excluded.partition_key  ELSE s.partition_key  END,
         floor_position = CASE WHEN s.version = 0 THEN excluded.floor_position ELSE s.floor_position END
  RETURNING s.stream_id, s.version, s.partition, s.partition_key),
b AS MATERIALIZED (SELECT h.stream_id, h.version - w.n AS base, h.partition, h.partition_key FROM h JOIN w USING (stream_id)),
ins AS (
  INSERT INTO {schema}.events (version, recorded_at, id, partition, schema_version, flags, stream_id, partition_key,
         type, content_type, tenant, correlation_id, causation_id, actor, headers, data)
  SELECT z.version, z.at, z.id, z.partition, z.schema_version, z.flags, z.stream_id, z.partition_key,
         z.type, z.content_type, z.tenant, z.correlation_id, z.causation_id, z.actor, z.headers, z.data
    FROM (SELECT b.base + e.off AS version, v.at, b.partition, b.partition_key, e.*
            FROM verdict v,
                 unnest($8::text[], $9::int[], $10::uuid[], $11::text[], $12::text[], $13::int[], $14::int[], $15::text[], $16::text[],
                        $17::text[], $18::text[], $19::bytea[], $20::bytea[]) WITH ORDINALITY
                 AS e(stream_id, off, id, type, content_type, schema_version, flags, tenant, correlation_id, causation_id, actor,
                      headers, data, ord)
            JOIN b USING (stream_id)
           ORDER BY e.ord) z
  RETURNING stream_id, position, partition),`

const appendManySQL = insertManySQL + `
r AS MATERIALIZED (
  SELECT stream_id, min(position) AS first, max(position) AS last, min(partition) AS partition FROM ins GROUP BY stream_id)` + answerManySQL

// answerManySQL ends the statements for several streams.
const answerManySQL = `
SELECT w.ord, w.actual, w.closed, v.ok, coalesce(r.partition, w.partition), v.at, r.first, r.last
  FROM w CROSS JOIN verdict v LEFT JOIN r USING (stream_id)
 ORDER BY w.ord`
