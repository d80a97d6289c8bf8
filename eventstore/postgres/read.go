package postgres

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/eventstore"
)

// streamPage is the number of events fetched at a time when a stream is read.
const streamPage = 1000

// eventQuerier is what a read needs: the pool, a connection or a transaction.
type eventQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ReadStream reads one stream in pages of 1,000 events, each a statement of its own, so that no transaction stays open
// while the caller works; see [eventstore.StreamReader]. Pages agree because a stream only grows.
func (s *Store) ReadStream(ctx context.Context, stream eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	return s.readStream(ctx, s.pool, stream, r)
}

// ReadStream reads one stream as the transaction sees it, its own appends included.
func (t *TxStore) ReadStream(ctx context.Context, stream eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	if err := t.broken(); err != nil {
		return func(yield func(eventstore.RecordedEvent, error) bool) { yield(eventstore.RecordedEvent{}, err) }
	}
	return t.store.readStream(ctx, t.tx, stream, r)
}

func (s *Store) readStream(ctx context.Context, q eventQuerier, stream eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		if err := checkRange(stream, r); err != nil {
			yield(eventstore.RecordedEvent{}, err)
			return
		}
		from, to, left := int64(max(r.From, 1)), int64(r.To), r.Limit
		if to == 0 {
			to = math.MaxInt64
		}
		if left == 0 {
			left = math.MaxInt
		}
		var after int64
		for {
			want := min(streamPage, left)
			events, err := s.streamPage(ctx, q, stream, from, to, want, after)
			if q == eventQuerier(s.pool) && s.renewed(err) {
				events, err = s.streamPage(ctx, q, stream, from, to, want, after)
			}
			if err != nil {
				yield(eventstore.RecordedEvent{}, fmt.Errorf("postgres: read stream %q: %w", stream, err))
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if len(events) < want || left == want {
				return
			}
			left -= want
			last := events[len(events)-1]
			from, after = int64(last.Version)+1, last.Position.Ordinal()
		}
	}
}

// streamPage reads one page. With few ranges the statement is prepared and finds the stream's lowest position by
// itself; with many, its plan would lock every range of the log, so the lowest position is read first and the statement
// is planned with its value.
func (s *Store) streamPage(ctx context.Context, q eventQuerier, stream eventstore.StreamID, from, to int64, limit int, after int64) ([]eventstore.RecordedEvent, error) {
	args := []any{stream.String(), from, to, limit, after}
	if s.ranges.many() {
		if after == 0 {
			var floor int64
			if err := q.QueryRow(ctx, s.sql.floorPosition, stream.String()).Scan(&floor); err != nil {
				return nil, err
			}
			args[4] = floor
		}
		if q == eventQuerier(s.pool) {
			return s.streamPageUnnamed(ctx, limit, args)
		}
		args = append([]any{pgx.QueryExecModeDescribeExec}, args...)
	}
	rows, err := q.Query(ctx, s.sql.readStream, args...)
	if err != nil {
		return nil, err
	}
	return collectEvents(rows, min(limit, 64))
}

// streamPageUnnamed gets values in binary form: as text they would depend on the role's DateStyle and bytea_output.
func (s *Store) streamPageUnnamed(ctx context.Context, limit int, args []any) (events []eventstore.RecordedEvent, err error) {
	p := newPipeline()
	p.add(s.sql.readStream, func(rows pgx.Rows) (err error) {
		events, err = collectEvents(rows, min(limit, 64))
		return err
	}, args...)
	err = s.run(ctx, p)
	return events, err
}

func checkRange(stream eventstore.StreamID, r eventstore.Range) error {
	if err := stream.Validate(); err != nil {
		return err
	}
	return r.Validate()
}

func collectEvents(rows pgx.Rows, sizeHint int) ([]eventstore.RecordedEvent, error) {
	defer rows.Close()
	events := make([]eventstore.RecordedEvent, 0, sizeHint)
	var d decoder
	for rows.Next() {
		e, err := d.event(rows)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, rows.Err()
}

// decoder makes events of rows. It remembers the last value of columns that repeat from row to row, so that a page of a
// million equal type names holds one string.
type decoder struct {
	id                                                                       pgtype.UUID
	at                                                                       time.Time
	headers                                                                  []byte
	streamText, typ, contentType, tenant, correlation, causation, actor, key pgtype.DriverBytes
	interned                                                                 map[string]string
}

// event reads a row of eventColumns, which may follow others that go to before.
func (d *decoder) event(rows pgx.Rows, before ...any) (eventstore.RecordedEvent, error) {
	var e eventstore.RecordedEvent
	var position int64
	var schemaVersion, flags, partition int32
	err := rows.Scan(append(before, &position, &e.Version, &d.at, &d.id, &partition, &schemaVersion, &flags, &d.streamText, &d.key, &d.typ,
		&d.contentType, &d.tenant, &d.correlation, &d.causation, &d.actor, (*pgtype.DriverBytes)(&d.headers), &e.Data)...)
	if err != nil {
		return e, err
	}
	text := string(d.streamText)
	category, id, _ := strings.Cut(text, "-")
	e.Stream = eventstore.StreamID{Category: category, ID: id}
	e.Position, e.RecordedAt = eventstore.PositionAt(position), d.at.UTC()
	e.ID, e.Partition, e.SchemaVersion, e.Flags = d.id.Bytes, int(partition), int(schemaVersion), eventstore.Flags(flags)
	e.PartitionKey = text
	if len(d.key) > 0 {
		e.PartitionKey = d.intern(d.key)
	}
	e.Type, e.ContentType = d.intern(d.typ), d.intern(d.contentType)
	e.Metadata.Tenant, e.Metadata.Actor = d.intern(d.tenant), d.intern(d.actor)
	e.Metadata.CorrelationID, e.Metadata.CausationID = string(d.correlation), string(d.causation)
	if e.Metadata.Headers, err = eventstore.DecodeHeaders(d.headers); err != nil {
		return e, fmt.Errorf("position %d: %w", position, err)
	}
	return e, nil
}

// maxInterned bounds the table of one page; values beyond it get a string of their own.
const maxInterned = 256

func (d *decoder) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := d.interned[string(b)]; ok { // does not allocate
		return s
	}
	s := string(b)
	if d.interned == nil {
		d.interned = make(map[string]string)
	}
	if len(d.interned) < maxInterned {
		d.interned[s] = s
	}
	return s
}

const eventColumns = `e.position, e.version, e.recorded_at, e.id, e.partition, e.schema_version, e.flags, e.stream_id, e.partition_key, e.type,
       e.content_type, e.tenant, e.correlation_id, e.causation_id, e.actor, e.headers, e.data`

const (
	readStreamSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.stream_id = $1 AND e.version BETWEEN $2 AND $3
   AND e.position > $5 AND e.position > coalesce((SELECT s.floor_position FROM {schema}.streams s WHERE s.stream_id = $1), 0)
 ORDER BY e.version LIMIT $4`

	floorPositionSQL = `SELECT coalesce((SELECT floor_position FROM {schema}.streams WHERE stream_id = $1), 0)`
)
