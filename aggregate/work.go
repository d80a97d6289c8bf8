package aggregate

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/daybook-go/daybook/eventstore"
)

// Work is one run of a unit of work. It is for the goroutine that runs it, and ends when run returns; using it later
// is an error that matches [ErrMisuse].
type Work struct {
	ctx       context.Context // of the Transact that made it; a Work lives no longer than that call
	store     Store
	operation string
	members   map[eventstore.StreamID]member
	order     []member // as first touched
	// aside holds what earlier runs have read: a keptState for each stream, of the type of its member.
	aside  map[eventstore.StreamID]any
	result []byte
	failed error // the first failure of the store, or misuse: the work cannot succeed any more
	over   atomic.Bool
}

// member is the part of an aggregate in a work that does not depend on its types.
type member interface {
	stream() eventstore.StreamID
	version() eventstore.Version // with what is pending
	write() (w eventstore.Write, touched bool)
	created() bool
	lane() (lane, bool)
	refusals() []Refusal
	// mergeable and merge are about appending what is pending behind what came in between; see [Unaffected].
	mergeable() bool
	merge(ctx context.Context) (bool, error)
	committed(ctx context.Context)
	forget()
}

// SetResult gives the transaction a result, which is found in the [Receipt]. With a key it is stored with the events, and
// a repeat returns it; at most 1 MiB. The last call of a run that succeeds counts. The bytes are copied.
func (w *Work) SetResult(data []byte) { w.result = append([]byte{}, data...) }

func (w *Work) fail(err error) error {
	if w.failed == nil {
		w.failed = err
	}
	return err
}

// writes returns what the members have pending, and what they have read, in the order in which they were first touched,
// and how many events that is.
func (w *Work) writes() (writes []eventstore.Write, events int) {
	for _, m := range w.order {
		if write, touched := m.write(); touched {
			writes = append(writes, write)
			events += len(write.Events)
		}
	}
	return writes, events
}

// versions are those of the touched members, as the work would have them.
func (w *Work) versions() map[eventstore.StreamID]eventstore.Version {
	versions := make(map[eventstore.StreamID]eventstore.Version, len(w.order))
	for _, m := range w.order {
		if _, touched := m.write(); touched {
			versions[m.stream()] = m.version()
		}
	}
	return versions
}

// place returns the lanes, in the order in which they are taken, and the streams of the touched members.
func (w *Work) place() (lanes []lane, streams []eventstore.StreamID) {
	for _, m := range w.order {
		if _, touched := m.write(); !touched {
			continue
		}
		streams = append(streams, m.stream())
		if l, ok := m.lane(); ok {
			lanes = append(lanes, l)
		}
	}
	// One order for all, so that commands that share several lanes do not wait for each other in a circle.
	slices.SortFunc(lanes, func(a, b lane) int { return strings.Compare(a.stream.String(), b.stream.String()) })
	return lanes, streams
}

func (w *Work) refusals() (all []Refusal) {
	for _, m := range w.order {
		all = append(all, m.refusals()...)
	}
	return all
}

func (w *Work) committed(ctx context.Context) {
	for _, m := range w.order {
		m.committed(ctx)
	}
}

// forget drops what repositories remember of the aggregates: after an error nobody should rely on it.
func (w *Work) forget() {
	for _, m := range w.order {
		m.forget()
	}
}

// behind puts the work behind the events that it met on a stream, if they leave what was decided right.
func (w *Work) behind(ctx context.Context, met eventstore.StreamID) bool {
	m := w.members[met]
	if m == nil {
		return false
	}
	merged, err := m.merge(ctx)
	return merged && err == nil // what went wrong is met again by the next run
}

// mergeable reports whether behind could succeed.
func (w *Work) mergeable(met eventstore.StreamID) bool {
	m := w.members[met]
	return m != nil && m.mergeable()
}

// same reports whether two values are one store. What a repository has can be compared; what Transact was given may not.
func same(a, b any) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && (t == nil || t.Comparable()) && a == b
}
