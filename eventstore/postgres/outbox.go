package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/eventstore"
)

// Outbox is what the store has to publish, as relays and consumers read it. Make one for each consumer: it remembers how
// long the consumer has been idle. All methods are safe for concurrent use.
type Outbox struct{ log *Log }

// Outbox returns a reader of the outbox.
func (s *Store) Outbox() *Outbox { return &Outbox{log: s.Log()} }

// ReadPage returns the next messages that q selects, in one round trip, in order of their own position: messages of
// concurrent appends interleave. It looks at no more than Limit + 1 rows of the outbox beyond those open at After, and at
// a window of positions, so a page may be empty although more follows: go on from its Through until that does not move.
// A position beyond the end of the log is an [*eventstore.HistoryError].
func (o *Outbox) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	if err := q.Validate(); err != nil {
		return eventstore.OutboxPage{}, err
	}
	count := o.log.store.wake.now()
	page, err := o.readPage(ctx, q)
	if err == nil {
		o.log.noted.note(page.Through.Ordinal(), count)
	}
	return page, err
}

func (o *Outbox) readPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	s, r := o.log.store, outboxReading{query: q, after: q.After.Ordinal(), upTo: q.UpTo.Ordinal()}
	r.end = r.after + window
	if r.upTo > 0 {
		r.end = max(min(r.end, r.upTo), r.after)
	}
	// What is known to be decided needs no new reading of the head.
	if safe := s.head.safe.Load(); r.after < safe && (r.upTo == 0 || r.end <= safe) {
		r.end = min(r.end, safe)
		return r.run(ctx, s, false)
	}
	return r.run(ctx, s, true)
}

// outboxReading is one page on its way.
type outboxReading struct {
	query            eventstore.OutboxQuery
	after, upTo, end int64
	page             eventstore.OutboxPage
	through, cleaned int64
}

func (r *outboxReading) run(ctx context.Context, s *Store, withHead bool) (eventstore.OutboxPage, error) {
	p := newPipeline()
	if s.cfg.TransactionPooler {
		p.add(s.sql.guard, nil)
	}
	known := s.head.highest.Load()
	var got headReading
	p.add(s.sql.outboxSettings, nil, fmt.Sprint(r.end))
	if withHead {
		s.queueHead(p, known, &got)
	}
	r.queue(p, s)
	if err := s.run(ctx, p); err != nil {
		return eventstore.OutboxPage{}, fmt.Errorf("postgres: read the outbox: %w", err)
	}
	if withHead {
		if _, ok := s.take(got, known); !ok {
			return eventstore.OutboxPage{}, s.lost(known)
		}
		if end := s.head.highest.Load(); r.after > end {
			return eventstore.OutboxPage{}, beyondEnd(r.after, end)
		}
	}
	n := len(r.page.Messages)
	if n >= r.query.Limit {
		r.through = r.page.Messages[n-1].Position.Ordinal()
	}
	r.page.Through, r.page.Cleaned = eventstore.PositionAt(max(r.through, r.after)), eventstore.PositionAt(r.cleaned)
	return r.page, nil
}

// queue adds the reading of the messages and, as a later statement, of how far they were cleaned.
func (r *outboxReading) queue(p *pipeline, s *Store) {
	args := []any{r.after, r.end, r.query.Limit}
	sql := s.sql.outbox
	switch topic, one := r.query.Topic, r.query.Partition != eventstore.AllPartitions; {
	case r.query.PartitionKey != "":
		sql, args = s.sql.outboxKey, append(args, r.query.Partition, topic, r.query.PartitionKey)
	case one && r.query.LastPartition > r.query.Partition:
		sql, args = s.sql.outboxRange, append(args, r.query.Partition, r.query.LastPartition, topic)
	case one && topic != "":
		sql, args = s.sql.outboxPartitionTopic, append(args, r.query.Partition, topic)
	case one:
		sql, args = s.sql.outboxPartition, append(args, r.query.Partition)
	case topic != "":
		sql, args = s.sql.outboxTopic, append(args, topic)
	}
	p.add(sql, r.collect, args...)
	cleaned := func(rows pgx.Rows) error {
		rows.Next()
		return rows.Scan(&r.cleaned)
	}
	if r.query.Topic != "" {
		p.add(s.sql.outboxCleanedTopic, cleaned, r.query.Topic)
	} else {
		p.add(s.sql.outboxCleaned, cleaned)
	}
}

