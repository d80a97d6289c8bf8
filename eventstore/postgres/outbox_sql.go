package postgres

// The statements of an append that is published. A row of the outbox is thin: it names a run of events by their first and
// last position and version. Rows are written by the statement of the append, from the positions that it drew, and only
// when it was accepted. The positions of one stream, in an array, rise with the offsets of its events, so that a run is
// cut at the borders of blocks of 4,096 positions by counting positions below the border (width_bucket). Sets are unnested
// arrays, which are taken for short: with generate_series, taken for a thousand rows, each append would be planned anew.

// wholeOneSQL writes the thin rows of a one-stream append of which one topic, $15, gets all events: the usual case, and the
// cheapest.
const wholeOneSQL = `,
ob AS (
  INSERT INTO {schema}.outbox (first_position, last_position, from_version, to_version, partition, topic, key, stream_id, recorded_at)
  SELECT min(i.position), max(i.position), min(i.version), max(i.version), min(i.partition), $15::text,
         coalesce(nullif((SELECT h.partition_key FROM h), ''), $1), $1, min(i.recorded_at)
    FROM ins i
   GROUP BY i.position >> 12)`

// drawnSQL collects the positions of a one-stream append.
const drawnSQL = `,
drawn AS MATERIALIZED (SELECT array_agg(i.position ORDER BY i.position) AS p, array_agg(DISTINCT i.position >> 12) AS blocks FROM ins i)`

// thinOneSQL writes the thin rows of a one-stream append: $15 topic, $16 and $17 offsets of the first and last event of
// each run, counted from 1.
const thinOneSQL = drawnSQL + `,
ob AS (
  INSERT INTO {schema}.outbox (first_position, last_position, from_version, to_version, partition, topic, key, stream_id, recorded_at)
  SELECT d.p[x.lo], d.p[x.hi], h.base + x.lo, h.base + x.hi, h.partition, x.topic, coalesce(nullif(h.partition_key, ''), $1), $1, h.at
    FROM h, drawn d, LATERAL (
      SELECT r.topic, greatest(r.lo, width_bucket((b << 12) - 1, d.p) + 1) AS lo, least(r.hi, width_bucket((b << 12) + 4095, d.p)) AS hi
        FROM unnest($15::text[], $16::int[], $17::int[]) AS r(topic, lo, hi), unnest(d.blocks) AS b) x
   WHERE x.lo <= x.hi)`

// ownOneSQL writes messages with bytes of their own: $18 topic, then one array for each column, as in insertOneSQL. Each
// draws a position.
const ownOneSQL = `,
own AS (
  INSERT INTO {schema}.outbox (first_position, last_position, recorded_at, id, partition, schema_version, flags, topic, key,
         type, content_type, tenant, correlation_id, causation_id, actor, headers, data)
  SELECT z.position, z.position, z.at, z.id, z.partition, z.schema_version, z.flags, z.topic, z.key,
         z.type, z.content_type, z.tenant, z.correlation_id, z.causation_id, z.actor, z.headers, z.data
    FROM (SELECT nextval('{schema}.log_position') AS position, h.at, u.id, h.partition,
                 ($22::int[])[least(u.ord, cardinality($22::int[]))] AS schema_version, ($23::int[])[least(u.ord, cardinality($23::int[]))] AS flags,
                 u.topic, coalesce(nullif(h.partition_key, ''), $1) AS key, u.type,
                 ($21::text[])[least(u.ord, cardinality($21::text[]))] AS content_type, ($24::text[])[least(u.ord, cardinality($24::text[]))] AS tenant,
                 ($25::text[])[least(u.ord, cardinality($25::text[]))] AS correlation_id,
                 ($26::text[])[least(u.ord, cardinality($26::text[]))] AS causation_id,
                 ($27::text[])[least(u.ord, cardinality($27::text[]))] AS actor,
                 ($28::bytea[])[least(u.ord, cardinality($28::bytea[]))] AS headers, u.data
            FROM h, unnest($18::text[], $19::uuid[], $20::text[], $29::bytea[]) WITH ORDINALITY AS u(topic, id, type, data, ord)) z
  RETURNING first_position AS position)`

// answerOwnOneSQL is answerOneSQL where messages draw positions too: the last of them is what a token asks for.
const answerOwnOneSQL = `
SELECT min(position), greatest(max(position), (SELECT max(o.position) FROM own o)), min(partition), min(recorded_at),
       CASE WHEN count(*) = 0 THEN (SELECT s.version FROM {schema}.streams s WHERE s.stream_id = $1) END,
       CASE WHEN count(*) = 0 THEN (SELECT s.closed FROM {schema}.streams s WHERE s.stream_id = $1) END
  FROM ins`

