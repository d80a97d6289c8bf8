package saga

import (
	"fmt"

	"github.com/daybook-go/daybook/internal/flow"
)

// finish sends the last command, or ends the instance when there is none or it was carried out already.
func (c *course) finish(state flow.State) error {
	name := string(state)
	command := c.lastCommand(name)
	if s := c.i.Step(name); s != nil {
		if s.State == flow.Done {
			c.end(state)
		}
		return nil // it was sent before an answer came late
	}
	if !command.isSet() {
		c.end(state)
		return nil
	}
	c.i.Steps = append(c.i.Steps, flow.Step{Name: name, BeganAt: c.now})
	return c.sendEnd(c.i.Step(name))
}

func (c *course) lastCommand(name string) commandPlan {
	if name == string(flow.Completed) {
		return c.m.completed
	}
	return c.m.compensated
}

func (c *course) sendEnd(s *flow.Step) error {
	s.Intent++
	s.State, s.SentAt = flow.Waiting, c.now
	to, payload := c.lastCommand(s.Name).make(c.i.Data)
	sent, err := c.command(flow.Command{Step: s.Name, Direction: flow.End, Intent: s.Intent}, to, payload)
	if err != nil {
		return err
	}
	s.Sent = sent
	c.note("sent", s.Name, sent)
	c.cancelRetries(s)
	return nil
}

// endReply takes the end of the last command.
func (c *course) endReply(text string) error {
	s := c.i.Step(c.in.Origin.Step)
	if s == nil || c.in.Origin.Intent != s.Intent || s.State != flow.Waiting {
		c.fx.Ignored++
		return nil
	}
	switch c.in.Reply.State {
	case flow.ReplyDone:
		c.endDone(s, "carried out")
	case flow.ReplyRefused:
		s.State, s.Text = flow.Refused, text
		c.note("refused", s.Name, text)
		c.stick(s.Name, flow.DeadLetter, text)
	default:
		s.Attempts++
		s.State, s.Text = flow.RetryLater, text
		wait := pause(Retry{}, s.Attempts, flow.CommandID(c.i.Ref, s.Name, flow.End, s.Intent))
		c.timer(flow.Timer{Name: s.Name + retryTimer, After: wait, Does: "sends the last command again"})
		c.note("failed", s.Name, text)
		c.note("retry", s.Name, fmt.Sprintf("attempt %d follows in %v", s.Attempts+1, wait))
	}
	return nil
}

func (c *course) endDone(s *flow.Step, text string) {
	s.State, s.EndedAt, s.Text, s.Carried = flow.Done, c.now, "", true
	c.cancelRetries(s)
	c.unstick(s.Name)
	c.note("answered", s.Name, text)
	for n := range c.i.Steps {
		other := &c.i.Steps[n]
		if step := c.m.byName[other.Name]; step != nil && c.i.State == flow.Compensating && unfinished(other) {
			return // an answer came late, and its step is being undone: the end is after that
		}
	}
	c.end(flow.State(s.Name))
}

// unfinished reports whether a step is to be undone, or being undone.
func unfinished(s *flow.Step) bool {
	switch s.State {
	case flow.Refused, flow.Skipped, flow.Undone:
		return false
	}
	return true
}

func (c *course) end(state flow.State) {
	c.i.State = state
	c.cancelAll()
	for n := range c.i.Steps {
		s := &c.i.Steps[n]
		c.unstick(s.Name)
		if c.m.byName[s.Name] == nil && s.Name != string(state) && state == flow.Compensated && s.State != flow.Skipped {
			s.State, s.EndedAt = flow.Undone, c.now // a group
		}
	}
	c.note(string(state), "", "")
}
