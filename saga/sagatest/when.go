package sagatest

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
)

// maxTimers bounds how many timers fire while time passes: a saga that sets timers for ever is a fault. Tests have a smaller one.
var maxTimers = 10_000

// WhenDeadline lets time pass until the deadline of a step, or, while the step is being undone, that of its undo. What is
// due before fires before.
func (s *Scenario) WhenDeadline(step string) *Scenario {
	s.t.Helper()
	for _, name := range []string{step + "/deadline", step + "/undo-deadline"} {
		if due, ok := s.timers[name]; ok {
			return s.until("WhenDeadline", due, name)
		}
	}
	s.fatalf("WhenDeadline: step %q has no deadline at the moment: the timers are %s", step, s.timerNames())
	return s
}

// WhenTimer lets time pass until a timer fires that a reaction of a Flow has set.
func (s *Scenario) WhenTimer(name string) *Scenario {
	s.t.Helper()
	due, ok := s.timers[name]
	if !ok {
		s.fatalf("WhenTimer: %q is not set: the timers are %s", name, s.timerNames())
	}
	return s.until("WhenTimer", due, name)
}

// After lets time pass. Timers that are due meanwhile fire, in the order of their times; one with a [saga.Spread] at its end.
func (s *Scenario) After(d time.Duration) *Scenario {
	s.t.Helper()
	return s.until("After", s.now.Add(d), "")
}

// until fires what is due up to a time. last is the timer that ends it; empty: all of that time.
func (s *Scenario) until(name string, end time.Time, last string) *Scenario {
	s.t.Helper()
	s.settled(name)
	for fired := 0; ; fired++ {
		next, due := s.nextTimer()
		if next == "" || due.After(end) {
			break
		}
		if fired == maxTimers {
			s.fatalf("%s: %d timers have fired, and there is no end: the last was %q", name, fired, next)
		}
		if due.After(s.now) {
			s.now = due
		}
		delete(s.timers, next)
		in := s.input()
		in.Timer = next
		s.react(name, in)
		if next == last {
			break
		}
	}
	if end.After(s.now) {
		s.now = end
	}
	s.fresh = true
	return s
}

func (s *Scenario) nextTimer() (string, time.Time) {
	var found string
	for name, due := range s.timers {
		if found == "" || due.Before(s.timers[found]) || due.Equal(s.timers[found]) && name < found {
			found = name
		}
	}
	return found, s.timers[found]
}

func (s *Scenario) timerNames() string {
	if len(s.timers) == 0 {
		return "none"
	}
	names := make([]string, 0, len(s.timers))
	for name := range s.timers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(s.timers[a].Compare(s.timers[b]), strings.Compare(a, b))
	})
	return strings.Join(names, ", ")
}

// WhenReply lets the dispatcher tell how the carrying out of a step's last command ended: of its undo while it is being undone.
// The last command of the saga is that of the step "completed" or "compensated". reason is the receiver's words.
func (s *Scenario) WhenReply(step string, state saga.ReplyState, reason ...string) *Scenario {
	s.t.Helper()
	s.settled("WhenReply")
	o, ok := s.open(step)
	if !ok {
		s.fatalf("WhenReply: no command of step %q was sent", step)
	}
	s.replyTo("WhenReply", o, state, strings.Join(reason, " "))
	s.fresh = true
	return s
}

// open is the last command of a step.
func (s *Scenario) open(step string) (flow.Origin, bool) {
	if s.i == nil || s.i.Step(step) == nil {
		return flow.Origin{}, false
	}
	p := s.i.Step(step)
	o := flow.Origin{Step: step, Direction: flow.Do, Intent: p.Intent}
	switch {
	case step == string(flow.Completed) || step == string(flow.Compensated):
		o.Direction = flow.End
	case p.State == flow.Undoing:
		o.Direction, o.Intent = flow.Undo, p.UndoIntent
	}
	o.ID = flow.CommandID(s.i.Ref, step, o.Direction, o.Intent)
	return o, o.Intent > 0
}

func (s *Scenario) replyTo(name string, o flow.Origin, state saga.ReplyState, reason string) {
	s.t.Helper()
	in := s.input()
	in.Origin, in.Reply = o, &flow.Reply{Command: o.ID, State: state, Reason: reason, At: s.now}
	s.react(name, in)
}

// Action is what an operator decides; see the Action… constants.
type Action string

// What operators decide.
const (
	Retry  Action = flow.ActionRetry  // do the step now
	Answer Action = flow.ActionAnswer // take it as done
	Refuse Action = "refuse"          // take it as refused
	Cancel Action = flow.ActionCancel // undo everything
	Mark   Action = flow.ActionMark   // take the step as undone
)

// WhenOperator lets an operator act on a step; Cancel is about none, "".
func (s *Scenario) WhenOperator(action Action, step string) *Scenario {
	s.t.Helper()
	s.settled("WhenOperator")
	if err := s.operate(action, step); err != nil {
		s.fatalf("WhenOperator: %v", err)
	}
	s.fresh = true
	return s
}

// WhenOperatorIsRefused demands that an action cannot be taken, with text in the error.
func (s *Scenario) WhenOperatorIsRefused(action Action, step, text string) *Scenario {
	s.t.Helper()
	s.settled("WhenOperatorIsRefused")
	err := s.operate(action, step)
	refusal := (*saga.ActionError)(nil)
	switch {
	case !errors.As(err, &refusal):
		s.fatalf("WhenOperatorIsRefused: %s was done", action)
	case !strings.Contains(err.Error(), text):
		s.fatalf("WhenOperatorIsRefused: want %q in the error, got %q", text, err)
	}
	return s
}

func (s *Scenario) operate(action Action, step string) error {
	s.t.Helper()
	if s.i == nil {
		s.fatalf("WhenOperator: no instance has begun")
	}
	in := s.input()
	in.Action = &flow.Action{Name: string(action), Step: step, Actor: "operator", Reason: "the scenario says so"}
	if action == Refuse {
		in.Action.Name, in.Action.Refuse = flow.ActionAnswer, true
	}
	return s.tryReact("WhenOperator", in)
}
