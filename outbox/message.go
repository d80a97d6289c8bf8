package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// Message is what [Enqueue] publishes: something that is no event, such as a command or a notification. Topic, Key and
// Type are needed; what else is empty is completed as it is for an event.
type Message struct {
	// Topic is where it is published: 1 to 200 bytes of UTF-8 without control characters.
	Topic string
	// Key is what must be kept in one order: messages and events of one key are published in the order of their
	// positions. 1 to 512 bytes. Give the text of a stream to keep a message behind the events of that stream that were
	// stored before it.
	Key string
	// ID identifies the message for ever: who receives two of one ID may take the second for a repeat. Default: a UUID of
	// version 7 (RFC 9562).
	ID uuid.UUID
	// Type is the wire name, "mail.send".
	Type string
	// SchemaVersion is the version of the payload's shape, from 1. Default: 1.
	SchemaVersion int
	// ContentType is the media type of Data. Default: application/octet-stream.
	ContentType string
	// Data is the payload, at most 64 MiB; it may be empty.
	Data []byte
	// Metadata is joined with that of the context ([eventstore.WithMetadata]); what is set here wins.
	Metadata eventstore.Metadata
	// Flags are stored as they are; see [eventstore.Flags].
	Flags eventstore.Flags
}

// DefaultSchema is where a store is installed that was given no other schema.
const DefaultSchema Schema = "daybook"

// Schema names the PostgreSQL schema of a store; the zero value stands for [DefaultSchema].
type Schema string

// Enqueue is [Schema.Enqueue] for [DefaultSchema].
func Enqueue(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	return DefaultSchema.Enqueue(ctx, tx, messages...)
}

// Enqueue writes messages into the outbox of the store in this schema, in one round trip and in their order. The caller
// commits: the messages are published if and only if tx is, and a savepoint that is rolled back takes back what was
// enqueued within it.
//
// Enqueue as the last thing before the commit: like an append it holds the head of the log back from here on. The relay
// publishes the messages within its polling interval; call Wake of the store after the commit and it does so at once.
// Settings of tx stay as they are, except that its commit waits for the disk even where synchronous_commit is off: a
// message that is published must not be lost by the database afterwards.
//
// The error is an [*eventstore.InvalidError] for input that cannot be stored; then nothing was sent to the database, and tx
// goes on as before. Otherwise tx is broken, as it is after any error of PostgreSQL: [eventstore.ErrBusy] means that the
// whole transaction may be run again. A tx is for one goroutine; without messages nothing happens.
func (s Schema) Enqueue(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	if len(messages) == 0 {
		return nil
	}
	if tx == nil {
		return &enqueueError{&eventstore.InvalidError{
			Field: "tx", Value: "nil", Reason: "is no transaction", Remedy: "pass the transaction that the messages belong to",
		}}
	}
	cols, err := prepare(ctx, messages)
	if err != nil {
		return inEnqueue(err)
	}
	if s == "" {
		s = DefaultSchema
	}
	if strings.IndexByte(string(s), 0) >= 0 {
		return &enqueueError{&eventstore.InvalidError{
			Field: "Schema", Value: string(s), Reason: "contains a zero byte", Remedy: "name the schema of the store",
		}}
	}
	sql := strings.ReplaceAll(enqueueSQL, "{schema}", pgx.Identifier{string(s)}.Sanitize())
	_, err = tx.Exec(ctx, sql, cols.topics, cols.keys, cols.ids, cols.types, cols.schemaVersions, cols.contentTypes, cols.flags,
		cols.tenants, cols.correlations, cols.causations, cols.actors, cols.headers, cols.data)
	if err != nil {
		return fmt.Errorf("outbox: enqueue in schema %q: %w", string(s), explain(err))
	}
	return nil
}

// columns are messages, one array each field.
type columns struct {
	topics, keys, types, contentTypes, tenants, correlations, causations, actors []string
	// ids are text, which every mode of the driver can send.
	ids                   []string
	schemaVersions, flags []int32
	headers, data         [][]byte
}

const (
	maxKey      = 512
	maxMessages = 10_000
	maxTotal    = 512 << 20 // bytes of one call: PostgreSQL takes no message of a gigabyte
)

