package eventstore

import (
	"context"
	"iter"
	"strconv"
	"time"
)

// Write is one stream's part of an append; make it with [To] or [Check].
type Write struct {
	Stream   StreamID
	Expected ExpectedVersion
	// Events are appended in this order; none means that the stream is only checked.
	Events []EventData
	// PartitionKey says with what the stream must be kept in one order; empty stands for the stream itself. It is
	// fixed by the stream's first event and ignored afterwards. All streams of one key are delivered in order of
	// position, by one worker at a time.
	PartitionKey string
}

// To appends events to s if the claim holds.
func To(s StreamID, expected ExpectedVersion, events ...EventData) Write {
	return Write{Stream: s, Expected: expected, Events: events}
}

// Check appends nothing to s, but lets the whole append fail unless the claim holds at the moment of the append. Use
// it for a stream that a decision has read: without it two decisions that each read what the other writes can both
// succeed (write skew).
func Check(s StreamID, expected ExpectedVersion) Write { return Write{Stream: s, Expected: expected} }

// AppendResult says what an append did.
type AppendResult struct {
	// Versions holds the version of every stream named in the append, after it.
	Versions map[StreamID]Version
	// Token is what a reader waits for to see this append; see [Token].
	Token Token
	// RecordedAt is the time stored in every event of the append; zero when there were none.
	RecordedAt time.Time
	// Repeated: the same events were stored by an earlier call; this one wrote nothing and returns the earlier result.
	Repeated bool
}

// Appender appends events.
//
// Append stores the events of all writes, in the order given, or none of them. A claim that does not hold gives a
// [*ConflictError] for the first such write, input that cannot be stored an [*InvalidError] before anything is sent;
// see the package's table for the rest. An append without events checks its claims and returns. Naming one stream
// twice is refused.
//
// Repeating: an append whose events carry ids of the caller's own, and whose claims are exact ([NoStream] or
// [Exactly]), may be sent again, for example after [ErrUnconfirmed]. If its events are stored already the call returns
// the first result with Repeated set; the same ids with other content give [ErrReusedID].
//
// Append is safe for concurrent use.
type Appender interface {
	Append(ctx context.Context, writes ...Write) (AppendResult, error)
}

// Range bounds what is read of a stream. The zero Range is the whole stream.
type Range struct {
	// From is the first version wanted; 0 and 1 both mean the first event.
	From Version
	// To is the last version wanted; 0 means the end of the stream.
	To Version
	// Limit is the greatest number of events; 0 means no limit.
	Limit int
}

// Validate reports a bound that is negative. Every engine calls it before it reads. The error is an [*InvalidError].
func (r Range) Validate() error {
	for _, f := range [...]struct {
		name  string
		value int64
	}{{"Range.From", int64(r.From)}, {"Range.To", int64(r.To)}, {"Range.Limit", int64(r.Limit)}} {
		if f.value < 0 {
			return negativeBound(f.name, f.value)
		}
	}
	return nil
}

func negativeBound(field string, value int64) error {
	return &InvalidError{Field: field, Value: strconv.FormatInt(value, 10), Reason: "is negative", Remedy: "use 0 for no bound"}
}

// StreamReader reads one stream.
//
// ReadStream yields the events of s in r by version. A stream without events yields nothing. Memory is bounded: events
// are fetched in pages, so a stream of any length can be read. An error is yielded once, with a zero event, and ends
// the sequence. Breaking off the loop releases everything.
type StreamReader interface {
	ReadStream(ctx context.Context, s StreamID, r Range) iter.Seq2[RecordedEvent, error]
}

// Filter selects events of the log. Empty lists select everything; an event must match each list that is not empty.
type Filter struct {
	Categories []string
	Types      []string
	// Limit is the greatest number of events; 0 means no limit.
	Limit int
}

// Validate reports a negative limit, and text that no event can have. Every engine calls it before it reads. The error
// is an [*InvalidError].
func (f Filter) Validate() error {
	if f.Limit < 0 {
		return negativeBound("Filter.Limit", int64(f.Limit))
	}
	for _, category := range f.Categories {
		if err := checkText("Filter.Categories", category); err != nil {
			return err
		}
	}
	for _, name := range f.Types {
		if err := checkText("Filter.Types", name); err != nil {
			return err
		}
	}
	return nil
}

// AllReader reads the log.
//
// ReadAll yields the events after a position that f selects, by position, up to the safe head at the time the last
// page was read, and ends there; it does not wait for more. No event is ever skipped because a transaction that drew
// an earlier position committed later. Memory is bounded. Errors end the sequence as in [StreamReader].
type AllReader interface {
	ReadAll(ctx context.Context, after Position, f Filter) iter.Seq2[RecordedEvent, error]
}

// Store is what an engine offers. Engines live in packages of their own and are held to one suite, eventstoretest.
type Store interface {
	Appender
	StreamReader
	AllReader
}

// Page is a piece of the log as consumers read it.
type Page struct {
	// Events are those that matched the filter, by position.
	Events []RecordedEvent
	// Through is the position up to which the page is complete: everything that matches at or below it, and above
	// where the page began, is in Events. It is never before the position that the page began after.
	Through Position
}
