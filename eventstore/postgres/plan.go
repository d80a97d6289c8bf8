package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/eventstore"
)

// The driver counts microseconds in 64 bits and would wrap around beyond, without an error.
const minYear, maxYear = -4712, 294_000

// plan is one append on its way: what to send, and what came back.
type plan struct {
	sql      *statements
	writes   []eventstore.Write
	ownIDs   bool
	events   int
	at       *time.Time // nil: the database's clock
	columns  columns
	pub      published
	outcomes []outcome // one per write
	first    int64     // lowest and highest position written
	last     int64
	recorded time.Time
	once     *once // the command with a key whose append it is, or nil
}

// outcome is what happened to one stream of the append.
type outcome struct {
	stream       eventstore.StreamID
	partition    int32
	partitionKey string
	events       int
	actual       eventstore.Version // before the append
	version      eventstore.Version // after it
	last         int64              // position of its last event
	closed       bool
	accepted     bool
}

// columns are the events of an append, one array per column.
type columns struct {
	ids                                                            []pgtype.UUID
	types, contentTypes, tenants, correlations, causations, actors []string
	schemaVersions, flags                                          []int32
	headers, data                                                  [][]byte
	streams                                                        []string // of each event, for appends to several streams
	offsets                                                        []int32  // place in that stream's part, from 1
}

func (s *Store) plan(ctx context.Context, writes []eventstore.Write) (*plan, error) {
	prepared, ownIDs, err := eventstore.Prepare(ctx, writes)
	if err != nil {
		return nil, err
	}
	p := &plan{sql: &s.sql, writes: prepared, ownIDs: ownIDs, events: countEvents(prepared), outcomes: make([]outcome, len(prepared))}
	if s.cfg.Clock != nil {
		now := s.cfg.Clock().UTC().Truncate(time.Microsecond)
		if year := now.Year(); year < minYear || year > maxYear {
			return nil, &eventstore.InvalidError{
				Field: "Config.Clock", Value: now.String(), Reason: "lies outside what timestamptz can hold", Remedy: "mend the clock",
			}
		}
		p.at = &now
	}
	p.columns.grow(p.events)
	for i, w := range prepared {
		stream, key := w.Stream.String(), w.PartitionKey
		if err := s.pool.waitsForItself(ctx, stream); err != nil {
			return nil, err
		}
		partition := eventstore.PartitionOf(cmp.Or(key, stream), s.partitions)
		if key == stream {
			key = ""
		}
		p.outcomes[i] = outcome{stream: w.Stream, events: len(w.Events), partition: int32(partition), partitionKey: key}
		for k, e := range w.Events {
			if err := p.columns.add(stream, k, e); err != nil {
				return nil, err
			}
		}
		if err := p.pub.publish(s.cfg.Routes, w.Stream, stream, w.Events); err != nil {
			return nil, err
		}
	}
	return p, p.pub.check()
}

func (c *columns) grow(n int) {
	c.ids = make([]pgtype.UUID, 0, n)
	text := make([]string, 7*n)
	for i, column := range []*[]string{&c.types, &c.contentTypes, &c.tenants, &c.correlations, &c.causations, &c.actors, &c.streams} {
		*column = text[i*n : i*n : (i+1)*n]
	}
	c.schemaVersions, c.flags, c.offsets = make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n)
	c.headers, c.data = make([][]byte, 0, n), make([][]byte, 0, n)
}

func (c *columns) add(stream string, k int, e eventstore.EventData) error {
	headers, err := eventstore.EncodeHeaders(e.Metadata.Headers)
	if err != nil {
		return err
	}
	c.ids = append(c.ids, pgtype.UUID{Bytes: e.ID, Valid: true})
	c.types = append(c.types, e.Type)
	c.contentTypes = append(c.contentTypes, e.ContentType)
	c.tenants = append(c.tenants, e.Metadata.Tenant)
	c.correlations = append(c.correlations, e.Metadata.CorrelationID)
	c.causations = append(c.causations, e.Metadata.CausationID)
	c.actors = append(c.actors, e.Metadata.Actor)
	c.schemaVersions = append(c.schemaVersions, int32(e.SchemaVersion))
	c.flags = append(c.flags, int32(e.Flags))
	c.headers = append(c.headers, notNil(headers))
	c.data = append(c.data, notNil(e.Data))
	c.streams = append(c.streams, stream)
	c.offsets = append(c.offsets, int32(k+1))
	return nil
}

// uniform is a column whose values are all the same, as one value; else it is the column.
func uniform[T comparable](column []T) []T {
	for _, v := range column[1:] {
		if v != column[0] {
			return column
		}
	}
	return column[:1]
}

// uniformBytes is [uniform] for bytes.
func uniformBytes(column [][]byte) [][]byte {
	for _, v := range column[1:] {
		if !bytes.Equal(v, column[0]) {
			return column
		}
	}
	return column[:1]
}

// notNil keeps an empty value apart from SQL's NULL, which the columns refuse.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (p *plan) reset() {
	p.first, p.last = 0, 0
	if p.once != nil {
		p.once.stored = nil
	}
	for i := range p.outcomes {
		o := &p.outcomes[i]
		o.accepted, o.closed, o.actual, o.version = false, false, 0, 0
	}
}

// queue adds the statements of the append to a pipeline. Heads are locked by a statement of its own before the one that
// draws positions: a writer that waits while it is registered holds the head of the whole log back.
func (p *plan) queue(b *pgx.Batch) {
	if p.once != nil {
		defer p.queueOutcome(b)
	}
	if len(p.writes) == 1 && p.events > 0 {
		if expected, exact := p.writes[0].Expected.Exact(); exact {
			p.queueOne(b, expected)
			return
		}
	}
	p.once.queueKey(b, p.sql)
	if len(p.writes) > 0 {
		p.queueMany(b)
	}
}

