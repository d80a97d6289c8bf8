package memory

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

var _ snapshot.Store = (*Snapshots)(nil)

// Snapshots keeps snapshots of the streams of one store, in memory; those of one stream and fingerprint by version. It is safe for concurrent use.
type Snapshots struct{ store *Store }

type snapshotKey struct {
	stream      eventstore.StreamID
	fingerprint string
}

// Snapshots returns the snapshots that belong to the store. Every call returns the same ones.
func (s *Store) Snapshots() *Snapshots { return &Snapshots{store: s} }

// Load returns a snapshot and the events from its last one on; see [snapshot.Store].
func (s *Snapshots) Load(
	ctx context.Context, stream eventstore.StreamID, fingerprint string, before eventstore.Version,
) (snapshot.Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error) {
	if err := stream.Validate(); err != nil {
		return snapshot.Snapshot{}, nil, err
	}
	if err := ctx.Err(); err != nil {
		return snapshot.Snapshot{}, nil, fmt.Errorf("memory: load snapshot: %w", err)
	}
	var found snapshot.Snapshot
	s.store.mu.Lock()
	for _, kept := range slices.Backward(s.store.snapshots[snapshotKey{stream, fingerprint}]) {
		if before == 0 || kept.Version < before {
			found = kept
			break
		}
	}
	s.store.mu.Unlock()
	found.Data = bytes.Clone(found.Data)
	return found, s.store.ReadStream(ctx, stream, eventstore.Range{From: found.Version}), nil
}

// Save stores a snapshot unless one that is as new is there, and removes the oldest beyond keep; see [snapshot.Store].
func (s *Snapshots) Save(ctx context.Context, taken snapshot.Snapshot, keep int) error {
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
	all := s.store.snapshots[key]
	if n := len(all); n > 0 && taken.Version <= all[n-1].Version {
		return nil
	}
	if s.store.snapshots == nil {
		s.store.snapshots = map[snapshotKey][]snapshot.Snapshot{}
	}
	all = append(all, taken)
	// A slice of its own, so that the array does not hold what was removed.
	s.store.snapshots[key] = slices.Clone(all[max(0, len(all)-max(keep, 1)):])
	return nil
}

// Delete removes the snapshots of a stream; see [snapshot.Store].
func (s *Snapshots) Delete(ctx context.Context, stream eventstore.StreamID) error {
	_, err := s.remove(ctx, func(key snapshotKey) bool { return key.stream == stream })
	return err
}

// DeleteCategory removes the snapshots of all streams of a category; see [snapshot.Store].
func (s *Snapshots) DeleteCategory(ctx context.Context, category string) (int64, error) {
	if err := eventstore.NewStreamID(category, "id").Validate(); err != nil {
		return 0, err
	}
	return s.remove(ctx, func(key snapshotKey) bool { return key.stream.Category == category })
}

func (s *Snapshots) remove(ctx context.Context, which func(snapshotKey) bool) (removed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memory: delete snapshots: %w", err)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for key, all := range s.store.snapshots {
		if which(key) {
			removed += int64(len(all))
			delete(s.store.snapshots, key)
		}
	}
	return removed, nil
}
