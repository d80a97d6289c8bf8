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
func (s *Snapshots) Load(ctx context.Context, stream eventstore.StreamID, fingerprint string) (snapshot.Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error) {
	snap := snapshot.Snapshot{Stream: stream, Fingerprint: fingerprint}
	if err := stream.Validate(); err != nil {
		return snap, nil, err
	}
	fetch := s.fetch
	if s.store.ranges.many() {
		fetch = s.fetchPruned
	}
	events, err := fetch(ctx, &snap)
	if err != nil {
		if s.store.renewed(err) {
			return s.Load(ctx, stream, fingerprint)
		}
		return snapshot.Snapshot{}, nil, fmt.Errorf("postgres: load snapshot of %q: %w", stream, err)
	}
	if snap.Version > 0 && (len(events) == 0 || events[0].Version != snap.Version) {
		// A newer snapshot was saved between the two statements, or this one is of another history: not to be trusted.
		return snapshot.Snapshot{}, s.store.ReadStream(ctx, stream, eventstore.Range{}), nil
	}
	if snap.Version == 0 {
		snap = snapshot.Snapshot{}
		if len(events) > 0 && events[0].Version != 1 {
			return snap, s.store.ReadStream(ctx, stream, eventstore.Range{}), nil
		}
	}
	return snap, s.rest(ctx, stream, events), nil
}

// fetch reads a snapshot and the events from its version on in one round trip.
func (s *Snapshots) fetch(ctx context.Context, snap *snapshot.Snapshot) (events []eventstore.RecordedEvent, err error) {
	b := &pgx.Batch{}
	if s.store.cfg.TransactionPooler {
		b.Queue(s.store.sql.guard)
	}
	stream := snap.Stream.String()
	b.Queue(s.store.sql.snapshotLoad, stream, snap.Fingerprint).QueryRow(func(row pgx.Row) error { return scanSnapshot(row, snap) })
	b.Queue(s.store.sql.snapshotEvents, stream, snap.Fingerprint, streamPage).Query(func(rows pgx.Rows) (err error) {
		events, err = collectEvents(rows, 16)
		return err
	})
	return events, s.store.pool.SendBatch(ctx, b).Close()
}

// fetchPruned does the same on a log of many ranges, in one round trip more: the plan of the second statement would lock
// every range if it did not know the snapshot's position.
func (s *Snapshots) fetchPruned(ctx context.Context, snap *snapshot.Snapshot) ([]eventstore.RecordedEvent, error) {
	row := s.store.pool.QueryRow(ctx, s.store.sql.snapshotLoad, snap.Stream.String(), snap.Fingerprint)
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

// Save stores a snapshot unless a later one is there.
func (s *Snapshots) Save(ctx context.Context, snap snapshot.Snapshot) error {
	_, err := s.store.pool.Exec(ctx, s.store.sql.snapshotSave, snap.Stream.String(), snap.Fingerprint, int64(snap.Version),
		snap.Position.Ordinal(), snap.ContentType, notNil(snap.Data), snap.TakenAt)
	if err != nil {
		return fmt.Errorf("postgres: save snapshot of %q: %w", snap.Stream, err)
	}
	return nil
}

// Delete removes the snapshots of a stream.
func (s *Snapshots) Delete(ctx context.Context, stream eventstore.StreamID) error {
	if _, err := s.store.pool.Exec(ctx, s.store.sql.snapshotDelete, stream.String()); err != nil {
		return fmt.Errorf("postgres: delete snapshots of %q: %w", stream, err)
	}
	return nil
}

const (
	snapshotLoadSQL = `
SELECT version, position, content_type, data, taken_at FROM {schema}.snapshots WHERE stream_id = $1 AND fingerprint = $2`

	// The snapshot's own event comes first, at its very position: older ranges need not be looked at.
	snapshotEventsSQL = `
SELECT ` + eventColumns + `
  FROM {schema}.events e
 WHERE e.stream_id = $1
   AND e.version >= coalesce((SELECT s.version FROM {schema}.snapshots s WHERE s.stream_id = $1 AND s.fingerprint = $2), 1)
   AND e.position >= coalesce((SELECT s.position FROM {schema}.snapshots s WHERE s.stream_id = $1 AND s.fingerprint = $2),
                              (SELECT h.floor_position FROM {schema}.streams h WHERE h.stream_id = $1), 0)
 ORDER BY e.version LIMIT $3`

	snapshotSaveSQL = `
INSERT INTO {schema}.snapshots AS s (stream_id, fingerprint, version, position, content_type, data, taken_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (stream_id, fingerprint) DO UPDATE SET version = excluded.version, position = excluded.position,
       content_type = excluded.content_type, data = excluded.data, taken_at = excluded.taken_at
   WHERE s.version < excluded.version`

	snapshotDeleteSQL = `DELETE FROM {schema}.snapshots WHERE stream_id = $1`
)