// collect reads the answer: at least one row, which may hold no message. It may be called again when the pipeline runs
// again.
func (r *outboxReading) collect(rows pgx.Rows) error {
	r.page.Messages = nil
	var d decoder
	var topic pgtype.DriverBytes
	for rows.Next() {
		if raw := rows.RawValues(); raw[2] == nil {
			dest := make([]any, len(raw))
			dest[0] = &r.through
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			continue
		}
		e, err := d.event(rows, &r.through, &topic)
		if err != nil {
			return err
		}
		if e.Version == 0 {
			e.Stream = eventstore.StreamID{}
		}
		r.page.Messages = append(r.page.Messages, eventstore.OutboxMessage{RecordedEvent: e, Topic: d.intern(topic)})
	}
	return rows.Err()
}

// Wait returns nil when there may be something after a position; see [Log.Wait]. A transaction of others that wrote to
// the outbox by itself is noticed within a second at the latest.
func (o *Outbox) Wait(ctx context.Context, after eventstore.Position) error {
	return o.log.Wait(ctx, after)
}

// SafeHead is [Store.SafeHead]: nothing can appear at or below it any more, neither events nor messages.
func (o *Outbox) SafeHead(ctx context.Context) (eventstore.Position, error) {
	return o.log.store.SafeHead(ctx)
}

// Highest is the greatest position that this process knows to be committed; it asks nobody. [Outbox.SafeHead] brings it up
// to date.
func (o *Outbox) Highest() eventstore.Position {
	return eventstore.PositionAt(o.log.store.head.highest.Load())
}

// Epoch identifies the history of the store, as it was when the store was opened; see [Outbox.Epochs].
func (o *Outbox) Epoch() uuid.UUID { return o.log.store.epoch }

// Partitions is [Store.Partitions].
func (o *Outbox) Partitions() int { return o.log.store.partitions }

// Schema is the PostgreSQL schema of the store.
func (o *Outbox) Schema() string { return o.log.store.cfg.Schema }

// Epochs asks the database for the epoch of the store as it is now, and for those that it had before, oldest first.
func (o *Outbox) Epochs(ctx context.Context) (current uuid.UUID, earlier []uuid.UUID, err error) {
	rows, err := o.log.store.pool.Query(ctx, o.log.store.sql.epochs)
	if err != nil {
		return uuid.UUID{}, nil, fmt.Errorf("postgres: read epochs: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (uuid.UUID, error) {
		var id pgtype.UUID
		err := row.Scan(&id)
		return id.Bytes, err
	})
	if err != nil {
		return uuid.UUID{}, nil, fmt.Errorf("postgres: read epochs: %w", err)
	}
	return list[len(list)-1], list[:len(list)-1], nil
}

