package eventstore

import (
	"time"

	"github.com/google/uuid"
)

// Flags are bits about how an event is stored. No bit is defined yet; the field is part of the stored format so that
// later releases (encryption, tombstones) need no change of the table. Unknown bits must be left as they are.
type Flags int32

// EventData is an event before it is stored. A [Catalog] makes it from a Go value; only Type and Data are needed.
type EventData struct {
	// ID identifies the event for ever. The zero value lets the store assign a UUID of version 7 (RFC 9562). A caller
	// that sets it makes the append repeatable: see [Appender].
	ID uuid.UUID
	// Type is the wire name, "account.deposited". It is stored, so it outlives every Go type.
	Type string
	// SchemaVersion is the version of the payload's shape, from 1; 0 is stored as 1.
	SchemaVersion int
	// ContentType is the media type of Data; empty is stored as application/octet-stream.
	ContentType string
	// Data is the payload. The store neither reads nor changes it.
	Data []byte
	// Metadata is joined with the metadata of the append's context; what is set here wins.
	Metadata Metadata
	Flags    Flags
}

// RecordedEvent is an event as it stands in the log. It never changes.
type RecordedEvent struct {
	EventData
	Stream StreamID
	// Version is the place in the stream, from 1 without gaps.
	Version Version
	// Position is the place in the log. Within one stream positions rise with versions.
	Position Position
	// Partition is [PartitionOf] of PartitionKey. Events of one partition key are delivered in order.
	Partition    int
	PartitionKey string
	// RecordedAt is when the append was made, by the clock of the store, in UTC with microseconds. All events of one
	// append have the same. Order by Position, never by time.
	RecordedAt time.Time
}

// Event is a decoded event, as folds and handlers get it.
type Event[E any] struct {
	Payload    E
	ID         uuid.UUID
	Stream     StreamID
	Version    Version
	Position   Position
	RecordedAt time.Time
	Metadata   Metadata
}
