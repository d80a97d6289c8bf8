package memory

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Append stores the events of all writes, or none; see [eventstore.Appender].
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	prepared, ownIDs, err := eventstore.Prepare(ctx, writes)
	if err != nil {
		return eventstore.AppendResult{}, err
	}
	for _, w := range prepared {
		for i := range w.Events {
			w.Events[i].Data = bytes.Clone(w.Events[i].Data)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return eventstore.AppendResult{}, fmt.Errorf("memory: append: %w", err)
	}
	for _, w := range prepared {
		if actual := s.version(w.Stream); !w.Expected.Holds(actual) {
			return s.earlier(prepared, ownIDs, &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expected, Actual: actual})
		}
	}
	return s.store(prepared), nil
}

// store writes what has been checked. The mutex is held.
func (s *Store) store(writes []eventstore.Write) eventstore.AppendResult {
	result := eventstore.AppendResult{Versions: make(map[eventstore.StreamID]eventstore.Version, len(writes))}
	// PostgreSQL's timestamps have microseconds, so that is what every engine keeps.
	now := s.clock().UTC().Truncate(time.Microsecond)
	next := int64(1)
	if n := len(s.log); n > 0 {
		next = s.log[n-1].Position.Ordinal() + 2 // one position is left out: see the package's caveats
	}
	var marks []eventstore.Mark
	for _, w := range writes {
		if len(w.Events) == 0 {
			result.Versions[w.Stream] = s.version(w.Stream)
			continue
		}
		st := s.streamFor(w)
		for _, e := range w.Events {
			st.at = append(st.at, len(s.log))
			s.log = append(s.log, eventstore.RecordedEvent{
				EventData:    e,
				Stream:       w.Stream,
				Version:      eventstore.Version(len(st.at)),
				Position:     eventstore.PositionAt(next),
				Partition:    st.partition,
				PartitionKey: st.partitionKey,
				RecordedAt:   now,
			})
			next++
		}
		result.RecordedAt = now
		result.Versions[w.Stream] = eventstore.Version(len(st.at))
		marks = append(marks, s.mark(st, w.Stream, len(st.at)))
	}
	if marks != nil {
		result.Token = eventstore.MakeToken(s.epoch, marks...)
		close(s.grown)
		s.grown = make(chan struct{})
	}
	return result
}

// earlier looks for an append whose repetition this is. It is one when the events stand, with their ids, where the
// claims say that they would have been put. Metadata is no part of the comparison: a call that is made again belongs
// to another trace. The mutex is held.
func (s *Store) earlier(writes []eventstore.Write, ownIDs bool, conflict error) (eventstore.AppendResult, error) {
	if !ownIDs {
		return eventstore.AppendResult{}, conflict
	}
	result := eventstore.AppendResult{
		Versions: make(map[eventstore.StreamID]eventstore.Version, len(writes)), Repeated: true,
	}
	var marks []eventstore.Mark
	var reused error
	for _, w := range writes {
		base, exact := w.Expected.Exact()
		if !exact {
			return eventstore.AppendResult{}, conflict
		}
		last := base + eventstore.Version(len(w.Events))
		result.Versions[w.Stream] = last
		if len(w.Events) == 0 {
			continue
		}
		st := s.streams[w.Stream]
		if s.version(w.Stream) < last {
			return eventstore.AppendResult{}, conflict
		}
		for i, e := range w.Events {
			stored := s.log[st.at[int(base)+i]]
			if stored.ID != e.ID {
				return eventstore.AppendResult{}, conflict
			}
			if reused == nil && !sameContent(stored.EventData, e) {
				reused = fmt.Errorf("%w: event %s at version %d of stream %q", eventstore.ErrReusedID, e.ID, stored.Version, w.Stream)
			}
			result.RecordedAt = stored.RecordedAt
		}
		marks = append(marks, s.mark(st, w.Stream, int(last)))
	}
	if reused != nil {
		return eventstore.AppendResult{}, reused
	}
	result.Token = eventstore.MakeToken(s.epoch, marks...)
	return result, nil
}

func sameContent(a, b eventstore.EventData) bool {
	return a.Type == b.Type && a.SchemaVersion == b.SchemaVersion && a.ContentType == b.ContentType &&
		a.Flags == b.Flags && bytes.Equal(a.Data, b.Data)
}

// mark is the token's part for a stream up to a version. The mutex is held.
func (s *Store) mark(st *stream, id eventstore.StreamID, version int) eventstore.Mark {
	return eventstore.Mark{
		Partition: st.partition,
		Position:  s.log[st.at[version-1]].Position,
		Streams:   []uint32{eventstore.StreamHash(id)},
	}
}

// version returns the version of a stream, 0 when there is none. The mutex is held.
func (s *Store) version(id eventstore.StreamID) eventstore.Version {
	if st := s.streams[id]; st != nil {
		return eventstore.Version(len(st.at))
	}
	return 0
}

// streamFor returns the stream of a write, made with the write's partition key if it is new. The mutex is held.
func (s *Store) streamFor(w eventstore.Write) *stream {
	st := s.streams[w.Stream]
	if st == nil {
		key := w.PartitionKey
		if key == "" {
			key = w.Stream.String()
		}
		st = &stream{partitionKey: key, partition: eventstore.PartitionOf(key, s.partitions)}
		s.streams[w.Stream] = st
	}
	return st
}
