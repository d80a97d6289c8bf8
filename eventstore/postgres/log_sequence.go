package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

const (
	// sequenceStreams is the greatest number of streams with one partition key that are read stream by stream.
	sequenceStreams = 64
	// sequenceLook is how many events of one stream a page looks at, at least.
	sequenceLook = 500
)

// ReadSequence returns the next events in (after, upTo] with one partition key, which is the stream itself for an event
// without a key of its own: at most limit that f selects (f.Limit is ignored), by position. A zero upTo stands for the
// safe head, which bounds the page in any case. The work of a page is bounded, so it may be empty although more follows:
// go on from its Through until that has come to upTo.
//
// With a key that at most 64 streams have, its cost depends on the events of those streams only: at most limit of each are
// looked at, or 500 if that is more. With a key of more streams a page looks at 200,000 positions of the log. A position
// beyond the end of the log is an [*eventstore.HistoryError].
func (l *Log) ReadSequence(ctx context.Context, partition int, sequence string, after, upTo eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	s := l.store
	if err := checkSequence(sequence, partition, s.partitions, limit); err != nil {
		return eventstore.Page{}, err
	}
	if err := f.Validate(); err != nil {
		return eventstore.Page{}, err
	}
	from, to := after.Ordinal(), upTo.Ordinal()
	if safe := s.head.safe.Load(); to == 0 || to > safe {
		head, err := s.SafeHead(ctx)
		if err != nil {
			return eventstore.Page{}, err
		}
		if end := s.head.highest.Load(); from > end {
			return eventstore.Page{}, beyondEnd(from, end)
		}
		if safe = head.Ordinal(); to == 0 || to > safe {
			to = safe
		}
	}
	if from >= to {
		return eventstore.Page{Through: after}, nil
	}
	r := sequenceReading{}
	types, categories := notNilText(f.Types), notNilText(f.Categories)
	err := s.readSequence(ctx, sequence, s.sql.sequence, r.collect, from, to, limit, sequence, partition, types, categories, max(limit, sequenceLook))
	if err == nil && r.streams > sequenceStreams {
		r.through = min(from+window, to)
		err = s.readSequence(ctx, sequence, s.sql.sequenceScan, r.collectScan, from, r.through, limit, sequence, partition, types, categories)
	}
	if err != nil {
		return eventstore.Page{}, err
	}
	return finishPage(eventstore.Page{Events: r.events}, r.through, limit), nil
}

func checkSequence(sequence string, partition, partitions, limit int) error {
	switch {
	case sequence == "":
		return &eventstore.InvalidError{Field: "sequence", Reason: "is empty", Remedy: "give the partition key of an event"}
	case partition < 0 || partition >= partitions:
		return &eventstore.InvalidError{
			Field: "partition", Value: fmt.Sprint(partition), Reason: fmt.Sprintf("is not one of the store's %d", partitions), Remedy: "give the partition of the key",
		}
	case limit < 1:
		return &eventstore.InvalidError{Field: "limit", Value: fmt.Sprint(limit), Reason: "is below 1", Remedy: "ask for at least one event"}
	}
	return nil
}

func (s *Store) readSequence(ctx context.Context, sequence, sql string, read func(pgx.Rows) error, args ...any) error {
	p := newPipeline()
	if s.cfg.TransactionPooler {
		p.add(s.sql.guard, nil)
	}
	p.add(s.sql.sequenceSettings, nil)
	p.add(sql, read, args...)
	if err := s.run(ctx, p); err != nil {
		return fmt.Errorf("postgres: read sequence %q: %w", sequence, err)
	}
	return nil
}

// sequenceReading is one page on its way.
type sequenceReading struct {
	through int64
	streams int // with the key, counted up to one more than are read one by one
	events  []eventstore.RecordedEvent
}

// collect reads the answer: at least one row, which may hold no event. It may be called again when the pipeline runs again.
func (r *sequenceReading) collect(rows pgx.Rows) error {
	r.events = nil
	var d decoder
	for rows.Next() {
		if raw := rows.RawValues(); raw[2] == nil {
			dest := make([]any, len(raw))
			dest[0], dest[1] = &r.through, &r.streams
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			continue
		}
		e, err := d.event(rows, &r.through, &r.streams)
		if err != nil {
			return err
		}
		r.events = append(r.events, e)
	}
	return rows.Err()
}

