package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// Snapshots keeps snapshots beside the events. It is safe for concurrent use.
type Snapshots struct{ store *Store }

var _ snapshot.Store = (*Snapshots)(nil)

// Snapshots returns the snapshot store of the same schema.
func (s *Store) Snapshots() *Snapshots { return &Snapshots{store: s} }

// Load reads a snapshot and the first page of events from its version on in one round trip (two or three on a log of more
// than 16 ranges); see [snapshot.Store].
func (s *Snapshots) Load(
	ctx context.Context, stream eventstore.StreamID, fingerprint string, before eventstore.Version,
) (snapshot.Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error) {
	snap := snapshot.Snapshot{Stream: stream, Fingerprint: fingerprint}
	if err := stream.Validate(); err != nil {
		return snapshot.Snapshot{}, nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	fetch := s.fetch
	if s.store.ranges.many() {
		fetch = s.fetchPruned
	}
	events, err := fetch(ctx, &snap, before)
	if err != nil && s.store.renewed(err) {
		snap = snapshot.Snapshot{Stream: stream, Fingerprint: fingerprint}
		events, err = fetch(ctx, &snap, before)
	}
	if err != nil {
		return snapshot.Snapshot{}, nil, fmt.Errorf("postgres: load snapshot of %q: %w", stream, err)
	}
	if snap.Version == 0 {
		snap = snapshot.Snapshot{}
	}
	if first := max(snap.Version, 1); len(events) == 0 && first > 1 || len(events) > 0 && events[0].Version != first {
		// Between the two statements a snapshot was saved or deleted, or its position is not that of its version: what
		// belongs to the snapshot at hand is read by version alone.
		return snap, s.store.ReadStream(ctx, stream, eventstore.Range{From: first}), nil
	}
	return snap, s.rest(ctx, stream, events), nil
}

// fetch reads a snapshot and the events from its version on in one round trip.
func (s *Snapshots) fetch(ctx context.Context, snap *snapshot.Snapshot, before eventstore.Version) (events []eventstore.RecordedEvent, err error) {
	b := &pgx.Batch{}
	if s.store.cfg.TransactionPooler {
		b.Queue(s.store.sql.guard)
	}
	stream := snap.Stream.String()
	b.Queue(s.store.sql.snapshotLoad, stream, snap.Fingerprint, int64(before)).QueryRow(func(row pgx.Row) error { return scanSnapshot(row, snap) })
	b.Queue(s.store.sql.snapshotEvents, stream, snap.Fingerprint, int64(before), streamPage).Query(func(rows pgx.Rows) (err error) {
		events, err = collectEvents(rows, 16)
		return err
	})
	return events, s.store.pool.SendBatch(ctx, b).Close()
}

// fetchPruned does the same on a log of many ranges, in one round trip more: the plan of the second statement would lock
// every range if it did not know the snapshot's position.
func (s *Snapshots) fetchPruned(ctx context.Context, snap *snapshot.Snapshot, before eventstore.Version) ([]eventstore.RecordedEvent, error) {
	row := s.store.pool.QueryRow(ctx, s.store.sql.snapshotLoad, snap.Stream.String(), snap.Fingerprint, int64(before))
	if err := scanSnapshot(row, snap); err != nil {
		return nil, err
	}
	after := max(snap.Position.Ordinal()-1, 0)
	return s.store.streamPage(ctx, s.store.pool, snap.Stream, int64(max(snap.Version, 1)), math.MaxInt64, streamPage, after)
}

// scanSnapshot leaves the version at 0 when there is none.
func scanSnapshot(row pgx.Row, snap *snapshot.Snapshot) error {
	var position int64
	err := row.Scan(&snap.Version, &position, &snap.ContentType, &snap.Data, &snap.TakenAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	snap.Position, snap.TakenAt = eventstore.PositionAt(position), snap.TakenAt.UTC()
	return err
}

// rest yields the page at hand and reads on behind it.
func (s *Snapshots) rest(ctx context.Context, stream eventstore.StreamID, events []eventstore.RecordedEvent) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if len(events) < streamPage {
			return
		}
		for e, err := range s.store.ReadStream(ctx, stream, eventstore.Range{From: events[len(events)-1].Version + 1}) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// Save stores a snapshot unless a later one is there, and removes the oldest beyond keep, in one round trip.
func (s *Snapshots) Save(ctx context.Context, snap snapshot.Snapshot, keep int) error {
	stream, b := snap.Stream.String(), &pgx.Batch{}
	if s.store.cfg.TransactionPooler {
		b.Queue(s.store.sql.guard)
	}
	b.Queue(s.store.sql.snapshotSave, stream, snap.Fingerprint, int64(snap.Version),
		snap.Position.Ordinal(), snap.ContentType, notNil(snap.Data), snap.TakenAt)
	b.Queue(s.store.sql.snapshotTrim, stream, snap.Fingerprint, max(keep, 1)-1)
	if err := s.store.pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("postgres: save snapshot of %q: %w", snap.Stream, err)
	}
	return nil
}

// Delete removes the snapshots of a stream, and those that programs of earlier versions keep of it.
func (s *Snapshots) Delete(ctx context.Context, stream eventstore.StreamID) error {
	b := &pgx.Batch{}
	if s.store.cfg.TransactionPooler {
		b.Queue(s.store.sql.guard)
	}
	b.Queue(s.store.sql.snapshotDelete, stream.String())
	b.Queue(s.store.sql.snapshotDeleteOld, stream.String())
	if err := s.store.pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("postgres: delete snapshots of %q: %w", stream, err)
	}
	return nil
}

