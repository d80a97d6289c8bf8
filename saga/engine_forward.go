package saga

import (
	"fmt"

	"github.com/daybook-go/daybook/internal/flow"
)

// The timers of a step.
const (
	deadlineTimer     = "/deadline"
	retryTimer        = "/retry"
	undoTimer         = "/undo"
	undoDeadlineTimer = "/undo-deadline"
)

// advance begins what can begin.
func (c *course) advance() error {
	for _, entry := range c.m.entries {
		if c.i.State != flow.Running {
			return nil
		}
		done, err := c.enter(entry)
		if err != nil || !done {
			return err
		}
	}
	if c.i.State != flow.Running {
		return nil
	}
	return c.finish(flow.Completed)
}

// enter begins an entry of the list if it has not begun, and reports whether it is done.
func (c *course) enter(entry *entryPlan) (bool, error) {
	if entry.group && c.i.Step(entry.name) == nil {
		g := flow.Step{Name: entry.name, State: flow.Waiting, BeganAt: c.now}
		if entry.cond != nil && !entry.cond(c.i.Data) {
			g.State, g.EndedAt = flow.Skipped, c.now
			c.note("skipped", entry.name, "its condition is false")
		}
		c.i.Steps = append(c.i.Steps, g)
	}
	if entry.group && c.i.Step(entry.name).State != flow.Waiting {
		for _, step := range entry.steps {
			c.dropEarly(step, "its group was left out")
		}
		return true, nil
	}
	// All members begin, then it is seen which are done: one may end at once what the others have not begun.
	for _, step := range entry.steps {
		if c.i.State == flow.Running && c.i.Step(step.name) == nil {
			if err := c.begin(step); err != nil {
				return false, err
			}
		}
	}
	for _, step := range entry.steps {
		if s := c.i.Step(step.name); c.i.State != flow.Running || s.State != flow.Done && s.State != flow.Skipped {
			return false, nil
		}
	}
	if entry.group {
		g := c.i.Step(entry.name)
		g.State, g.EndedAt = flow.Done, c.now
	}
	return true, nil
}

func (c *course) begin(step *stepPlan) error {
	if step.cond != nil && !step.cond(c.i.Data) {
		c.i.Steps = append(c.i.Steps, flow.Step{Name: step.name, State: flow.Skipped, BeganAt: c.now, EndedAt: c.now})
		c.note("skipped", step.name, "its condition is false")
		c.dropEarly(step, "its step was left out")
		return nil
	}
	c.i.Steps = append(c.i.Steps, flow.Step{Name: step.name, State: flow.Waiting, BeganAt: c.now})
	s := c.i.Step(step.name)
	kept, answer, err := c.takeEarly(step)
	if err != nil {
		return err
	}
	if kept == "" {
		return c.sendDo(step, s, true)
	}
	c.setDeadline(step)
	switch answer {
	case succeeded:
		return c.beDone(step, s, "answered", kept+", which came before the step began")
	case refused:
		return c.refuse(step, s, kept)
	default:
		return c.fail(step, s, kept)
	}
}

// sendDo sends the next intent. fresh: its time begins now.
func (c *course) sendDo(step *stepPlan, s *flow.Step, fresh bool) error {
	s.Intent++
	s.State, s.SentAt, s.Carried = flow.Waiting, c.now, false
	to, payload := step.send.make(c.i.Data)
	sent, err := c.command(flow.Command{Step: step.name, Direction: flow.Do, Intent: s.Intent}, to, payload)
	if err != nil {
		return err
	}
	s.Sent = sent
	c.note("sent", step.name, sent)
	c.cancelRetries(s)
	if fresh {
		c.setDeadline(step)
	}
	return nil
}

func (c *course) setDeadline(step *stepPlan) {
	if step.deadline <= 0 {
		return
	}
	does := "undoes " + step.name + ", then compensates"
	if step.behind {
		does = "undoes " + step.name + ", then tries it again or reports it"
	}
	c.timer(flow.Timer{Name: step.name + deadlineTimer, After: step.deadline, Does: does})
}