func (r *sequenceReading) collectScan(rows pgx.Rows) (err error) {
	r.events, err = collectEvents(rows, 0)
	return err
}

const (
	// Settings of the transaction; see outboxSettingsSQL. A plan made without the values takes any two positions to be close
	// and would read all that lies between them: with no sort to be had, it takes the events of a stream by their index.
	sequenceSettingsSQL = `
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

	// sequenceSQL takes the streams with key $4 one by one. Positions rise with versions, so that the first version beyond
	// $1 is found by bisection: a long history before it costs nothing. Of each stream up to $8 events are looked at; where
	// there are that many, the page is complete up to the last of them only.
	sequenceSQL = `
WITH keys AS MATERIALIZED (
  SELECT x.stream_id, x.version FROM (
    SELECT s.stream_id, s.version FROM {schema}.streams s WHERE s.stream_id = $4::text AND s.partition_key = ''
    UNION ALL
    SELECT s.stream_id, s.version FROM {schema}.streams s WHERE s.partition_key = $4::text AND s.partition_key <> '') x
   LIMIT 65),
found AS MATERIALIZED (
  SELECT k.stream_id, e.position, e.type
    FROM keys k
   CROSS JOIN LATERAL (
     WITH RECURSIVE b(lo, hi) AS (
       SELECT 0::bigint, k.version + 1
       UNION ALL
       SELECT CASE WHEN x.beyond THEN y.lo ELSE y.mid END, CASE WHEN x.beyond THEN y.mid ELSE y.hi END
         FROM (SELECT b.lo, b.hi, (b.lo + b.hi) / 2 AS mid FROM b WHERE b.hi - b.lo > 1) y
        CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM {schema}.events v
                WHERE v.stream_id = k.stream_id AND v.version = y.mid AND v.position > $1::bigint) AS beyond) x)
     SELECT min(b.hi) AS version FROM b) f
   CROSS JOIN LATERAL (
     SELECT v.position, v.type FROM {schema}.events v
      WHERE v.stream_id = k.stream_id AND v.version >= f.version AND v.position > $1::bigint AND v.position <= $2::bigint
        AND v.partition = $5::bigint
      ORDER BY v.version LIMIT $8::bigint) e
   WHERE (SELECT count(*) FROM keys) <= 64),
cut AS MATERIALIZED (
  SELECT coalesce(min(x.last), $2::bigint) AS upto
    FROM (SELECT max(f.position) AS last FROM found f GROUP BY f.stream_id HAVING count(*) >= $8::bigint) x),
m AS MATERIALIZED (
  SELECT f.position FROM found f, cut
   WHERE f.position <= cut.upto
     AND (cardinality($6::text[]) = 0 OR f.type = ANY ($6::text[]))
     AND (cardinality($7::text[]) = 0 OR split_part(f.stream_id, '-', 1) = ANY ($7::text[]))
   ORDER BY f.position LIMIT $3)
SELECT cut.upto, (SELECT count(*) FROM keys), ` + eventColumns + `
  FROM cut LEFT JOIN (m CROSS JOIN LATERAL (
    SELECT v.* FROM {schema}.events v
     WHERE v.position = m.position AND v.position > $1::bigint AND v.position <= $2::bigint LIMIT 1) e) ON true
 ORDER BY e.position`

	// sequenceScanSQL reads the log itself.
	sequenceScanSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.position > $1::bigint AND e.position <= $2::bigint AND e.partition = $5::bigint
   AND (e.partition_key = $4::text OR e.partition_key = '' AND e.stream_id = $4::text)
   AND (cardinality($6::text[]) = 0 OR e.type = ANY ($6::text[]))
   AND (cardinality($7::text[]) = 0 OR split_part(e.stream_id, '-', 1) = ANY ($7::text[]))
 ORDER BY e.position LIMIT $3`
)