// snapshotStep is how many snapshots are removed at a time, so that no lock is held for long.
const snapshotStep = 500

// DeleteCategory removes the snapshots of all streams of a category, in steps of 500, each a transaction of its own; those
// of programs of earlier versions too, which do not count.
func (s *Snapshots) DeleteCategory(ctx context.Context, category string) (removed int64, err error) {
	if err := eventstore.NewStreamID(category, "id").Validate(); err != nil {
		return 0, err
	}
	// A category has no dash, and the character behind the dash is the dot.
	for _, sql := range []string{s.store.sql.snapshotDeleteMany, s.store.sql.snapshotDeleteManyOld} {
		for from, more := category+"-", true; more; {
			var n int64
			var last string
			if err := s.deleteStep(ctx, sql, from, category+".", &n, &last); err != nil {
				return removed, fmt.Errorf("postgres: delete snapshots of category %q: %w", category, err)
			}
			if sql == s.store.sql.snapshotDeleteMany {
				removed += n
			}
			from, more = last, n == snapshotStep // behind a whole step there may be more of the same stream
		}
	}
	return removed, nil
}

func (s *Snapshots) deleteStep(ctx context.Context, sql, from, to string, n *int64, last *string) error {
	b := &pgx.Batch{}
	if s.store.cfg.TransactionPooler {
		b.Queue(s.store.sql.guard)
	}
	b.Queue(sql, from, to, snapshotStep).QueryRow(func(row pgx.Row) error { return row.Scan(n, last) })
	return s.store.pool.SendBatch(ctx, b).Close()
}

const (
	snapshotLoadSQL = `
SELECT version, position, content_type, data, taken_at FROM {schema}.stream_snapshots
 WHERE stream_id = $1 AND fingerprint = $2 AND version < $3 ORDER BY version DESC LIMIT 1`

	// The snapshot's own event comes first, at its very position: older ranges need not be looked at.
	snapshotEventsSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.stream_id = $1
   AND e.version >= coalesce((SELECT s.version FROM {schema}.stream_snapshots s
                               WHERE s.stream_id = $1 AND s.fingerprint = $2 AND s.version < $3 ORDER BY s.version DESC LIMIT 1), 1)
   AND e.position >= coalesce((SELECT s.position FROM {schema}.stream_snapshots s
                                WHERE s.stream_id = $1 AND s.fingerprint = $2 AND s.version < $3 ORDER BY s.version DESC LIMIT 1),
                              (SELECT h.floor_position FROM {schema}.streams h WHERE h.stream_id = $1), 0)
 ORDER BY e.version LIMIT $4`

	snapshotSaveSQL = `
INSERT INTO {schema}.stream_snapshots (stream_id, fingerprint, version, position, content_type, data, taken_at)
SELECT $1, $2, $3, $4, $5, $6, $7
 WHERE NOT EXISTS (SELECT FROM {schema}.stream_snapshots s WHERE s.stream_id = $1 AND s.fingerprint = $2 AND s.version >= $3)
ON CONFLICT DO NOTHING`

	snapshotTrimSQL = `
DELETE FROM {schema}.stream_snapshots s
 WHERE s.stream_id = $1 AND s.fingerprint = $2
   AND s.version < (SELECT k.version FROM {schema}.stream_snapshots k
                     WHERE k.stream_id = $1 AND k.fingerprint = $2 ORDER BY k.version DESC OFFSET $3 LIMIT 1)`

	snapshotDeleteSQL    = `DELETE FROM {schema}.stream_snapshots WHERE stream_id = $1`
	snapshotDeleteOldSQL = `DELETE FROM {schema}.snapshots WHERE stream_id = $1`

	snapshotDeleteManySQL = `
WITH step AS (
  SELECT stream_id, fingerprint, version FROM {schema}.stream_snapshots
   WHERE stream_id >= $1 AND stream_id < $2 ORDER BY stream_id, fingerprint, version LIMIT $3),
gone AS (
  DELETE FROM {schema}.stream_snapshots s USING step
   WHERE s.stream_id = step.stream_id AND s.fingerprint = step.fingerprint AND s.version = step.version)
SELECT count(*), coalesce(max(stream_id), '') FROM step`

	snapshotDeleteManyOldSQL = `
WITH step AS (
  SELECT stream_id, fingerprint FROM {schema}.snapshots
   WHERE stream_id >= $1 AND stream_id < $2 ORDER BY stream_id, fingerprint LIMIT $3),
gone AS (
  DELETE FROM {schema}.snapshots s USING step WHERE s.stream_id = step.stream_id AND s.fingerprint = step.fingerprint)
SELECT count(*), coalesce(max(stream_id), '') FROM step`
)
