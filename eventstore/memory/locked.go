package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// WithStreamsLocked runs f while no other append to the streams goes on; see [eventstore.StreamLocker]. Callers that wait
// for the same stream follow each other in the order in which they came.
func (s *Store) WithStreamsLocked(
	ctx context.Context, claim *eventstore.Claim, streams []eventstore.StreamID, f func(ctx context.Context, s eventstore.LockedStreams) error,
) error {
	names := make([]string, 0, len(streams)+1)
	for i, id := range streams {
		if err := id.Validate(); err != nil {
			return fmt.Errorf("%w (stream %d)", err, i+1)
		}
		names = append(names, streamPrefix+id.String())
	}
	if claim != nil {
		if err := claim.Validate(); err != nil {
			return err
		}
		names = append(names, keyLock(*claim))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if ctx.Value(lockedKey{s}) != nil {
		return &eventstore.InvalidError{
			Field: "ctx", Value: "", Reason: "is that of another WithStreamsLocked", Remedy: "lock all streams with one call",
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: lock streams: %w", err)
	}
	if err := s.lockAll(ctx, names); err != nil {
		return fmt.Errorf("memory: lock streams: %w", err)
	}
	l := &lockedStreams{store: s, held: names}
	defer l.release() // also when f panics
	if err := f(context.WithValue(ctx, lockedKey{s}, names), l); err != nil {
		return err
	}
	return l.commit(ctx)
}

// lockedStreams holds locks, and what is to be stored when f has ended well.
type lockedStreams struct {
	store  *Store
	held   []string
	done   bool
	batch  batch
	ending *kept
}

// Append keeps the events for the end of f; see [eventstore.LockedStreams].
func (l *lockedStreams) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	prepared, ownIDs, err := prepare(ctx, writes)
	if err != nil {
		return eventstore.AppendResult{}, err
	}
	if err := l.lock(ctx, streamLocks(prepared)); err != nil {
		return eventstore.AppendResult{}, err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if err := l.store.check(ctx, prepared); err != nil {
		return l.store.earlier(prepared, ownIDs, err)
	}
	l.done, l.batch = true, l.store.build(prepared)
	return l.batch.result, nil
}

// AppendOnce keeps events and outcome for the end of f; see [eventstore.OnceAppender].
func (l *lockedStreams) AppendOnce(
	ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write,
) (eventstore.Outcome, error) {
	prepared, err := prepareOnce(ctx, claim, outcome, writes)
	if err != nil {
		return eventstore.Outcome{}, err
	}
	if err := l.lock(ctx, append(streamLocks(prepared), keyLock(claim))); err != nil {
		return eventstore.Outcome{}, err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if first, found, err := l.store.first(claim); found || err != nil {
		return first, err
	}
	if err := l.store.check(ctx, prepared); err != nil {
		return eventstore.Outcome{}, err
	}
	l.done, l.batch = true, l.store.build(prepared)
	l.ending = l.store.ending(claim, outcome, prepared, l.batch)
	return copyOutcome(l.ending.outcome), nil
}

// lock takes what the append needs besides the locks of before: those that were not named it cannot wait for, since whoever
// has them may wait for one of those; the end of the log it can, which all take last.
func (l *lockedStreams) lock(ctx context.Context, names []string) error {
	if l.done {
		return &eventstore.InvalidError{
			Field: "appends", Value: "2", Reason: "are more than one in WithStreamsLocked", Remedy: "append everything in one call",
		}
	}
	s := l.store
	s.mu.Lock()
	for _, name := range names {
		if slices.Contains(l.held, name) {
			continue
		}
		if !s.locks.take(name) {
			s.mu.Unlock()
			return fmt.Errorf("memory: append: %w: what was not locked before is locked by another", eventstore.ErrBusy)
		}
		l.held = append(l.held, name)
	}
	s.mu.Unlock()
	if slices.Contains(l.held, logLock) {
		return nil
	}
	if err := s.lock(ctx, logLock); err != nil {
		return fmt.Errorf("memory: append: %w", err)
	}
	l.held = append(l.held, logLock)
	return nil
}

func (l *lockedStreams) commit(ctx context.Context) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if err := ctx.Err(); err != nil && l.done {
		return fmt.Errorf("memory: append: %w", err)
	}
	l.store.publish(l.batch)
	if l.ending != nil {
		l.store.outcomes.add(l.ending)
	}
	return nil
}

func (l *lockedStreams) release() {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.locks.releaseAll(l.held)
}
