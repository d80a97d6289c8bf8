package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

var _ snapshot.Store = (*Snapshots)(nil)

// Snapshots keeps snapshots of the streams of one store, in memory. It is safe for concurrent use.
type Snapshots struct{ store *Store }

type snapshotKey struct {
	stream      eventstore.StreamID
	fingerprint string
}

// Snapshots returns the snapshots that belong to the store. Every call returns the same ones.
func (s *Store) Snapshots() *Snapshots { return &Snapshots{store: s} }

// Load returns a snapshot and the events from its last one on; see [snapshot.Store].
func (s *Snapshots) Load(
	ctx context.Context, stream eventstore.StreamID, fingerprint string,
) (snapshot.Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error) {
	if err := stream.Validate(); err != nil {
		return snapshot.Snapshot{}, nil, err
	}
	if err := ctx.Err(); err != nil {
		return snapshot.Snapshot{}, nil, fmt.Errorf("memory: load snapshot: %w", err)
	}
	s.store.mu.Lock()
	kept := s.store.snapshots[snapshotKey{stream, fingerprint}]
	s.store.mu.Unlock()
	kept.Data = bytes.Clone(kept.Data)
	return kept, s.store.ReadStream(ctx, stream, eventstore.Range{From: kept.Version}), nil
}

// Save stores a snapshot unless one that is as new is there; see [snapshot.Store].
func (s *Snapshots) Save(ctx context.Context, taken snapshot.Snapshot) error {
	if err := taken.Stream.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: save snapshot: %w", err)
	}
	taken.Data = bytes.Clone(taken.Data)
	key := snapshotKey{taken.Stream, taken.Fingerprint}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if taken.Version <= s.store.snapshots[key].Version {
		return nil
	}
	if s.store.snapshots == nil {
		s.store.snapshots = map[snapshotKey]snapshot.Snapshot{}
	}
	s.store.snapshots[key] = taken
	return nil
}

// Delete removes the snapshots of a stream; see [snapshot.Store].
func (s *Snapshots) Delete(ctx context.Context, stream eventstore.StreamID) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: delete snapshots: %w", err)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for key := range s.store.snapshots {
		if key.stream == stream {
			delete(s.store.snapshots, key)
		}
	}
	return nil
}
