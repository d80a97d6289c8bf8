package parking

import "sync"

// texts are the statements for one schema.
type texts struct {
	load, open, add, alter, count, remove, park, failed, closed, hold, drop, forget, held, look, item, begin, end, lock, tally, done string
}

var known sync.Map // of schemas

func textsFor(o Owner) *texts {
	if t, ok := known.Load(o.Schema); ok {
		return t.(*texts)
	}
	t := &texts{
		load: o.sql(loadSQL), open: o.sql(openLetterSQL), add: o.sql(addSQL), alter: o.sql(alterSQL), count: o.sql(countSQL),
		remove: o.sql(removeSQL), park: o.sql(parkSQL), failed: o.sql(failedSQL), closed: o.sql(closeSQL), hold: o.sql(holdSQL),
		drop: o.sql(dropSQL), forget: o.sql(forgetSQL), held: o.sql(heldSQL), look: o.sql(lookSQL), item: o.sql(itemSQL), begin: o.sql(beginSQL),
		end: o.sql(endSQL), lock: o.sql(lockSQL), tally: o.sql(tallySQL), done: o.sql(doneSQL),
	}
	known.Store(o.Schema, t)
	return t
}

const addSQL = `
INSERT INTO {schema}.parked (consumer, version, topic, sequence, partition, state, due_at, first_position, last_position, previous, queued, since, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

// A row is found by a range of its key in the key's order: of two indexes that begin alike a planner that believes the
// table to be empty takes either, and only one of them gives that order. The segment, which is locked, keeps others from
// moving the row meanwhile.
const rowSQL = `(SELECT k.at FROM (
    SELECT x.ctid AS at, x.sequence FROM {schema}.parked x
     WHERE x.consumer = $1 AND x.version = $2 AND x.topic = $3 AND x.sequence >= $4
     ORDER BY x.sequence LIMIT 1) k WHERE k.sequence = $4)`

const alterSQL = `
UPDATE {schema}.parked SET state = $5, due_at = $6, first_position = $7, last_position = $8, previous = $9, queued = $10
 WHERE ctid = ` + rowSQL

const removeSQL = `DELETE FROM {schema}.parked WHERE ctid = ` + rowSQL

const countSQL = `
UPDATE {schema}.parked p SET queued = v.queued, last_position = v.last
  FROM (SELECT k.at, u.queued, u.last
          FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS u(topic, sequence, queued, last),
               LATERAL (SELECT x.ctid AS at, x.sequence FROM {schema}.parked x
                         WHERE x.consumer = $1 AND x.version = $2 AND x.topic = u.topic AND x.sequence >= u.sequence
                         ORDER BY x.sequence LIMIT 1) k
         WHERE k.sequence = u.sequence) v
 WHERE p.ctid = v.at`

// parkSQL goes on with a letter that there was: its first failure stays. The message is written again, because that of an
// inbox may be of another history than the one that had its position before.
const parkSQL = `
INSERT INTO {schema}.letters AS l (letter, state, kind, attempts, round, fingerprint, errors, first_errors, first_failed_at,
         last_failed_at, handler, program, consumer, version, topic, sequence, partition, position,
         id, stream_id, stream_version, type, schema_version, flags, content_type, tenant, correlation_id, causation_id, actor,
         headers, data, recorded_at)
VALUES ($1, $2, $3, 1, $4, $5, $6, $6, $7, $7, $8, $9, $10, $11, $12, $13, $14, $15,
        $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)
ON CONFLICT (letter) DO UPDATE
   SET state = excluded.state, kind = excluded.kind, attempts = l.attempts + 1, round = excluded.round, fingerprint = excluded.fingerprint,
       errors = excluded.errors, last_failed_at = excluded.last_failed_at, handler = excluded.handler, program = excluded.program,
       closed_at = NULL, closed_by = '', reason = '', sequence = excluded.sequence, partition = excluded.partition, id = excluded.id,
       stream_id = excluded.stream_id, stream_version = excluded.stream_version, type = excluded.type,
       schema_version = excluded.schema_version, flags = excluded.flags, content_type = excluded.content_type, tenant = excluded.tenant,
       correlation_id = excluded.correlation_id, causation_id = excluded.causation_id, actor = excluded.actor,
       headers = excluded.headers, data = excluded.data, recorded_at = excluded.recorded_at`

// failedSQL and closeSQL do not name the states of open letters: a planner that believes the table to be empty would go
// through the whole index of those.
const failedSQL = `
UPDATE {schema}.letters
   SET state = $2, kind = $3, attempts = attempts + 1, round = $4, fingerprint = $5, errors = $6, last_failed_at = $7, handler = $8, program = $9
 WHERE letter = $1 AND closed_at IS NULL`

const closeSQL = `
UPDATE {schema}.letters SET state = $2, closed_at = $3, closed_by = $4, reason = $5
 WHERE letter = $1 AND closed_at IS NULL`