// prepare completes and checks messages. What they share with events is checked by the rules for events.
func prepare(ctx context.Context, messages []Message) (columns, error) {
	if len(messages) > maxMessages {
		return columns{}, &eventstore.InvalidError{
			Field: "messages", Value: strconv.Itoa(len(messages)), Reason: "are more than 10000", Remedy: "call Enqueue several times",
		}
	}
	var r columns
	total := 0
	for i, m := range messages {
		if total += len(m.Data); total > maxTotal {
			return columns{}, &eventstore.InvalidError{
				Field: "messages", Value: strconv.Itoa(total) + " bytes", Reason: "have more than 512 MiB of payloads", Remedy: "call Enqueue several times",
			}
		}
		e, err := m.complete(ctx)
		if err != nil {
			return columns{}, inMessage(i, err)
		}
		headers, err := eventstore.EncodeHeaders(e.Metadata.Headers)
		if err != nil {
			return columns{}, err
		}
		r.topics, r.keys, r.ids = append(r.topics, m.Topic), append(r.keys, m.Key), append(r.ids, e.ID.String())
		r.types, r.contentTypes = append(r.types, e.Type), append(r.contentTypes, e.ContentType)
		r.schemaVersions, r.flags = append(r.schemaVersions, int32(e.SchemaVersion)), append(r.flags, int32(e.Flags))
		r.tenants, r.actors = append(r.tenants, e.Metadata.Tenant), append(r.actors, e.Metadata.Actor)
		r.correlations, r.causations = append(r.correlations, e.Metadata.CorrelationID), append(r.causations, e.Metadata.CausationID)
		// Without data a row would be one of events.
		r.headers, r.data = append(r.headers, notNil(headers)), append(r.data, notNil(e.Data))
	}
	return r, nil
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// complete returns the message as the event that it is stored like.
func (m Message) complete(ctx context.Context) (eventstore.EventData, error) {
	if err := (eventstore.Route{Topic: m.Topic}).Validate(); err != nil {
		return eventstore.EventData{}, err
	}
	switch {
	case m.Key == "":
		return eventstore.EventData{}, &eventstore.InvalidError{
			Field: "Key", Reason: "is empty", Remedy: "name what must be kept in one order, for example the stream or the receiver",
		}
	case len(m.Key) > maxKey:
		return eventstore.EventData{}, &eventstore.InvalidError{
			Field: "Key", Value: m.Key, Reason: fmt.Sprintf("has %d bytes, more than %d", len(m.Key), maxKey), Remedy: "use a hash of the long key",
		}
	}
	// Any stream will do; the key is checked as that of a write.
	w := eventstore.To(eventstore.NewStreamID("outbox", "message"), eventstore.AnyVersion, eventstore.EventData{
		ID: m.ID, Type: m.Type, SchemaVersion: m.SchemaVersion, ContentType: m.ContentType, Data: m.Data, Metadata: m.Metadata, Flags: m.Flags,
	})
	w.PartitionKey = m.Key
	prepared, _, err := eventstore.Prepare(ctx, []eventstore.Write{w})
	if err != nil {
		return eventstore.EventData{}, err
	}
	return prepared[0].Events[0], nil
}

// inMessage says a fault in the words of Message: which one, and the field by its name there.
func inMessage(i int, err error) error {
	var invalid *eventstore.InvalidError
	if !errors.As(err, &invalid) || strings.HasPrefix(invalid.Field, "context") {
		return err
	}
	fault := *invalid
	switch field := strings.TrimPrefix(fault.Field, "event."); field {
	case "Route.Topic":
		fault.Field = "Topic"
	case "PartitionKey":
		fault.Field = "Key"
	default:
		fault.Field = field
	}
	fault.Field = "messages[" + strconv.Itoa(i) + "]." + fault.Field
	fault.Remedy = strings.ReplaceAll(fault.Remedy, "the event", "the message")
	return &fault
}

// explain adds what to do to errors that say it badly.
func explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch {
	case pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "55P03": // deadlock, serialization failure, lock timeout
		return fmt.Errorf("%w: %w", eventstore.ErrBusy, err)
	case pg.Code == "42P01" || pg.Code == "3F000": // no such table, no such schema
		return fmt.Errorf("no store here: migrate it, or name its schema with outbox.Schema: %w", err)
	case pg.Code == "23514" && pg.ConstraintName == "": // no range of the outbox takes the position
		return fmt.Errorf("no range for the next position: keep Run of a store running, and run the transaction again: %w", err)
	}
	return err
}

// The settings come first: the row of the outbox must be as safe as an event. They are part of the statement, so that one
// message costs one round trip. nextval is drawn row by row in the order of the arrays.
const enqueueSQL = `
WITH safe AS MATERIALIZED (
  SELECT set_config('synchronous_commit',
                    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true) AS commit,
         (SELECT s.partitions FROM {schema}.store s) AS partitions)
INSERT INTO {schema}.outbox (first_position, last_position, partition, topic, key, id, type, schema_version, content_type, flags,
                             tenant, correlation_id, causation_id, actor, headers, data)
SELECT m.position, m.position, {schema}.partition_of(m.key, m.partitions), m.topic, m.key, m.id::uuid, m.type, m.schema_version, m.content_type, m.flags,
       m.tenant, m.correlation_id, m.causation_id, m.actor, m.headers, m.data
  FROM (SELECT nextval('{schema}.log_position') AS position, safe.partitions, u.*
          FROM safe,
               unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::int[],
                      $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[], $13::bytea[])
               AS u(topic, key, id, type, schema_version, content_type, flags, tenant, correlation_id, causation_id, actor, headers, data)
        OFFSET 0) AS m`
