package eventstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	// ErrConflict: a stream was not at the version that the append expected. Load again and decide again. Details are
	// in [*ConflictError].
	ErrConflict = errors.New("eventstore: conflict")
	// ErrStreamNotFound: the stream has no events.
	ErrStreamNotFound = errors.New("eventstore: stream not found")
	// ErrStreamClosed: the stream takes no more events. Details are in [*ClosedError].
	ErrStreamClosed = errors.New("eventstore: stream closed")
	// ErrUnknownType: an event's wire name is in no catalog. Deploy the code that knows it before going on; skipping
	// the event would lose it. Details are in [*UnknownTypeError].
	ErrUnknownType = errors.New("eventstore: unknown event type")
	// ErrInvalid: the caller passed something that cannot be stored or read. Details are in [*InvalidError].
	ErrInvalid = errors.New("eventstore: invalid input")
	// ErrBusy: the database gave up waiting for a lock, or broke a deadlock or a serialization failure. Nothing was
	// written; run the whole transaction again.
	ErrBusy = errors.New("eventstore: busy")
	// ErrHistory: the log is not the one that a position or token came from, or it has lost commits. Stop and read
	// the instructions in [*HistoryError]; going on would skip or repeat events.
	ErrHistory = errors.New("eventstore: history changed")
	// ErrUnconfirmed: the connection broke while an append was being committed, so it may or may not be stored. An
	// append whose events carry their own ids may be sent again as it is; see [Appender].
	ErrUnconfirmed = errors.New("eventstore: append not confirmed")
	// ErrReusedID: an append carries the event ids of an earlier one, but other content.
	ErrReusedID = errors.New("eventstore: event ids used before with other content")
)

// IsRetryable reports whether the same call may succeed when it is made again from the start: a conflict (after
// loading and deciding again) or a busy database. It is false for an unconfirmed append, which may be stored already.
func IsRetryable(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrBusy) }

// ConflictError says which claim about which stream was wrong. It matches [ErrConflict].
type ConflictError struct {
	Stream   StreamID
	Expected ExpectedVersion
	// Actual is the version that the stream had; 0 when it has no events.
	Actual Version
}

// Error names the stream, what was expected and what was found.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("eventstore: conflict on stream %q: expected %s, found version %d", e.Stream, e.Expected, e.Actual)
}

// Is matches [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// ClosedError says which stream takes no more events. It matches [ErrStreamClosed].
type ClosedError struct{ Stream StreamID }

// Error names the stream.
func (e *ClosedError) Error() string { return fmt.Sprintf("eventstore: stream %q is closed", e.Stream) }

// Is matches [ErrStreamClosed].
func (e *ClosedError) Is(target error) bool { return target == ErrStreamClosed }

// UnknownTypeError names an event whose wire name no catalog knows. It matches [ErrUnknownType].
type UnknownTypeError struct {
	Type     string
	Stream   StreamID
	Version  Version
	Position Position
}

// Error names the event and the remedy.
func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("eventstore: event type %q of stream %q version %d (position %s) is in no catalog: deploy the code that knows it",
		e.Type, e.Stream, e.Version, e.Position)
}

// Is matches [ErrUnknownType].
func (e *UnknownTypeError) Is(target error) bool { return target == ErrUnknownType }

// DecodeError names an event whose payload today's code cannot read. The payload itself is never part of the text.
type DecodeError struct {
	Type     string
	Stream   StreamID
	Version  Version
	Position Position
	Err      error
}

// Error names the event and the cause.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("eventstore: decode %q of stream %q version %d (position %s): %v", e.Type, e.Stream, e.Version, e.Position, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// InvalidError names a field that cannot be accepted, why, and what to do. It matches [ErrInvalid]. Nothing was
// written.
type InvalidError struct {
	Field string
	// Value is the offending value, shortened and quoted in the text.
	Value  string
	Reason string
	Remedy string
}

// Error names the field, its value, the reason and the remedy; a long value is shortened.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("eventstore: %s %s %s: %s", e.Field, shorten(e.Value), e.Reason, e.Remedy)
}

// Is matches [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// HistoryError says that the log is not the one expected. It matches [ErrHistory].
type HistoryError struct {
	// Reason says what was noticed.
	Reason string
	// Remedy says what an operator should do.
	Remedy string
}

// Error gives the reason and the remedy.
func (e *HistoryError) Error() string {
	return "eventstore: history changed: " + e.Reason + ": " + e.Remedy
}

// Is matches [ErrHistory].
func (e *HistoryError) Is(target error) bool { return target == ErrHistory }

const (
	maxTypeName     = 128
	maxMetadataText = 1 << 10
	maxHeaderText   = 8 << 10
)

// checkText refuses what PostgreSQL's text type cannot hold, before any transaction is open.
func checkText(field, text string) error {
	switch {
	case !utf8.ValidString(text):
		return &InvalidError{Field: field, Value: text, Reason: "is not valid UTF-8", Remedy: "encode it, for example as base64"}
	case strings.IndexByte(text, 0) >= 0:
		return &InvalidError{Field: field, Value: text, Reason: "contains a zero byte", Remedy: "remove or encode it"}
	}
	return nil
}

func checkLimitedText(field, text string, limit int) error {
	if len(text) > limit {
		return &InvalidError{
			Field: field, Value: text, Reason: fmt.Sprintf("has %d bytes, more than %d", len(text), limit),
			Remedy: "put large values into the payload",
		}
	}
	return checkText(field, text)
}

func shorten(text string) string {
	const limit = 80
	if len(text) > limit {
		return strconv.Quote(text[:limit]) + "…"
	}
	return strconv.Quote(text)
}
