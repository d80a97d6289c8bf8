package snapshot

import (
	"context"
	"iter"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Snapshot is the encoded state of one stream at one version.
type Snapshot struct {
	Stream eventstore.StreamID
	// Fingerprint says which code can read Data; see [Fingerprint].
	Fingerprint string
	// Version is the version of the last event that is part of the state.
	Version eventstore.Version
	// Position is the position of that same event. Positions are never used twice, so version and position together
	// prove that the stream still begins with the events that the state was made of.
	Position eventstore.Position
	// ContentType is the media type of Data.
	ContentType string
	// Data is the state. A store neither reads nor changes it.
	Data []byte
	// TakenAt is when the snapshot was taken, by the clock of the program that took it; for people only.
	TakenAt time.Time
}

// IsZero reports whether there is no snapshot.
func (s Snapshot) IsZero() bool { return s.Version == 0 }

// Store keeps snapshots: the newest few for each stream and fingerprint. Engines implement it beside the event store
// whose streams it reads. A Store is safe for concurrent use.
type Store interface {
	// Load returns a snapshot of stream with that fingerprint, the newest if before is 0, else the newest whose version is
	// below before; and, read in the same round trip, the events of the stream from the snapshot's version on. The first
	// of them is the last event inside the snapshot, by which the caller recognises that the snapshot is of this stream as
	// it stands; without any event, the snapshot is newer than the stream.
	//
	// Without such a snapshot, the Snapshot is zero and the events begin with the first. A stream without events is
	// not an error. The sequence reads later pages by itself, yields an error once and then ends, as that of
	// [eventstore.StreamReader] does. Nothing is held open for it: a caller may leave it unread.
	Load(ctx context.Context, stream eventstore.StreamID, fingerprint string, before eventstore.Version) (Snapshot, iter.Seq2[eventstore.RecordedEvent, error], error)
	// Save stores a snapshot unless one of the same stream and fingerprint with the same or a later version is there;
	// that is no error. The newest keep of them stay, at least one, and older ones are removed.
	Save(ctx context.Context, s Snapshot, keep int) error
	// Delete removes all snapshots of a stream, of every fingerprint. Nothing to remove is no error.
	Delete(ctx context.Context, stream eventstore.StreamID) error
	// DeleteCategory removes all snapshots of all streams of a category, of every fingerprint, and returns how many. It
	// works in small steps: after an error, a part is removed, and the count says how much.
	DeleteCategory(ctx context.Context, category string) (int64, error)
}
