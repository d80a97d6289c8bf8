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
	prepared, ownIDs, err := prepare(ctx, writes)
	if err != nil {
		return eventstore.AppendResult{}, err
	}
	var result eventstore.AppendResult
	lockErr := s.exclusively(ctx, append(streamLocks(prepared), logLock), func() {
		if err = s.check(ctx, prepared); err != nil {
			result, err = s.earlier(prepared, ownIDs, err)
			return
		}
		b := s.build(prepared)
		s.publish(b)
		result = b.result
	})
	if lockErr != nil {
		return eventstore.AppendResult{}, lockErr
	}
	return result, err
}

// prepare is [eventstore.Prepare] with payloads that nobody else can change.
func prepare(ctx context.Context, writes []eventstore.Write) (prepared []eventstore.Write, ownIDs bool, err error) {
	prepared, ownIDs, err = eventstore.Prepare(ctx, writes)
	for _, w := range prepared {
		for i := range w.Events {
			w.Events[i].Data = bytes.Clone(w.Events[i].Data)
		}
	}
	return prepared, ownIDs, err
}

// check returns the error of a context that has ended, or the conflict of an append, or nil. The mutex is held.
func (s *Store) check(ctx context.Context, writes []eventstore.Write) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: append: %w", err)
	}
	for _, w := range writes {
		if actual := s.version(w.Stream); !w.Expected.Holds(actual) {
			return &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expected, Actual: actual}
		}
	}
	return nil
}

// batch is an append that has been checked and is not seen yet.
type batch struct {
	events []eventstore.RecordedEvent
	result eventstore.AppendResult
}

// build makes the events of writes as they will be stored. The mutex is held, and the log is locked until they are
// published.
func (s *Store) build(writes []eventstore.Write) batch {
	b := batch{result: eventstore.AppendResult{Versions: make(map[eventstore.StreamID]eventstore.Version, len(writes))}}
	now := s.now()
	next := int64(1)
	if n := len(s.log); n > 0 {
		next = s.log[n-1].Position.Ordinal() + 2 // one position is left out: see the package's caveats
	}
	var marks []eventstore.Mark
	for _, w := range writes {
		version := s.version(w.Stream)
		if len(w.Events) > 0 {
			st := s.streams[w.Stream]
			if st == nil {
				st = s.newStream(w)
			}
			for _, e := range w.Events {
				version++
				b.events = append(b.events, eventstore.RecordedEvent{
					EventData:    e,
					Stream:       w.Stream,
					Version:      version,
					Position:     eventstore.PositionAt(next),
					Partition:    st.partition,
					PartitionKey: st.partitionKey,
					RecordedAt:   now,
				})
				next++
			}
			b.result.RecordedAt = now
			marks = append(marks, markOf(b.events[len(b.events)-1]))
		}
		b.result.Versions[w.Stream] = version
	}
	if marks != nil {
		b.result.Token = eventstore.MakeToken(s.epoch, marks...)
	}
	return b
}

// publish lets everybody see a batch. The mutex is held.
func (s *Store) publish(b batch) {
	for _, e := range b.events {
		st := s.streams[e.Stream]
		if st == nil {
			st = &stream{partitionKey: e.PartitionKey, partition: e.Partition}
			s.streams[e.Stream] = st
		}
		st.at = append(st.at, len(s.log))
		s.log = append(s.log, e)
	}
	if len(b.events) > 0 {
		close(s.grown)
		s.grown = make(chan struct{})
	}
}

// now is the time as every engine keeps it: PostgreSQL's timestamps have microseconds.
func (s *Store) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// markOf is the token's part for a stream up to an event.
func markOf(e eventstore.RecordedEvent) eventstore.Mark {
	return eventstore.Mark{Partition: e.Partition, Position: e.Position, Streams: []uint32{eventstore.StreamHash(e.Stream)}}
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
		marks = append(marks, markOf(s.log[st.at[last-1]]))
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

// version returns the version of a stream, 0 when there is none. The mutex is held.
func (s *Store) version(id eventstore.StreamID) eventstore.Version {
	if st := s.streams[id]; st != nil {
		return eventstore.Version(len(st.at))
	}
	return 0
}

// newStream is the stream that a write would make. A stream without a key of its own has that of its name.
func (s *Store) newStream(w eventstore.Write) *stream {
	key := w.PartitionKey
	if key == "" {
		key = w.Stream.String()
	}
	return &stream{partitionKey: key, partition: eventstore.PartitionOf(key, s.partitions)}
}
