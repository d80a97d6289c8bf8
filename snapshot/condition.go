package snapshot

import (
	"slices"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Condition decides whether a snapshot is due. It is asked after a command has been committed, on the command's path,
// by many goroutines at once; it must be quick, and must depend on nothing but the facts.
type Condition interface {
	Due(f Facts) bool
}

// Facts are what a [Condition] decides on.
type Facts struct {
	// Last is the version of the last snapshot that is known, one that is about to be stored included; 0: none.
	Last eventstore.Version
	// Version is that of the stream after the command.
	Version eventstore.Version
	// LastAt is when the last snapshot was taken or, without one, when the first event was recorded that was read. It is
	// zero when neither is known.
	LastAt time.Time
	// Now is the present by Policy.Clock.
	Now time.Time
	// Replayed is how many events a load had to fold for the state that the command decided on; when states are kept in
	// memory, the most since the last snapshot.
	Replayed int
	// Events are the names of the types of the events since the last snapshot, those of the command included, each once.
	// It may have some of before the snapshot when that was taken beside other commands.
	Events []string
}

// bounded is a condition that promises how long the tail behind a snapshot is.
type bounded interface {
	bound() (events int, promised bool)
}

type every int

func (n every) Due(f Facts) bool { return n > 0 && f.Version-f.Last >= eventstore.Version(n) }

func (n every) bound() (int, bool) { return max(int(n)-1, 0), n > 0 }

type after time.Duration

func (d after) Due(f Facts) bool {
	return d > 0 && !f.LastAt.IsZero() && f.Now.Sub(f.LastAt) >= time.Duration(d)
}

type whenReplayed int

func (n whenReplayed) Due(f Facts) bool { return n > 0 && f.Replayed >= int(n) }

type onEvent []string

func (names onEvent) Due(f Facts) bool {
	return slices.ContainsFunc(f.Events, func(name string) bool { return slices.Contains(names, name) })
}

type or []Condition

func (all or) Due(f Facts) bool {
	return slices.ContainsFunc(all, func(c Condition) bool { return c.Due(f) })
}

// bound is the smallest: one of the conditions is enough.
func (all or) bound() (least int, promised bool) {
	for _, c := range all {
		if b, ok := c.(bounded); ok {
			if n, ok := b.bound(); ok && (!promised || n < least) {
				least, promised = n, true
			}
		}
	}
	return least, promised
}

type and []Condition

func (all and) Due(f Facts) bool {
	return !slices.ContainsFunc(all, func(c Condition) bool { return !c.Due(f) })
}

// bound is the greatest, if all have one.
func (all and) bound() (most int, promised bool) {
	for _, c := range all {
		b, ok := c.(bounded)
		if !ok {
			return 0, false
		}
		n, ok := b.bound()
		if !ok {
			return 0, false
		}
		most, promised = max(most, n), true
	}
	return most, promised
}
