package parking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// Letter is a message that failed, unchanged, and what is known of its failures.
type Letter struct {
	ID uuid.UUID
	Key
	Partition int
	Message   eventstore.RecordedEvent
	// State is "retrying" or "parked" while the letter is open, "applied", "discarded" or "taken over" when it is closed.
	State string
	Kind  eventstore.FailureKind // of the last failure
	// Attempts is how often it failed, Round how often of that since it was set aside or redriven last.
	Attempts, Round int
	Fingerprint     string
	// Errors are the texts of the last failure, outermost first, FirstErrors those of the first.
	Errors, FirstErrors         []string
	FirstFailedAt, LastFailedAt time.Time
	Handler, Program            string
	ClosedAt                    time.Time // zero while it is open
	ClosedBy, Reason            string
}

// OpenLetter reads the open letter of a sequence. It returns [ErrNotOpen] when there is none.
func OpenLetter(ctx context.Context, q Querier, o Owner, k Key) (Letter, error) {
	l, err := scanLetter(q.QueryRow(ctx, textsFor(o).open, o.Consumer, o.Version, k.Topic, k.Sequence))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Letter{}, ErrNotOpen
	case err != nil:
		return Letter{}, fmt.Errorf("parking: read the letter of %q: %w", k.Sequence, err)
	}
	return l, nil
}

// LetterColumns are the columns that [ScanLetter] wants, of the table letters under the name l.
const LetterColumns = `l.letter, l.topic, l.sequence, l.partition, l.position, l.state, l.kind, l.attempts, l.round, l.fingerprint,
       l.errors, l.first_errors, l.first_failed_at, l.last_failed_at, l.handler, l.program, l.closed_at, l.closed_by, l.reason,
       l.id, l.stream_id, l.stream_version, l.type, l.schema_version, l.flags, l.content_type, l.tenant, l.correlation_id,
       l.causation_id, l.actor, l.headers, l.data, l.recorded_at`

// ScanLetter reads one row of [LetterColumns].
func ScanLetter(row pgx.Row) (Letter, error) { return scanLetter(row) }

func scanLetter(row pgx.Row) (Letter, error) {
	var l Letter
	var m message
	var kind string
	var closed *time.Time
	err := row.Scan(append([]any{
		&l.ID, &l.Topic, &l.Sequence, &l.Partition, &m.position, &l.State, &kind, &l.Attempts, &l.Round, &l.Fingerprint,
		&l.Errors, &l.FirstErrors, &l.FirstFailedAt, &l.LastFailedAt, &l.Handler, &l.Program, &closed, &l.ClosedBy, &l.Reason,
	}, m.targets()...)...)
	if err != nil {
		return Letter{}, err
	}
	if kind == eventstore.Permanent.String() {
		l.Kind = eventstore.Permanent
	}
	if closed != nil {
		l.ClosedAt = *closed
	}
	l.Message, err = m.event(l.Partition, l.Sequence)
	return l, err
}

// message is a stored message: its columns from id to recorded_at, and its position.
type message struct {
	position, version                                               int64
	id                                                              *uuid.UUID
	schemaVersion, flags                                            int32
	stream, typ, contentType, tenant, correlation, causation, actor string
	headers, data                                                   []byte
	recorded                                                        time.Time
}

func (m *message) targets() []any {
	return []any{
		&m.id, &m.stream, &m.version, &m.typ, &m.schemaVersion, &m.flags, &m.contentType, &m.tenant, &m.correlation,
		&m.causation, &m.actor, &m.headers, &m.data, &m.recorded,
	}
}

func (m *message) event(partition int, key string) (eventstore.RecordedEvent, error) {
	e := eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			Type: m.typ, SchemaVersion: int(m.schemaVersion), ContentType: m.contentType, Data: m.data, Flags: eventstore.Flags(m.flags),
			Metadata: eventstore.Metadata{
				Tenant: m.tenant, CorrelationID: m.correlation, CausationID: m.causation, Actor: m.actor,
			},
		},
		Version: eventstore.Version(m.version), Position: eventstore.PositionAt(m.position), Partition: partition, PartitionKey: key,
		RecordedAt: m.recorded.UTC(),
	}
	if m.id != nil {
		e.ID = *m.id
	}
	var err error
	if e.Metadata.Headers, err = eventstore.DecodeHeaders(m.headers); err != nil {
		return e, fmt.Errorf("headers of the message at position %s: %w", e.Position, err)
	}
	category, id, _ := strings.Cut(m.stream, "-")
	e.Stream = eventstore.StreamID{Category: category, ID: id}
	return e, nil
}

// columnsOf are the values of a message's columns, from id to recorded_at.
func columnsOf(e eventstore.RecordedEvent) []any {
	stream := ""
	if e.Stream != (eventstore.StreamID{}) {
		stream = e.Stream.String()
	}
	return []any{
		e.ID, stream, int64(e.Version), e.Type, int32(e.SchemaVersion), int32(e.Flags), e.ContentType, e.Metadata.Tenant,
		e.Metadata.CorrelationID, e.Metadata.CausationID, e.Metadata.Actor, headersOf(e), notNil(e.Data), e.RecordedAt,
	}
}

// headersOf is the stored form. Headers came from there, so that encoding them cannot fail.
func headersOf(e eventstore.RecordedEvent) []byte {
	h, _ := eventstore.EncodeHeaders(e.Metadata.Headers)
	return notNil(h)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// openLetterSQL asks for a range in the order of the index of open letters, which no other index gives.
const openLetterSQL = `
SELECT ` + LetterColumns + `
  FROM (SELECT * FROM {schema}.letters x
         WHERE x.consumer = $1 AND x.version = $2 AND x.topic = $3 AND x.sequence >= $4 AND x.state IN ('retrying', 'parked')
         ORDER BY x.sequence, x.position LIMIT 1) l
 WHERE l.sequence = $4`
