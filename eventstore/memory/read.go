package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/daybook-go/daybook/eventstore"
)

// ReadStream yields the events of one stream; see [eventstore.StreamReader]. It yields what was stored when the loop
// began.
func (s *Store) ReadStream(
	ctx context.Context, id eventstore.StreamID, r eventstore.Range,
) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		if err := errors.Join(id.Validate(), r.Validate()); err != nil {
			yield(eventstore.RecordedEvent{}, err)
			return
		}
		log, at := s.snapshot(id)
		if r.To > 0 && int64(r.To) < int64(len(at)) {
			at = at[:r.To]
		}
		if r.From > 1 {
			at = at[min(int64(r.From-1), int64(len(at))):]
		}
		if r.Limit > 0 && r.Limit < len(at) {
			at = at[:r.Limit]
		}
		if len(at) == 0 {
			failIfDone(ctx, "read stream", yield)
			return
		}
		for _, i := range at {
			if failIfDone(ctx, "read stream", yield) || !yield(clone(log[i]), nil) {
				return
			}
		}
	}
}

// ReadAll yields the events of the log; see [eventstore.AllReader]. It yields what was stored when the loop began.
func (s *Store) ReadAll(
	ctx context.Context, after eventstore.Position, f eventstore.Filter,
) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		if err := f.Validate(); err != nil {
			yield(eventstore.RecordedEvent{}, err)
			return
		}
		if failIfDone(ctx, "read log", yield) {
			return
		}
		yielded := 0
		for _, e := range s.after(after) {
			if !matches(f, e) {
				continue
			}
			if failIfDone(ctx, "read log", yield) || !yield(clone(e), nil) {
				return
			}
			if yielded++; yielded == f.Limit {
				return
			}
		}
	}
}

// failIfDone yields the error of a context that has ended, and reports whether it had.
func failIfDone(ctx context.Context, what string, yield func(eventstore.RecordedEvent, error) bool) bool {
	if err := ctx.Err(); err != nil {
		yield(eventstore.RecordedEvent{}, fmt.Errorf("memory: %s: %w", what, err))
		return true
	}
	return false
}

func (s *Store) snapshot(id eventstore.StreamID) (log []eventstore.RecordedEvent, at []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[id]; st != nil {
		return s.log, st.at
	}
	return nil, nil
}

// after returns the part of the log behind a position as it is now.
func (s *Store) after(p eventstore.Position) []eventstore.RecordedEvent {
	s.mu.Lock()
	log := s.log
	s.mu.Unlock()
	start, _ := slices.BinarySearchFunc(log, p, func(e eventstore.RecordedEvent, p eventstore.Position) int {
		if e.Position.After(p) {
			return 1
		}
		return -1
	})
	return log[start:]
}

// end returns the position of the last event.
func (s *Store) end() eventstore.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.log); n > 0 {
		return s.log[n-1].Position
	}
	return eventstore.Position{}
}

func matches(f eventstore.Filter, e eventstore.RecordedEvent) bool {
	return (len(f.Categories) == 0 || slices.Contains(f.Categories, e.Stream.Category)) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type))
}
