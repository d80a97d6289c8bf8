package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// Held is a message that is queued behind others of its sequence, where it cannot be read again from the log.
type Held struct {
	Key
	Message  eventstore.RecordedEvent
	Previous eventstore.Position // of the message before it in its partition of the topic; zero where there is no chain
	// Present: Message has its bytes. Without, only its position and partition count, and it keeps a place.
	Present bool
	// Fill: it is kept only where a place is kept for it.
	Fill bool
}

// ReadHeld reads the first messages of a sequence that are held, in their order.
func ReadHeld(ctx context.Context, q Querier, o Owner, k Key, limit int) ([]Held, error) {
	rows, err := q.Query(ctx, textsFor(o).held, o.Consumer, o.Version, k.Topic, k.Sequence, limit)
	if err != nil {
		return nil, fmt.Errorf("parking: read what is held of %q: %w", k.Sequence, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Held, error) {
		h := Held{Key: k}
		var m message
		var previous int64
		var partition int
		err := row.Scan(append([]any{&m.position, &previous, &partition, &h.Present}, m.targets()...)...)
		if err == nil {
			h.Previous = eventstore.PositionAt(previous)
			h.Message, err = m.event(partition, k.Sequence)
		}
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("parking: read what is held of %q: %w", k.Sequence, err)
	}
	return all, nil
}

func queueHeld(b *pgx.Batch, o Owner, x *texts, all []Held) {
	if len(all) == 0 {
		return
	}
	var w heldRows
	for _, h := range all {
		w.add(h)
	}
	b.Queue(x.hold, o.Consumer, o.Version, w.topics, w.sequences, w.positions, w.previous, w.partitions, w.present, w.ids, w.streams, w.versions,
		w.types, w.schemas, w.flags, w.contentTypes, w.tenants, w.correlations, w.causations, w.actors, w.headers, w.data, w.recorded, w.fill)
}

// heldRows are the columns of one statement.
type heldRows struct {
	topics, sequences                                                       []string
	positions, previous, versions                                           []int64
	partitions, schemas, flags                                              []int32
	present, fill                                                           []bool
	ids                                                                     []*uuid.UUID
	streams, types, contentTypes, tenants, correlations, causations, actors []string
	headers, data                                                           [][]byte
	recorded                                                                []time.Time
}

func (w *heldRows) add(h Held) {
	e := h.Message
	var id *uuid.UUID
	stream := ""
	if h.Present {
		id = &e.ID
		if e.Stream != (eventstore.StreamID{}) {
			stream = e.Stream.String()
		}
	}
	w.topics, w.sequences = append(w.topics, h.Topic), append(w.sequences, h.Sequence)
	w.positions, w.previous = append(w.positions, e.Position.Ordinal()), append(w.previous, h.Previous.Ordinal())
	w.partitions, w.present, w.fill = append(w.partitions, int32(e.Partition)), append(w.present, h.Present), append(w.fill, h.Fill)
	w.ids, w.streams, w.versions = append(w.ids, id), append(w.streams, stream), append(w.versions, int64(e.Version))
	w.types, w.schemas, w.flags = append(w.types, e.Type), append(w.schemas, int32(e.SchemaVersion)), append(w.flags, int32(e.Flags))
	w.contentTypes, w.tenants = append(w.contentTypes, e.ContentType), append(w.tenants, e.Metadata.Tenant)
	w.correlations, w.causations = append(w.correlations, e.Metadata.CorrelationID), append(w.causations, e.Metadata.CausationID)
	w.actors, w.headers, w.data = append(w.actors, e.Metadata.Actor), append(w.headers, headersOf(e)), append(w.data, notNil(e.Data))
	w.recorded = append(w.recorded, e.RecordedAt)
}

// holdSQL inserts what is not there, and fills places that were kept. The same message twice in one statement would be
// refused: the one with bytes counts.
const holdSQL = `
WITH u AS MATERIALIZED (
  SELECT DISTINCT ON (u.topic, u.sequence, u.position) u.*
    FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::int[], $8::bool[], $9::uuid[], $10::text[], $11::bigint[], $12::text[],
                $13::int[], $14::int[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bytea[], $21::bytea[],
                $22::timestamptz[], $23::bool[])
      AS u(topic, sequence, position, previous, partition, present, id, stream_id, stream_version, type, schema_version, flags, content_type,
           tenant, correlation_id, causation_id, actor, headers, data, recorded_at, fill)
   ORDER BY u.topic, u.sequence, u.position, u.present DESC, u.fill)
INSERT INTO {schema}.held AS h (consumer, version, topic, sequence, position, previous, partition, present, id, stream_id, stream_version, type,
         schema_version, flags, content_type, tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
SELECT $1, $2, u.topic, u.sequence, u.position, u.previous, u.partition, u.present, u.id, u.stream_id, u.stream_version, u.type,
       u.schema_version, u.flags, u.content_type, u.tenant, u.correlation_id, u.causation_id, u.actor, u.headers, u.data, u.recorded_at
  FROM u
 WHERE NOT u.fill OR EXISTS (SELECT FROM {schema}.held k WHERE k.consumer = $1 AND k.version = $2 AND k.topic = u.topic
                                AND k.sequence = u.sequence AND k.position = u.position)
ON CONFLICT (consumer, version, topic, sequence, position) DO UPDATE
   SET present = true, previous = excluded.previous, id = excluded.id, stream_id = excluded.stream_id, stream_version = excluded.stream_version,
       type = excluded.type, schema_version = excluded.schema_version, flags = excluded.flags, content_type = excluded.content_type,
       tenant = excluded.tenant, correlation_id = excluded.correlation_id, causation_id = excluded.causation_id, actor = excluded.actor,
       headers = excluded.headers, data = excluded.data, recorded_at = excluded.recorded_at
 WHERE excluded.present AND NOT h.present`

const dropSQL = `
DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 AND position <= $5`

const forgetSQL = `
DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4 AND position = $5 AND NOT present`

const heldSQL = `
SELECT position, previous, partition, present, id, stream_id, stream_version, type, schema_version, flags, content_type, tenant, correlation_id,
       causation_id, actor, headers, data, recorded_at
  FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4
 ORDER BY position LIMIT $5`