// succeed ends a step that was done, and goes on.
func (c *course) succeed(step *stepPlan, s *flow.Step, kind, text string) error {
	if err := c.beDone(step, s, kind, text); err != nil {
		return err
	}
	if c.i.State == flow.Running {
		return c.advance()
	}
	return nil
}

func (c *course) beDone(step *stepPlan, s *flow.Step, kind, text string) error {
	s.Place = c.nextPlace()
	s.State, s.EndedAt, s.Text = flow.Done, c.now, ""
	c.over(step, s)
	c.unstick(step.name)
	c.note(kind, step.name, text)
	return nil
}

// over takes back what is under way for a step that has ended.
func (c *course) over(step *stepPlan, s *flow.Step) {
	c.cancelTimes(step, s)
	if s.Intent > 0 {
		c.closeDo(step.name, s.Intent)
	}
}

// cancelTimes cancels the timers of a step's do, as far as they may be set.
func (c *course) cancelTimes(step *stepPlan, s *flow.Step) {
	if step.deadline > 0 {
		c.cancel(step.name + deadlineTimer)
	}
	c.cancelRetries(s)
}

func (c *course) cancelRetries(s *flow.Step) {
	if s.Attempts > 0 {
		c.cancel(s.Name + retryTimer)
	}
	if s.UndoAttempts > 0 {
		c.cancel(s.Name + undoTimer)
	}
}

// refuse takes a step as definitely not done, for good.
func (c *course) refuse(step *stepPlan, s *flow.Step, text string) error {
	s.State, s.Text, s.EndedAt = flow.Refused, text, c.now
	c.over(step, s)
	c.unstick(step.name) // somebody may have said so of one whose outcome was unknown
	c.note("refused", step.name, text)
	switch {
	case c.i.State != flow.Running:
		s.Place = 0
		return c.undoNext()
	case step.behind:
		c.stick(step.name, flow.DeadLetter, text)
		return nil
	}
	return c.compensate("")
}

// fail takes an intent as definitely not done.
func (c *course) fail(step *stepPlan, s *flow.Step, text string) error {
	if c.i.State != flow.Running {
		return c.refuse(step, s, text)
	}
	s.Attempts++
	s.Text = text
	if !step.mayRetry(s.Attempts) {
		if s.Attempts > 1 {
			text = fmt.Sprintf("failed %d times, at last: %s", s.Attempts, text)
		}
		return c.refuse(step, s, text)
	}
	c.note("failed", step.name, text)
	c.later(step, s)
	return nil
}

// later plans the next intent of a step that is definitely not done.
func (c *course) later(step *stepPlan, s *flow.Step) {
	s.State = flow.RetryLater
	if s.Intent > 0 {
		c.closeDo(step.name, s.Intent)
	}
	wait := pause(step.retry, s.Attempts, flow.CommandID(c.i.Ref, step.name, flow.Do, s.Intent))
	c.timer(flow.Timer{Name: step.name + retryTimer, After: wait, Does: "sends " + step.name + " again"})
	c.note("retry", step.name, fmt.Sprintf("attempt %d follows in %v", s.Attempts+1, wait))
}

// unknown takes an intent whose command was given up: nothing was stored, and outside nobody knows.
func (c *course) unknown(step *stepPlan, s *flow.Step, text string) error {
	s.Text = text
	if c.i.State != flow.Running {
		c.closeDo(step.name, s.Intent)
		c.note("failed", step.name, text)
		return nil // it is undone when its turn comes
	}
	switch {
	case step.undo.isSet():
	case step.pivot && step.nothingToUndo == "":
		// Whether to go on or back depends on what became of it, which only people can find out.
		s.State = flow.Refused
		c.over(step, s)
		c.note("failed", step.name, text)
		c.stick(step.name, flow.DeadLetter, text)
		return nil
	default:
		return c.fail(step, s, text)
	}
	s.Attempts++
	s.Again = step.mayRetry(s.Attempts)
	c.note("failed", step.name, text)
	if !s.Again && !step.behind {
		return c.compensate(step.name)
	}
	if !s.Again {
		c.i.Extra[whyExtra+step.name] = flow.DeadLetter
	}
	return c.sendUndo(step, s, true)
}
