package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// Source is a log as consumers read it. The logs of the engines satisfy it.
type Source interface {
	// ReadPage returns at most limit events after a position that f selects, and how far the page is complete. An
	// error that matches [eventstore.ErrHistory] stops the consumer; any other is waited out.
	ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error)
	// Wait returns when the log may have something beyond a position, or when ctx ends.
	Wait(ctx context.Context, after eventstore.Position) error
}

// Stream is a Source that is told of events as they are published, each partition by itself. Whoever does not know
// that it is one can read it like a log.
type Stream interface {
	Source
	Carrier
	// Follow begins to receive for one consumer.
	Follow(ctx context.Context, f Follower) (Feed, error)
}

// Beginner is a source that wants to know who reads it, before the first read of each tenure.
type Beginner interface {
	// Begin returns where a consumer starts that has never applied anything; db is the consumers' own pool.
	Begin(ctx context.Context, db *pgxpool.Pool, ref Ref) (eventstore.Position, error)
}

// BeginAt is [Beginner.Begin] of a source, and the beginning of the log for any other.
func BeginAt(ctx context.Context, s Source, db *pgxpool.Pool, ref Ref) (eventstore.Position, error) {
	if b, ok := s.(Beginner); ok {
		return b.Begin(ctx, db, ref)
	}
	return eventstore.Position{}, nil
}

// Carrier is a source that is not always the whole log.
type Carrier interface {
	// Carries names what the source consists of: empty when it is all that the log has, so that a consumer may change
	// between the two.
	Carries() string
}

// Keeper is a Carrier that keeps more in the record of what a consumer follows than its name.
type Keeper interface {
	Carrier
	// Keeps reports whether it goes on from a record as it stands. It is called at the beginning of each tenure.
	Keeps(record string) bool
}

// CarriedBy names what a source consists of; see [Carrier].
func CarriedBy(s Source) string {
	if c, ok := s.(Carrier); ok {
		return c.Carries()
	}
	return ""
}

// Follower is a consumer that begins to follow a [Stream].
type Follower struct {
	Ref
	Filter eventstore.Filter
	// Applied is what is committed.
	Applied Progress
	// Limit is the greatest number of events of one batch.
	Limit int
}

// Feed hands out what a consumer has not applied yet. One goroutine uses it.
type Feed interface {
	// Next returns what comes next. When there is nothing it waits, but not beyond until unless that is zero, and
	// returns an empty batch then. Errors are judged like those of [Source.ReadPage].
	Next(ctx context.Context, until time.Time) (Batch, error)
	// Close ends the feed and releases what it holds.
	Close()
}

// Batch is what a feed hands out: events, and how far the consumer has come when they are applied.
type Batch struct {
	// Events of one partition are in order of position.
	Events []eventstore.RecordedEvent
	// Floor is the position up to which all partitions are complete. With a floor that is not zero all Events are in
	// order of position, and there are no marks.
	Floor eventstore.Position
	// Marks say how far single partitions are complete.
	Marks []eventstore.Mark
	// Held are messages that are not to be applied now, whatever else the batch has: they are written in its transaction,
	// also when it has no events. A sequence of which something is held is set aside, without a failure, from the lowest of
	// them on; events of it that follow, in this batch or later, join them. What is held is applied in order of position by
	// the worker, between batches, as far as the bytes are there; when nothing is left the sequence goes on with the others.
	// Only sources that do not carry the whole log have any.
	Held []HeldMessage
	// Queue, if set, adds statements of the feed's own to the transaction of the batch, also when it has no events: to the
	// last one when it takes several. They come behind the fence.
	Queue func(*pgx.Batch)
	// More follows at once.
	More bool
}

// HeldMessage is a message that a [Feed] has kept for later.
type HeldMessage struct {
	Kind HeldKind
	// Event is the message. Of one that is awaited only its position, partition and partition key count.
	Event eventstore.RecordedEvent
	// Previous is the position of the message before it in its partition of the topic; zero where there is no chain.
	Previous eventstore.Position
	// Topic and Err are of Refused only: the topic of the letter's sequence, and why.
	Topic string
	Err   error
}

// HeldKind says what is known of a held message.
type HeldKind uint8

const (
	// Queued: the message is here, and has its place in its sequence, which is set aside.
	Queued HeldKind = iota
	// Awaited: the message has not come, and is not to be waited for by others: a place is kept for it.
	Awaited
	// Redelivered: the message has come after all. It takes the place that was kept for it; when there is none it has taken
	// effect before, or its sequence has gone on without it, and nothing happens.
	Redelivered
	// Discarded: the message never comes. The place that was kept for it goes, unless its bytes are there.
	Discarded
	// Refused: nothing can be done with the message. It becomes a letter that waits for people, of a sequence of its own.
	Refused
)