const (
	appendExistingWholeSQL = headExistingA + `$16` + headExistingB + insertOneSQL + wholeOneSQL + answerOneSQL
	appendNewWholeSQL      = headNewA + `$16` + headNewB + `$17` + headNewC + insertOneSQL + wholeOneSQL + answerOneSQL

	appendExistingThinSQL = headExistingA + `$18` + headExistingB + insertOneSQL + thinOneSQL + answerOneSQL
	appendExistingOwnSQL  = headExistingA + `$30` + headExistingB + insertOneSQL + thinOneSQL + ownOneSQL + answerOwnOneSQL
	appendNewThinSQL      = headNewA + `$18` + headNewB + `$19` + headNewC + insertOneSQL + thinOneSQL + answerOneSQL
	appendNewOwnSQL       = headNewA + `$30` + headNewB + `$31` + headNewC + insertOneSQL + thinOneSQL + ownOneSQL + answerOwnOneSQL
)

// thinManySQL writes the thin rows of an append to several streams: $21 stream, $22 topic, $23 and $24 the offsets of each
// run in the stream's part.
const thinManySQL = `
r AS MATERIALIZED (
  SELECT stream_id, min(position) AS first, max(position) AS last, min(partition) AS partition, array_agg(position ORDER BY position) AS p,
         array_agg(DISTINCT position >> 12) AS blocks
    FROM ins GROUP BY stream_id),
ob AS (
  INSERT INTO {schema}.outbox (first_position, last_position, from_version, to_version, partition, topic, key, stream_id, recorded_at)
  SELECT x.p[x.lo], x.p[x.hi], x.base + x.lo, x.base + x.hi, x.partition, x.topic, coalesce(nullif(x.partition_key, ''), x.stream_id), x.stream_id, v.at
    FROM verdict v, (
      SELECT b.stream_id, b.base, b.partition, b.partition_key, r.p, t.topic,
             greatest(t.lo, width_bucket((k << 12) - 1, r.p) + 1) AS lo, least(t.hi, width_bucket((k << 12) + 4095, r.p)) AS hi
        FROM unnest($21::text[], $22::text[], $23::int[], $24::int[]) AS t(stream_id, topic, lo, hi)
        JOIN b USING (stream_id) JOIN r USING (stream_id), unnest(r.blocks) AS k) x
   WHERE x.lo <= x.hi)`

// ownManySQL writes messages with bytes of their own: $25 stream, then as in ownOneSQL. Positions follow their order.
const ownManySQL = `,
own AS (
  INSERT INTO {schema}.outbox (first_position, last_position, recorded_at, id, partition, schema_version, flags, topic, key,
         type, content_type, tenant, correlation_id, causation_id, actor, headers, data)
  SELECT z.position, z.position, z.at, z.id, z.partition, z.schema_version, z.flags, z.topic, z.key,
         z.type, z.content_type, z.tenant, z.correlation_id, z.causation_id, z.actor, z.headers, z.data
    FROM (SELECT nextval('{schema}.log_position') AS position, y.*
            FROM (SELECT v.at, b.partition, coalesce(nullif(b.partition_key, ''), b.stream_id) AS key, u.topic, u.id, u.type, u.content_type,
                         u.schema_version, u.flags, u.tenant, u.correlation_id, u.causation_id, u.actor, u.headers, u.data
                    FROM verdict v,
                         unnest($25::text[], $26::text[], $27::uuid[], $28::text[], $29::text[], $30::int[], $31::int[], $32::text[],
                                $33::text[], $34::text[], $35::text[], $36::bytea[], $37::bytea[]) WITH ORDINALITY
                         AS u(stream_id, topic, id, type, content_type, schema_version, flags, tenant, correlation_id, causation_id,
                              actor, headers, data, ord)
                    JOIN b USING (stream_id)
                   ORDER BY u.ord) y) z
  RETURNING first_position AS position, partition)`

// answerOwnManySQL is answerManySQL where messages draw positions too. The greatest of the partition counts, which is that
// of the stream or of one that is delivered in one order with it.
const answerOwnManySQL = `
SELECT w.ord, w.actual, w.closed, v.ok, coalesce(r.partition, w.partition), v.at, r.first,
       greatest(r.last, (SELECT max(o.position) FROM own o WHERE r.last IS NOT NULL AND o.partition = r.partition))
  FROM w CROSS JOIN verdict v LEFT JOIN r USING (stream_id)
 ORDER BY w.ord`

const (
	appendManyThinSQL = insertManySQL + thinManySQL + answerManySQL
	appendManyOwnSQL  = insertManySQL + thinManySQL + ownManySQL + answerOwnManySQL
)
