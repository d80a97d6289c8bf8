package saga

import (
	"fmt"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
)

// due takes a timer. One that came too late to be cancelled changes nothing.
func (c *course) due() error {
	slash := strings.LastIndexByte(c.in.Timer, '/')
	if slash < 0 || c.i.State.Over() {
		c.fx.Ignored++
		return nil
	}
	name, which := c.in.Timer[:slash], c.in.Timer[slash:]
	s, step := c.i.Step(name), c.m.byName[name]
	if step == nil && s != nil && which == retryTimer && s.State == flow.RetryLater {
		return c.sendEnd(s)
	}
	if s == nil || step == nil {
		c.fx.Ignored++
		return nil
	}
	switch {
	case which == retryTimer && s.State == flow.RetryLater && c.i.State == flow.Running:
		return c.sendDo(step, s, step.behind)
	case which == undoTimer && s.State == flow.UndoLater:
		return c.sendUndo(step, s, false)
	case which == undoDeadlineTimer && (s.State == flow.Undoing || s.State == flow.UndoLater):
		c.note("timer", name, "undoing it takes too long")
		c.stick(name, flow.ReplyOverdue, fmt.Sprintf("not confirmed as undone within %v", c.m.undoDeadline))
		return nil
	case which == deadlineTimer && c.i.State == flow.Running:
		return c.overdue(step, s)
	}
	c.fx.Ignored++
	return nil
}

// overdue takes the deadline of a step: what became of it is unknown.
func (c *course) overdue(step *stepPlan, s *flow.Step) error {
	text := fmt.Sprintf("no outcome within %v", step.deadline)
	switch s.State {
	case flow.Waiting, flow.RetryLater:
	case flow.Undoing, flow.UndoLater, flow.UndoFailed:
		if step.behind {
			c.fx.Ignored++
			return nil // it will be tried again, with a deadline of its own
		}
		c.note("timer", step.name, text)
		return c.compensate("")
	default:
		c.fx.Ignored++
		return nil
	}
	c.note("timer", step.name, text)
	s.Text = text
	if !step.behind {
		if s.State == flow.RetryLater && sealed(s) {
			return c.compensate("")
		}
		return c.compensate(step.name)
	}
	if s.State == flow.RetryLater {
		return c.sendDo(step, s, true)
	}
	s.Attempts++
	if s.Again = step.mayRetry(s.Attempts); !s.Again {
		c.i.Extra[whyExtra+step.name] = flow.ReplyOverdue
	}
	return c.sendUndo(step, s, true) // what has a deadline has an undo
}
