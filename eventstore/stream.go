package eventstore

import (
	"fmt"
	"strings"
)

// maxStreamID bounds the text form of a stream id in bytes. It keeps the index on (stream_id, version) far below the
// size at which PostgreSQL refuses an index row.
const maxStreamID = 512

// StreamID names a stream: the events of one entity, and the boundary within which they are consistent.
//
// Category is the kind of entity ("account"), ID the entity itself ("42"). The text form is "account-42"; it is what
// engines store and order by, byte by byte. StreamID is comparable and may be used as a map key.
type StreamID struct {
	Category string
	ID       string
}

// NewStreamID returns the id of one stream. It does not check its parts: [StreamID.Validate] does, and every engine
// calls it before anything is written or read.
func NewStreamID(category, id string) StreamID { return StreamID{Category: category, ID: id} }

// ParseStreamID reads the text form "category-id". The category ends at the first dash, so ids may contain dashes.
// The error is an [*InvalidError].
func ParseStreamID(text string) (StreamID, error) {
	category, id, found := strings.Cut(text, "-")
	if !found {
		return StreamID{}, &InvalidError{
			Field: "stream id", Value: text, Reason: "has no dash between category and id",
			Remedy: `write it as "category-id", for example "account-42"`,
		}
	}
	s := StreamID{Category: category, ID: id}
	return s, s.Validate()
}

// String returns the text form "category-id".
func (s StreamID) String() string { return s.Category + "-" + s.ID }

// MarshalText returns the text form, so that a StreamID may be a key in JSON.
func (s StreamID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form; see [ParseStreamID].
func (s *StreamID) UnmarshalText(text []byte) error {
	parsed, err := ParseStreamID(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// IsZero reports whether s names no stream.
func (s StreamID) IsZero() bool { return s == StreamID{} }

// Validate reports what keeps s from being stored: an empty part, a dash in the category (the text form could not be
// read back), a text form over 512 bytes, invalid UTF-8 or a zero byte (PostgreSQL's text type refuses both). The error is an [*InvalidError].
func (s StreamID) Validate() error {
	switch {
	case s.Category == "":
		return &InvalidError{Field: "stream category", Value: s.String(), Reason: "is empty", Remedy: "give the kind of entity"}
	case s.ID == "":
		return &InvalidError{Field: "stream id", Value: s.String(), Reason: "is empty", Remedy: "give the id of the entity"}
	case strings.Contains(s.Category, "-"):
		return &InvalidError{
			Field: "stream category", Value: s.Category, Reason: "contains a dash, which ends the category in the text form",
			Remedy: "use another character in the category; ids may have dashes",
		}
	case len(s.Category)+1+len(s.ID) > maxStreamID:
		return &InvalidError{
			Field: "stream id", Value: s.String(), Reason: fmt.Sprintf("has %d bytes, more than %d", len(s.String()), maxStreamID),
			Remedy: "use a shorter id, for example a hash of the long one",
		}
	}
	return checkText("stream id", s.String())
}

// Version is the place of an event in its stream. The first event has version 1, and versions have no gaps, so the
// version of a stream is also its length. 0 stands for a stream without events.
type Version int64

// ExpectedVersion is a writer's claim about a stream at the moment of the append. The zero value is the strictest,
// [NoStream]: an append that forgets to say what it expects cannot overwrite anybody's decision.
type ExpectedVersion struct {
	kind    expectedKind
	version Version
}

type expectedKind uint8

const (
	expectExactly expectedKind = iota // version 0: no stream
	expectExists
	expectAny
)

var (
	// NoStream claims that the stream has no events yet.
	NoStream = ExpectedVersion{}
	// StreamExists claims that the stream has at least one event.
	StreamExists = ExpectedVersion{kind: expectExists}
	// AnyVersion claims nothing: the append takes its place behind whatever is there.
	AnyVersion = ExpectedVersion{kind: expectAny}
)

// Exactly claims that the last event of the stream has version v. Exactly(0) is [NoStream].
func Exactly(v Version) ExpectedVersion { return ExpectedVersion{version: v} }

// Exact returns the version claimed and true, or false for [StreamExists] and [AnyVersion].
func (e ExpectedVersion) Exact() (Version, bool) { return e.version, e.kind == expectExactly }

// Holds reports whether the claim is true of a stream at version actual (0: no events).
func (e ExpectedVersion) Holds(actual Version) bool {
	switch e.kind {
	case expectExists:
		return actual > 0
	case expectAny:
		return true
	default:
		return actual == e.version
	}
}

// String names the claim: "no stream", "stream exists", "any version" or "version 3".
func (e ExpectedVersion) String() string {
	switch {
	case e.kind == expectExists:
		return "stream exists"
	case e.kind == expectAny:
		return "any version"
	case e.version == 0:
		return "no stream"
	default:
		return fmt.Sprintf("version %d", e.version)
	}
}
