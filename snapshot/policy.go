package snapshot

import (
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Policy says when snapshots of one aggregate type are taken, and how. It is a small value and safe for concurrent
// use. The zero Policy is [Never].
type Policy struct {
	// Every takes a snapshot when a command leaves at least this many events since the last snapshot. 0: never.
	Every int
	// Revision is raised by whoever changes what Evolve does, or how stored events are upcast, while the state's
	// fields stay as they are. Snapshots of another revision are ignored. Default 0.
	Revision int
	// Codec encodes the state. Default [eventstore.Msgpack].
	Codec eventstore.Codec
	// Logger gets a warning when snapshots begin to fail to be taken, read or used, and a line when they work again; not
	// one for each command in between. Default [slog.Default].
	Logger *slog.Logger
	// Clock gives Snapshot.TakenAt. Default [time.Now].
	Clock func() time.Time
}

// Never takes no snapshots. Those that other programs take are used.
var Never = Policy{}

// Every takes a snapshot after a command that leaves n or more events since the last one, at the version that the
// command reached. So a load folds fewer than n events behind a snapshot, and one large append makes one snapshot.
// 0 is [Never]; a negative n counts as 0.
func Every(n int) Policy { return Policy{Every: n} }

// Due reports whether a snapshot is to be taken at version after, when the last usable one has version last (0: there
// is none).
func (p Policy) Due(last, after eventstore.Version) bool {
	return p.Every > 0 && after-last >= eventstore.Version(p.Every)
}

// WithDefaults returns p with every empty field but Every and Revision set. It is for repositories.
func (p Policy) WithDefaults() Policy {
	if p.Codec == nil {
		p.Codec = eventstore.Msgpack
	}
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	if p.Clock == nil {
		p.Clock = time.Now
	}
	return p
}
