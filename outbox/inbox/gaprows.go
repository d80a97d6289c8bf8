package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// gapTopic marks the rows of held that wait for something missing in their partition, and not for their sequence.
const gapTopic = "gap"

// Types of rows without bytes.
const (
	typeHead = "daybook.head"
	typeSkip = "daybook.skip"
)

// storedGap is what is known of the rows of one partition.
type storedGap struct {
	first, previous eventstore.Position // the lowest row, and what it waits for
	since           time.Time
	rows            int64
}

// readGaps reads what earlier owners have stored and not applied. Rows that were applied, because a batch was committed in
// parts, are named too: they go with the next batch.
func (in *Inbox) readGaps(ctx context.Context, db *pgxpool.Pool, applied func(int) eventstore.Position) (map[int]*storedGap, map[int]bool, error) {
	rows, err := db.Query(ctx, in.sql.gaps, in.ref.Name, in.ref.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: read the gaps of %s: %w", in.ref, err)
	}
	gaps, stale := map[int]*storedGap{}, map[int]bool{}
	var partition int
	var position, previous int64
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&partition, &position, &previous, &since}, func() error {
		at := eventstore.PositionAt(position)
		if !at.After(applied(partition)) {
			stale[partition] = true
			return nil
		}
		g := gaps[partition]
		if g == nil { // rows come in order of position
			g = &storedGap{first: at, previous: eventstore.PositionAt(previous), since: since}
			gaps[partition] = g
		}
		g.rows++
		if since.Before(g.since) {
			g.since = since
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: read the gaps of %s: %w", in.ref, err)
	}
	return gaps, stale, nil
}

// readStored reads the next rows of a partition.
func (in *Inbox) readStored(ctx context.Context, db *pgxpool.Pool, partition int, after eventstore.Position, limit int) ([]*item, error) {
	rows, err := db.Query(ctx, in.sql.stored, in.ref.Name, in.ref.Version, partition, after.Ordinal(), limit)
	if err != nil {
		return nil, fmt.Errorf("inbox: read what is stored of partition %d of %s: %w", partition, in.ref, err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*item, error) { return in.scan(row, partition) })
	if err != nil {
		return nil, fmt.Errorf("inbox: read what is stored of partition %d of %s: %w", partition, in.ref, err)
	}
	return items, nil
}

func (in *Inbox) scan(row pgx.CollectableRow, partition int) (*item, error) {
	var (
		it                          = &item{patient: true}
		e                           = &it.RecordedEvent
		position, previous, version int64
		present                     bool
		stream                      string
		headers                     []byte
		id                          *[16]byte
		schemaVersion, flags        int32
	)
	err := row.Scan(&position, &previous, &present, &e.PartitionKey, &it.since, &id, &stream, &version, &e.Type, &schemaVersion, &flags,
		&e.ContentType, &e.Metadata.Tenant, &e.Metadata.CorrelationID, &e.Metadata.CausationID, &e.Metadata.Actor, &headers, &e.Data, &e.RecordedAt)
	if err != nil {
		return nil, err
	}
	it.Topic, it.Previous = in.cfg.Topic, eventstore.PositionAt(previous)
	e.Partition, e.Position = partition, eventstore.PositionAt(position)
	switch {
	case !present && e.Type == typeSkip:
		it.Kind = outbox.KindSkip
		return it, nil
	case !present:
		it.Kind = outbox.KindHead
		return it, nil
	}
	it.Kind = outbox.KindMessage
	e.ID, e.Version, e.SchemaVersion, e.Flags, e.RecordedAt = *id, eventstore.Version(version), int(schemaVersion), eventstore.Flags(flags), e.RecordedAt.UTC()
	if e.Metadata.Headers, err = eventstore.DecodeHeaders(headers); err != nil {
		return nil, err
	}
	if stream != "" {
		it.Kind = outbox.KindEvent
		if e.Stream, err = eventstore.ParseStreamID(stream); err != nil {
			return nil, err
		}
	}
	return it, nil
}

// queueStore stores a message that is early. What has bytes replaces what has none: a message that comes after its marker
// stands for both.
func (in *Inbox) queueStore(b *pgx.Batch, it *item) {
	e := &it.RecordedEvent
	if !it.Kind.IsMessage() {
		key, form := "", typeHead // a marker of what never comes moves applied like a head
		if it.Kind == outbox.KindSkip {
			if key = e.PartitionKey; !it.Redriven {
				form = typeSkip
			}
		}
		if it.Kind == outbox.KindHead { // the last one says all that those before it said
			b.Queue(in.sql.dropHeads, in.ref.Name, in.ref.Version, e.Partition, e.Position.Ordinal())
		}
		b.Queue(in.sql.store, in.ref.Name, in.ref.Version, key, e.Position.Ordinal(), it.Previous.Ordinal(), e.Partition, false, nil, "", 0, form,
			0, 0, "", "", "", "", "", []byte{}, []byte{}, it.since)
		return
	}
	stream := ""
	if it.IsEvent() {
		stream = e.Stream.String()
	}
	headers, _ := eventstore.EncodeHeaders(e.Metadata.Headers) // they were decoded, so that it cannot fail
	b.Queue(in.sql.store, in.ref.Name, in.ref.Version, e.PartitionKey, e.Position.Ordinal(), it.Previous.Ordinal(), e.Partition, true, e.ID,
		stream, int64(e.Version), e.Type, e.SchemaVersion, int32(e.Flags), e.ContentType, e.Metadata.Tenant, e.Metadata.CorrelationID,
		e.Metadata.CausationID, e.Metadata.Actor, notNil(headers), notNil(e.Data), e.RecordedAt)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

const (
	gapsSQL = `
SELECT partition, position, previous, held_at FROM {schema}.held
 WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' ORDER BY partition, position`

	storedSQL = `
SELECT position, previous, present, sequence, held_at, id, stream_id, stream_version, type, schema_version, flags, content_type, tenant,
       correlation_id, causation_id, actor, headers, data, recorded_at
  FROM {schema}.held
 WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' AND partition = $3 AND position > $4
 ORDER BY position LIMIT $5`

	storeSQL = `
INSERT INTO {schema}.held AS h (consumer, version, topic, sequence, position, previous, partition, present, id, stream_id, stream_version,
       type, schema_version, flags, content_type, tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
VALUES ($1, $2, '` + gapTopic + `', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
ON CONFLICT (consumer, version, topic, sequence, position) DO UPDATE
   SET present = excluded.present, id = excluded.id, stream_id = excluded.stream_id, stream_version = excluded.stream_version,
       type = excluded.type, schema_version = excluded.schema_version, flags = excluded.flags, content_type = excluded.content_type,
       tenant = excluded.tenant, correlation_id = excluded.correlation_id, causation_id = excluded.causation_id, actor = excluded.actor,
       headers = excluded.headers, data = excluded.data, recorded_at = excluded.recorded_at
 WHERE NOT h.present AND (excluded.present OR excluded.type = '` + typeHead + `')`

	dropHeadsSQL = `
DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' AND partition = $3 AND sequence = ''
   AND NOT present AND position < $4`

	dropStoredSQL = `
DELETE FROM {schema}.held WHERE consumer = $1 AND version = $2 AND topic = '` + gapTopic + `' AND partition = $3 AND position <= $4`
)
