package saga

import (
	"fmt"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// What a Process keeps beside its steps: each is followed by the name of a step. Part of the stored form.
const (
	earlyExtra    = "early:"    // an answer by key that came before its step began
	lateExtra     = "late:"     // an answer came while it was being undone: it is undone once more
	stuckExtra    = "stuck:"    // why it does not go on: a reason and a text
	standingExtra = "standing:" // a timer, not a step, that was given up: why
	whyExtra      = "why:"      // what is reported when it is undone, behind the pivot
)

// compensate turns the instance around. last is a step whose outcome is unknown and which is undone first; empty: none.
func (c *course) compensate(last string) error {
	c.i.State = flow.Compensating
	if err := c.takeEarlySuccesses(); err != nil {
		return err
	}
	unknown := func(s *flow.Step) {
		s.State, s.Place = flow.Waiting, c.nextPlace()
		c.cancelTimes(c.m.byName[s.Name], s)
	}
	for n := range c.i.Steps {
		s := &c.i.Steps[n]
		step := c.m.byName[s.Name]
		if step == nil && s.State == flow.Waiting {
			s.State = flow.Undoing // a group, which has no commands of its own
		}
		if step == nil || s.Name == last {
			continue
		}
		switch s.State {
		case flow.Waiting:
			unknown(s)
		case flow.RetryLater:
			if s.State = flow.Refused; sealed(s) {
				s.State = flow.Undone
			}
			s.EndedAt = c.now
			c.over(step, s)
		case flow.Undoing, flow.UndoLater, flow.UndoFailed:
			s.Again = false
			if step.deadline > 0 {
				c.cancel(s.Name + deadlineTimer)
			}
		}
	}
	if s := c.i.Step(last); s != nil {
		unknown(s)
	}
	return c.undoNext()
}

func (c *course) nextPlace() int {
	last := 0
	for _, s := range c.i.Steps {
		last = max(last, s.Place)
	}
	return last + 1
}

// undoNext undoes the step that was done last, unless one is being undone.
func (c *course) undoNext() error {
	for c.i.State == flow.Compensating {
		var next *flow.Step
		for n := range c.i.Steps {
			s := &c.i.Steps[n]
			if c.m.byName[s.Name] == nil {
				continue
			}
			switch s.State {
			case flow.Undoing, flow.UndoLater, flow.UndoFailed:
				return nil
			case flow.Done, flow.Waiting:
				if next == nil || s.Place > next.Place {
					next = s
				}
			}
		}
		if next == nil {
			return c.finish(flow.Compensated)
		}
		step := c.m.byName[next.Name]
		if step.undo.isSet() {
			return c.sendUndo(step, next, true)
		}
		next.State, next.EndedAt = flow.Undone, c.now
		c.over(step, next)
		c.note("undone", step.name, "nothing to undo: "+step.nothingToUndo)
	}
	return nil
}

// sendUndo sends the next intent of a step's undo. fresh: its time and its attempts begin now.
func (c *course) sendUndo(step *stepPlan, s *flow.Step, fresh bool) error {
	s.Undos++
	s.UndoIntent = s.Undos
	s.Undoes = max(1, s.Intent)
	s.State, s.SentAt = flow.Undoing, c.now
	c.cancelRetries(s)
	if fresh {
		s.UndoAttempts = 0
		delete(c.i.Extra, lateExtra+step.name)
	}
	sent, err := c.undoCommand(step, s.UndoIntent, s.Undoes, c.i.Data)
	if err != nil {
		return err
	}
	s.Sent = sent
	c.closeDo(step.name, s.Undoes)
	if step.deadline > 0 && (c.i.State != flow.Running || step.behind) {
		c.cancel(step.name + deadlineTimer)
	}
	if fresh {
		c.timer(flow.Timer{
			Name: step.name + undoDeadlineTimer, After: c.m.undoDeadline, Does: "reports that " + step.name + " is not undone",
		})
	}
	return nil
}

func (c *course) undoCommand(step *stepPlan, intent, undoes int, state any) (string, error) {
	to, payload := step.undo.make(state)
	sent, err := c.command(flow.Command{
		Step: step.name, Direction: flow.Undo, Intent: intent, Undoes: flow.CommandID(c.i.Ref, step.name, flow.Do, undoes),
	}, to, payload)
	if err == nil {
		c.note("undo", step.name, sent)
	}
	return sent, err
}

// undoReply takes the end of an undo.
func (c *course) undoReply(step *stepPlan, s *flow.Step, text string) error {
	if c.in.Origin.Intent != s.UndoIntent || s.State != flow.Undoing {
		c.fx.Ignored++
		return nil
	}
	switch c.in.Reply.State {
	case flow.ReplyDone:
		return c.undone(step, s, text)
	case flow.ReplyRefused:
		return c.undoFailed(step, s, "undoing was "+text) // refused, says the text
	}
	s.UndoAttempts++
	s.Text = text
	if r := c.m.undoRetry; !r.Forever && s.UndoAttempts >= r.Attempts {
		return c.undoFailed(step, s, fmt.Sprintf("undoing failed %d times, at last: %s", s.UndoAttempts, text))
	}
	s.State = flow.UndoLater
	wait := pause(c.m.undoRetry, s.UndoAttempts, flow.CommandID(c.i.Ref, step.name, flow.Undo, s.UndoIntent))
	c.timer(flow.Timer{Name: step.name + undoTimer, After: wait, Does: "undoes " + step.name + ", again"})
	c.note("failed", step.name, "undoing: "+text)
	c.note("retry", step.name, fmt.Sprintf("attempt %d to undo it follows in %v", s.UndoAttempts+1, wait))
	return nil
}

func (c *course) undoFailed(step *stepPlan, s *flow.Step, text string) error {
	s.State, s.Text = flow.UndoFailed, text
	c.cancelRetries(s)
	c.cancel(step.name + undoDeadlineTimer)
	c.stick(step.name, flow.CompensationFailed, text)
	return nil
}

// undone goes on after a step was undone.
func (c *course) undone(step *stepPlan, s *flow.Step, text string) error {
	c.cancelRetries(s)
	c.cancel(step.name + undoDeadlineTimer)
	c.unstick(step.name)
	c.note("undone", step.name, text)
	if _, late := c.i.Extra[lateExtra+step.name]; late {
		return c.sendUndo(step, s, true)
	}
	if c.i.State == flow.Running && s.Again {
		s.Again = false
		c.later(step, s)
		return nil
	}
	s.State, s.EndedAt = flow.Undone, c.now
	if c.i.State != flow.Running {
		return c.undoNext()
	}
	reason := c.i.Extra[whyExtra+step.name]
	if reason == "" {
		reason = flow.DeadLetter
	}
	c.stick(step.name, reason, "it is undone, and was tried as often as it may be: "+s.Text)
	return nil
}

// late takes a success of a step that is being undone, was undone, or was refused: it is undone once more, now that the state
// knows what happened.
func (c *course) late(step *stepPlan, s *flow.Step, answer answerPlan) error {
	if err := c.fold(answer); err != nil {
		return err
	}
	c.note("late", step.name, fmt.Sprintf("%s, when the step was %s", c.said(), s.State))
	if !step.undo.isSet() {
		return nil
	}
	switch s.State {
	case flow.Undoing:
		c.i.Extra[lateExtra+step.name] = "1" // one undo at a time
	case flow.UndoLater, flow.UndoFailed: // the next undo is made of the new state
	case flow.RetryLater:
		s.Again = true
		return c.sendUndo(step, s, true)
	default:
		if c.i.State == flow.Running {
			return c.sendUndo(step, s, true)
		}
		c.i.State = flow.Compensating // also after the end
		s.State, s.Place, s.EndedAt = flow.Done, c.nextPlace(), time.Time{}
		return c.undoNext()
	}
	return nil
}

// stray takes a success of an intent that another one has replaced. The intent was undone or definitely not done, so its undo is
// sent once more, at any time, for what is outside had not told the truth. The state goes on with what the later intent brings.
func (c *course) stray(step *stepPlan, s *flow.Step, intent int, answer answerPlan) error {
	text := fmt.Sprintf("%s of attempt %d, when the step was %s", c.said(), intent, s.State)
	if !step.undo.isSet() {
		c.ignore(step.name, text)
		return nil
	}
	c.note("late", step.name, text)
	state, err := c.folded(answer)
	if err != nil {
		return err
	}
	s.Undos++
	_, err = c.undoCommand(step, s.Undos, intent, state)
	return err
}
