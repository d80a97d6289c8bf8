package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

// Unaffected says that a decision which produced `mine` stays right when events `by` came in between: the same decision,
// made after them, would have produced the same events. A command that meets such events, and no others, is appended
// behind them without being decided again.
//
//	aggregate.Unaffected(deposited, deposited, withdrawn) // a deposit is always right
//	aggregate.Unaffected(withdrawn, deposited)            // money that came in does no harm; another withdrawal may
//
// It has a direction, and it is a promise about every decision of the type's commands: a wrong one breaks a rule of the
// domain without an error. Nothing of an event of mine may come from the state either, such as a balance or a running
// number. Several declarations for the same mine add up. A decision with several kinds of events stays right only if each
// of them does.
//
// A command is decided again all the same when its [Work] has looked at the aggregate in another way: by asking for its
// State or Version, by a decision that was refused or had no events, or under [IfVersion]. What a decision copies out of
// the state into variables of the run is not noticed: use State for that.
func Unaffected(mine eventstore.AnyEventType, by ...eventstore.AnyEventType) TypeOption {
	return typeOptionFunc(func(c *typeConfig) { c.unaffected = append(c.unaffected, unaffectedRule{mine, by}) })
}

type unaffectedRule struct {
	mine eventstore.AnyEventType
	by   []eventstore.AnyEventType
}

// unaffected holds the wire names of the events that leave a decision right, by the wire name of what was decided.
type unaffected map[string]map[string]bool

func newUnaffected(catalog *eventstore.Catalog, rules []unaffectedRule) (unaffected, error) {
	u := unaffected{}
	for _, rule := range rules {
		if rule.mine == nil || len(rule.by) == 0 {
			return nil, fmt.Errorf("Unaffected names no events: say by which events which decision stays right, or leave it out")
		}
		mine := rule.mine.Name()
		if u[mine] == nil {
			u[mine] = map[string]bool{}
		}
		for _, by := range append(rule.by[:len(rule.by):len(rule.by)], rule.mine) {
			if by == nil || !catalog.Contains(by.Name()) {
				return nil, fmt.Errorf("Unaffected names %s, which is not in the catalog: add it there, or name an event of this type", nameOf(by))
			}
		}
		for _, by := range rule.by {
			u[mine][by.Name()] = true
		}
	}
	return u, nil
}

func nameOf(t eventstore.AnyEventType) string {
	if t == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", t.Name())
}

// stands reports whether a decision that produced all of mine stays right when an event came in between.
func (u unaffected) stands(mine []eventstore.EventData, by string) bool {
	for i := range mine {
		if !u[mine[i].Type][by] {
			return false
		}
	}
	return len(mine) > 0
}

// mergeable reports whether there are events behind which what is pending could be appended as it is.
func (m *memberOf[S, E]) mergeable() bool {
	if m.create || m.asked || !m.canMerge || len(m.pending) == 0 {
		return false
	}
	for i := range m.pending {
		if len(m.repository.typ.unaffected[m.pending[i].Type]) == 0 {
			return false
		}
	}
	return true
}

// merge reads what has come in between, and if it leaves the decisions right, puts what is pending behind it. False
// means that the aggregate must decide again. What was read is kept for that.
func (m *memberOf[S, E]) merge(ctx context.Context) (bool, error) {
	if !m.mergeable() {
		return false, nil
	}
	next, stands, err := m.readBehind(ctx)
	if err != nil {
		return false, err
	}
	m.setBase(next)
	if !stands {
		return false, nil
	}
	for i := range m.pending {
		event, err := m.repository.typ.decode(eventstore.RecordedEvent{EventData: m.pending[i], Stream: m.id, Version: next.version + eventstore.Version(i) + 1})
		if err != nil {
			return false, err
		}
		m.state = m.repository.typ.evolve(m.state, event)
	}
	return true, nil
}

// readBehind goes on from the state that was decided on, and reports whether every event that came in between leaves the
// decisions right.
func (m *memberOf[S, E]) readBehind(ctx context.Context) (next loaded[S], stands bool, err error) {
	from := m.base.version
	if from > 0 {
		state, err := m.aside.state.open()
		if err != nil {
			return next, false, err
		}
		next = loaded[S]{state: state, trail: m.aside.trail}
	}
	r, proved := m.repository, from == 0
	stands = true
	for recorded, err := range r.store.ReadStream(ctx, m.id, eventstore.Range{From: from}) {
		switch {
		case err != nil:
			return next, false, err
		case proved:
			if err := r.foldOne(&next, m.id, recorded); err != nil {
				return next, false, err
			}
			stands = stands && r.typ.unaffected.stands(m.pending, recorded.Type)
		case recorded.Version != from || recorded.ID != m.base.last:
			return next, false, errAnotherHistory
		default:
			proved = true
		}
	}
	if !proved {
		return next, false, errAnotherHistory
	}
	return next, stands && next.version > from, nil
}

// errAnotherHistory: the stream is not the one that was read before. The next run finds out what it is now.
var errAnotherHistory = errors.New("the stream has another history than when it was read")
