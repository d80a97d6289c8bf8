package snapshot

import (
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Policy says when snapshots of one aggregate type are taken, and how. It is a small value and safe for concurrent
// use. The zero Policy is [Never].
type Policy struct {
	// When says after which commands a snapshot is due; nil: never. [Every], [After], [WhenReplayed], [OnEvent], [Or] and
	// [And] make the usual ones.
	When Condition
	// Keep is how many snapshots of one stream stay: when the newest cannot be used, the one before it is tried before
	// the events are. Default 2; less counts as the default.
	Keep int
	// Revision is raised by whoever changes what Evolve does, or how stored events are upcast, while the state's
	// fields stay as they are. Snapshots of another revision are ignored. Default 0.
	Revision int
	// Codec encodes the state. Default [eventstore.Msgpack].
	Codec eventstore.Codec
	// Logger gets a warning when snapshots begin to fail to be taken, read or used, and a line when they work again; not
	// one for each command in between. Default [slog.Default].
	Logger *slog.Logger
	// Clock gives Snapshot.TakenAt and Facts.Now. Default [time.Now].
	Clock func() time.Time
	// Queue is how many snapshots of a repository may wait to be stored, one for each stream at most. What does not fit is
	// dropped, and due again with the next command. Default 128; less than 1 counts as the default.
	Queue int
}

// Never takes no snapshots. Those that other programs take are used.
var Never = Policy{}

// Every takes a snapshot after a command that leaves n or more events since the last one, at the version that the
// command reached. So a load folds fewer than n events behind a snapshot, and one large append makes one snapshot.
// 0 and less is [Never].
func Every(n int) Policy { return Policy{When: every(n)} }

// After takes a snapshot after a command when the last snapshot is d old, or, without one, the first event that was
// read. Ages are measured with the clocks of whoever took the snapshot or recorded the event, and Policy.Clock. 0 and
// less is [Never].
func After(d time.Duration) Policy { return Policy{When: after(d)} }

// WhenReplayed takes a snapshot after a command whose state took n or more events to fold, so that streams which nobody
// commands often are paid for once. 0 and less is [Never].
func WhenReplayed(n int) Policy { return Policy{When: whenReplayed(n)} }

// OnEvent takes a snapshot when an event of one of the types has happened since the last one; as when a year is closed.
func OnEvent(types ...eventstore.AnyEventType) Policy {
	var names onEvent
	for _, t := range types {
		names = append(names, t.Name())
	}
	return Policy{When: names}
}

// Or takes a snapshot when one of the policies does. What else the policies say is taken from the first.
func Or(policies ...Policy) Policy {
	return combine(policies, func(c []Condition) Condition { return or(c) })
}

// And takes a snapshot when all of the policies do. What else the policies say is taken from the first.
func And(policies ...Policy) Policy {
	return combine(policies, func(c []Condition) Condition { return and(c) })
}

func combine(policies []Policy, of func([]Condition) Condition) Policy {
	if len(policies) == 0 {
		return Never
	}
	var conditions []Condition
	for _, p := range policies {
		conditions = append(conditions, p.condition())
	}
	p := policies[0]
	p.When = of(conditions)
	return p
}

// Due reports whether a snapshot is to be taken. Without events since the last one it never is.
func (p Policy) Due(f Facts) bool { return f.Version > f.Last && p.condition().Due(f) }

// Bound returns the most events behind a snapshot that a load folds when everything that was due is stored, and whether
// the policy promises one: [Every] does, [Or] with one that does, and [And] of nothing else.
func (p Policy) Bound() (events int, promised bool) {
	if b, ok := p.condition().(bounded); ok {
		return b.bound()
	}
	return 0, false
}

func (p Policy) condition() Condition {
	if p.When == nil {
		return every(0)
	}
	return p.When
}

// WithDefaults returns p with every empty field set but When and Revision. It is for repositories.
func (p Policy) WithDefaults() Policy {
	if p.Keep < 1 {
		p.Keep = 2
	}
	if p.Codec == nil {
		p.Codec = eventstore.Msgpack
	}
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	if p.Clock == nil {
		p.Clock = time.Now
	}
	if p.Queue < 1 {
		p.Queue = 128
	}
	return p
}