// SequenceReader is a [Source] that reads one sequence without reading all the others. Any other source is read page by
// page where a sequence is read again.
type SequenceReader interface {
	// ReadSequence returns the next events in (after, upTo] with a partition key, at most limit that f selects. A page may
	// be empty although more follows: go on from its Through until that has come to upTo.
	ReadSequence(ctx context.Context, partition int, sequence string, after, upTo eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error)
}

// target is the progress that the first n events of a batch lead to.
func (b Batch) target(from Progress, partitions, n int) Progress {
	switch {
	case n == len(b.Events):
		return from.Raise(partitions, b.Floor, b.Marks)
	case !b.Floor.IsZero():
		return from.Raise(partitions, b.Events[n-1].Position, nil)
	}
	return from.Raise(partitions, eventstore.Position{}, marksOf(b.Events[:n]))
}

func marksOf(events []eventstore.RecordedEvent) []eventstore.Mark {
	marks := make([]eventstore.Mark, len(events))
	for i, e := range events {
		marks[i] = eventstore.Mark{Partition: e.Partition, Position: e.Position}
	}
	return marks
}

// rest is the batch without its first n events.
func (b Batch) rest(n int) Batch {
	b.Events = b.Events[n:]
	return b
}

// LogFeed reads a log, the next page while the one before it is applied. Events that the consumer has applied already,
// because it had followed a stream before, are left out.
type LogFeed struct {
	source  Source
	filter  eventstore.Filter
	limit   int
	applied Progress
	read    eventstore.Position
	atEnd   bool // the last page was not full
	looked  time.Time

	ctx     context.Context
	stop    context.CancelFunc
	ahead   chan pageResult // a page that is being read, or nil
	readers sync.WaitGroup
}

type pageResult struct {
	page eventstore.Page
	err  error
}

// lookAnyway is how old what is known of the end of the log may become.
const lookAnyway = 2 * time.Second

// FollowLog begins to read source behind what f has applied, until ctx ends or the feed is closed.
func FollowLog(ctx context.Context, source Source, f Follower) *LogFeed {
	ctx, stop := context.WithCancel(ctx)
	return &LogFeed{
		source: source, filter: f.Filter, limit: f.Limit, applied: f.Applied, read: f.Applied.Floor(), ctx: ctx, stop: stop,
	}
}

// Close implements [Feed].
func (f *LogFeed) Close() {
	f.stop()
	f.readers.Wait()
}

// Next implements [Feed].
func (f *LogFeed) Next(ctx context.Context, until time.Time) (Batch, error) {
	if f.ahead == nil && f.atEnd {
		waited, err := f.wait(ctx, until)
		// A source that is only waited for in pieces may never come to say that it is time to look.
		if err != nil || !waited && time.Since(f.looked) < lookAnyway {
			return Batch{Floor: f.read}, err
		}
	}
	var r pageResult
	if f.ahead != nil {
		select {
		case r = <-f.ahead:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
		f.ahead = nil
	} else {
		r = f.readPage(ctx, f.read)
	}
	if r.err != nil {
		return Batch{}, r.err
	}
	f.atEnd = len(r.page.Events) < f.limit
	f.read, f.looked = r.page.Through, time.Now()
	if !f.atEnd {
		ahead, from := make(chan pageResult, 1), f.read
		f.ahead = ahead
		f.readers.Go(func() { ahead <- f.readPage(f.ctx, from) })
	}
	return Batch{Events: f.unapplied(r.page.Events), Floor: f.read, More: !f.atEnd}, nil
}

func (f *LogFeed) readPage(ctx context.Context, after eventstore.Position) pageResult {
	page, err := f.source.ReadPage(ctx, after, f.filter, f.limit)
	if err == nil && page.Through.Before(after) {
		page.Through = after
	}
	return pageResult{page, err}
}

func (f *LogFeed) unapplied(events []eventstore.RecordedEvent) []eventstore.RecordedEvent {
	if f.applied.ahead == nil {
		return events
	}
	kept := events[:0]
	for _, e := range events {
		if e.Position.After(f.applied.At(e.Partition)) {
			kept = append(kept, e)
		}
	}
	return kept
}

// wait blocks at the end of the log. It reports false when until has passed.
func (f *LogFeed) wait(ctx context.Context, until time.Time) (bool, error) {
	waiting := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	err := f.source.Wait(waiting, f.read)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case waiting.Err() != nil && errors.Is(err, waiting.Err()):
		return false, nil
	}
	return false, err
}