func (p *plan) queueOne(b *pgx.Batch, expected eventstore.Version) {
	o, c := &p.outcomes[0], &p.columns
	stream := o.stream.String()
	scan := func(row pgx.Row) error {
		var last *int64
		var first *int64
		var partition *int32
		var at *time.Time
		var actual *int64
		var closed *bool
		if err := row.Scan(&first, &last, &partition, &at, &actual, &closed); err != nil {
			return err
		}
		if last == nil {
			if actual != nil {
				o.actual, o.closed = eventstore.Version(*actual), *closed
			}
			return nil
		}
		o.accepted, o.actual, o.version = true, expected, expected+eventstore.Version(p.events)
		o.partition, o.last = *partition, *last
		p.first, p.last, p.recorded = *first, *last, at.UTC()
		return nil
	}
	args := []any{
		stream, p.events, p.at, c.ids, c.types, uniform(c.contentTypes), uniform(c.schemaVersions), uniform(c.flags), uniform(c.tenants),
		uniform(c.correlations), uniform(c.causations), uniform(c.actors), uniformBytes(c.headers), c.data,
	}
	if expected == 0 {
		p.once.queueKey(b, p.sql)
		// Only another creation of the same stream can make this one wait.
		sql, args := p.pub.one(p.events, &p.sql.appendNew, args)
		b.Queue(sql, append(args, o.partition, o.partitionKey)...).QueryRow(scan)
		return
	}
	if p.once.locks() {
		b.Queue(p.sql.lockKeyOne, stream, p.once.lock)
	} else {
		b.Queue(p.sql.lockOne, stream)
	}
	sql, args := p.pub.one(p.events, &p.sql.appendExisting, args)
	b.Queue(sql, append(args, int64(expected))...).QueryRow(scan)
}

func (p *plan) queueMany(b *pgx.Batch) {
	n := len(p.writes)
	streams, keys := make([]string, n), make([]string, n)
	kinds, counts, partitions, expected := make([]int32, n), make([]int32, n), make([]int32, n), make([]int64, n)
	for i, w := range p.writes {
		o := &p.outcomes[i]
		streams[i], keys[i], partitions[i], counts[i] = w.Stream.String(), o.partitionKey, o.partition, int32(o.events)
		switch v, exact := w.Expected.Exact(); {
		case exact:
			expected[i] = int64(v)
		case w.Expected == eventstore.StreamExists:
			kinds[i] = 1
		default:
			kinds[i] = 2
		}
	}
	c := &p.columns
	b.Queue(p.sql.lockAll, streams, partitions)
	sql, args := p.pub.many(p.sql.appendMany, p.sql.appendManyThin, p.sql.appendManyOwn, []any{
		streams, kinds, expected, counts, partitions, keys, p.at,
		c.streams, c.offsets, c.ids, c.types, c.contentTypes, c.schemaVersions, c.flags, c.tenants,
		c.correlations, c.causations, c.actors, c.headers, c.data,
	})
	b.Queue(sql, args...).Query(p.scanMany)
}

func (p *plan) scanMany(rows pgx.Rows) error {
	for rows.Next() {
		var ord int
		var o outcome
		var actual int64
		var first, last *int64
		var at *time.Time
		var partition int32
		if err := rows.Scan(&ord, &actual, &o.closed, &o.accepted, &partition, &at, &first, &last); err != nil {
			return err
		}
		out := &p.outcomes[ord-1]
		out.actual, out.version = eventstore.Version(actual), eventstore.Version(actual)
		out.closed, out.accepted, out.partition = o.closed, o.accepted, partition
		if o.accepted && last != nil {
			out.version += eventstore.Version(out.events)
			out.last, p.recorded = *last, at.UTC()
			p.last = max(p.last, *last)
			if p.first == 0 || *first < p.first {
				p.first = *first
			}
		}
	}
	return rows.Err()
}

// verdict says why the database refused the append, or nil.
func (p *plan) verdict() error {
	accepted := true
	for i, w := range p.writes {
		o := p.outcomes[i]
		accepted = accepted && o.accepted
		if o.accepted {
			continue
		}
		if o.closed && o.events > 0 {
			return &eventstore.ClosedError{Stream: w.Stream}
		}
		if !w.Expected.Holds(o.actual) {
			return &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expected, Actual: o.actual}
		}
	}
	if !accepted {
		return errUnexplained
	}
	return nil
}

// errUnexplained: the statement refused the append, but its snapshot is from before the wait for another creation of the
// same stream and shows nothing that speaks against it.
var errUnexplained = fmt.Errorf("%w: the stream was created at the same moment", eventstore.ErrBusy)

func (p *plan) result(epoch uuid.UUID) eventstore.AppendResult {
	r := eventstore.AppendResult{Versions: make(map[eventstore.StreamID]eventstore.Version, len(p.outcomes)), RecordedAt: p.recorded}
	marks := make([]eventstore.Mark, 0, len(p.outcomes))
	for _, o := range p.outcomes {
		r.Versions[o.stream] = o.version
		if o.events > 0 {
			marks = append(marks, eventstore.Mark{
				Partition: int(o.partition), Position: eventstore.PositionAt(o.last),
				Streams: []uint32{eventstore.StreamHash(o.stream)},
			})
		}
	}
	if len(marks) > 0 {
		r.Token = eventstore.MakeToken(epoch, marks...)
	}
	return r
}
