package saga

import (
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// waits says since when an instance waits for an answer that none of its timers bounds, and since when something of it waits
// to be tried again; nil when nothing does. The manager keeps both in the row, where indexes find what [List] looks at: by
// them an instance that nothing wakes is found among very many that wait for a deadline.
func waits(m flow.Machine, i *flow.Instance) (answer, retry *time.Time) {
	if i.State.Over() {
		return nil, nil
	}
	first := func(at *time.Time, s *flow.Step) *time.Time {
		since := s.SentAt
		if since.IsZero() { // an answer that came before its step has failed it
			since = s.BeganAt
		}
		if since.IsZero() {
			since = i.StartedAt
		}
		if at == nil || since.Before(*at) {
			return &since
		}
		return at
	}
	for n := range i.Steps {
		switch s := &i.Steps[n]; s.State {
		case flow.Waiting, flow.Undoing:
			if (s.Intent > 0 || s.UndoIntent > 0) && !bounded(m, s) {
				answer = first(answer, s)
			}
		case flow.RetryLater, flow.UndoLater:
			retry = first(retry, s)
		}
	}
	return answer, retry
}

// bounded reports whether a timer ends the waiting of a step, if nothing else does. Those of a [Flow] are the user's.
func bounded(m flow.Machine, s *flow.Step) bool {
	p, ok := m.(*processMachine)
	if !ok {
		return false
	}
	step := p.byName[s.Name] // nil: the last command
	return step != nil && (s.State == flow.Undoing || step.deadline > 0)
}