const (
	outboxColumns = `o.first_position, o.last_position, o.from_version, o.to_version, o.id, o.partition, o.schema_version, o.flags, o.topic, o.key,
         o.stream_id, o.type, o.content_type, o.tenant, o.correlation_id, o.causation_id, o.actor, o.headers, o.data, o.recorded_at`

	// Rows that are open at $1 begin in its block of 4,096 positions; of the rows that begin beyond it, in order, those up
	// to row $3 + 1 and its equals are looked at. Where there are that many, nothing at or below the first position of the
	// last belongs to a row that was not looked at. Both bounds are parameters, so that a plan made with them leaves other
	// ranges alone; the safe head is a setting made by the statement before.
	outboxA = `
WITH bound AS MATERIALIZED (
  SELECT least($2::bigint, coalesce(nullif(current_setting('daybook.safe', true), ''), '0')::bigint) AS upto),
beyond AS MATERIALIZED (
  SELECT ` + outboxColumns + ` FROM {schema}.outbox o
   WHERE o.first_position > $1::bigint AND o.first_position <= $2::bigint AND o.first_position <= (SELECT b.upto FROM bound b)`
	outboxB = `
   ORDER BY o.first_position FETCH FIRST ($3::bigint + 1) ROWS WITH TIES),
cut AS MATERIALIZED (
  SELECT CASE WHEN (SELECT count(*) FROM beyond) > $3::bigint THEN (SELECT max(y.first_position) FROM beyond y) ELSE b.upto END AS upto FROM bound b),
w AS MATERIALIZED (
  SELECT y.* FROM beyond y
  UNION ALL
  SELECT ` + outboxColumns + ` FROM {schema}.outbox o
   WHERE o.first_position >= ($1::bigint >> 12) << 12 AND o.first_position <= $1::bigint AND o.last_position > $1::bigint`
	outboxC = `),
m AS MATERIALIZED (
  SELECT z.* FROM (
    SELECT w.topic, ` + eventColumns + `
      FROM cut, w CROSS JOIN LATERAL (
        SELECT v.* FROM {schema}.events v
         WHERE v.stream_id = w.stream_id AND v.version BETWEEN w.from_version AND w.to_version
           AND v.position BETWEEN w.first_position AND w.last_position AND v.position > $1::bigint AND v.position <= $2::bigint
         ORDER BY v.version LIMIT w.to_version - w.from_version + 1) e
     WHERE w.stream_id IS NOT NULL AND e.position <= cut.upto
    UNION ALL
    SELECT w.topic, w.first_position, 0, w.recorded_at, w.id, w.partition, w.schema_version, w.flags, '', w.key, w.type,
           w.content_type, w.tenant, w.correlation_id, w.causation_id, w.actor, w.headers, w.data
      FROM cut, w WHERE w.data IS NOT NULL AND w.first_position > $1::bigint AND w.first_position <= cut.upto) z
   ORDER BY z.position FETCH FIRST ($3::bigint) ROWS WITH TIES)
SELECT cut.upto, e.topic, ` + eventColumns + `
  FROM cut LEFT JOIN m e ON true
 ORDER BY e.position, e.topic`

	outboxSQL               = outboxA + outboxB + outboxC
	outboxPartitionSQL      = outboxA + ` AND o.partition = $4::bigint` + outboxB + ` AND o.partition = $4::bigint` + outboxC
	outboxTopicSQL          = outboxA + ` AND o.topic = $4::text` + outboxB + ` AND o.topic = $4::text` + outboxC
	outboxPartitionTopicSQL = outboxA + ` AND o.partition = $4::bigint AND o.topic = $5::text` +
		outboxB + ` AND o.partition = $4::bigint AND o.topic = $5::text` + outboxC

	// A range of partitions is picked out of what is read in order of position: by the index on partitions the planner would
	// collect and sort a whole backlog for each page. That is why the partition is an expression.
	outboxRangeSQL = outboxA + inRange + outboxB + inRange + outboxC
	inRange        = ` AND o.partition + 0 BETWEEN $4::bigint AND $5::bigint AND ($6::text = '' OR o.topic = $6::text)`

	outboxKeySQL = outboxA + ` AND o.partition = $4::bigint AND o.topic = $5::text AND o.key = $6::text` +
		outboxB + ` AND o.partition = $4::bigint AND o.topic = $5::text AND o.key = $6::text` + outboxC

	// By the key of its one row: a scan that enable_seqscan = off makes expensive would be compiled each time (jit).
	outboxCleanedSQL = `SELECT s.outbox_cleaned FROM {schema}.store s WHERE s.singleton`

	outboxCleanedTopicSQL = `SELECT coalesce((SELECT t.cleaned FROM {schema}.outbox_topics t WHERE t.topic = $1), 0)`

	// Settings of the transaction. In a range without statistics the planner would collect and sort everything between the
	// bounds for a page of few rows, instead of reading it in order.
	outboxSettingsSQL = `
SELECT set_config('daybook.safe', $1, true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

	epochsSQL = `
SELECT x.epoch FROM (SELECT e.epoch, e.ended_at FROM {schema}.epochs e
                     UNION ALL SELECT s.epoch, 'infinity' FROM {schema}.store s WHERE s.singleton) x ORDER BY x.ended_at`
)
