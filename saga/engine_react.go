package saga

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// course is one reaction of an instance of a Process.
type course struct {
	*recorder
	m *processMachine
}

// event takes an event that was found for the instance.
func (c *course) event() error {
	e := c.in.Event
	step, answer, ok := c.answerOf(e.Type)
	if !ok {
		if _, starts := c.m.starts[e.Type]; starts {
			c.ignore("", "the instance is under way already: "+e.Type)
		} else {
			c.ignore(c.in.Origin.Step, "no answer that is waited for: "+e.Type)
		}
		return nil
	}
	s := c.i.Step(step.name)
	if s == nil {
		return c.early(step, answer, e.Type)
	}
	intent := cmp.Or(c.in.Origin.Intent, s.Intent)
	if answer.outcome == succeeded {
		return c.success(step, s, intent, answer)
	}
	// Of the pivot whose command was given up nobody knew what became of it; now it is known.
	nobodyKnew := s.State == flow.Refused && c.i.State == flow.Running && !step.behind
	if intent != s.Intent || s.State != flow.Waiting && !nobodyKnew {
		c.ignore(step.name, fmt.Sprintf("%s, when the step was %s", e.Type, s.State))
		return nil
	}
	if err := c.fold(answer); err != nil {
		return err
	}
	if nobodyKnew {
		s.EndedAt = time.Time{}
		c.unstick(step.name)
	}
	if answer.outcome == refused {
		return c.refuse(step, s, e.Type)
	}
	return c.fail(step, s, e.Type)
}

// answerOf returns the step that an event answers: that of the command that caused it, else the one that waits for it by key.
func (c *course) answerOf(wire string) (*stepPlan, answerPlan, bool) {
	if c.in.Origin.Direction == flow.Do {
		if step, ok := c.m.byName[c.in.Origin.Step]; ok {
			if answer, ok := step.answers[wire]; ok {
				return step, answer, true
			}
		}
	}
	if c.in.ByKey {
		if step, ok := c.m.byKey[wire]; ok {
			// The command that caused it, if any, is that of another step.
			c.in.Origin = flow.Origin{}
			return step, step.answers[wire], true
		}
	}
	return nil, answerPlan{}, false
}

// AnsweredBy returns the steps whose last command an event may answer.
func (m *processMachine) AnsweredBy(i *flow.Instance, wire string) []string {
	var names []string
	for _, step := range m.steps {
		if _, ok := step.answers[wire]; ok {
			if s := i.Step(step.name); s != nil && s.Intent > 0 {
				names = append(names, step.name)
			}
		}
	}
	return names
}

// fold takes an event into the state.
func (c *course) fold(a answerPlan) (err error) {
	c.i.Data, err = c.folded(a)
	return err
}

func (c *course) folded(a answerPlan) (any, error) { return a.fold(c.i.Data, c.in.Payload, c.in.Event) }

// success takes an event, or a reply, that says that an intent of a step was done.
func (c *course) success(step *stepPlan, s *flow.Step, intent int, answer answerPlan) error {
	if intent < s.Intent {
		return c.stray(step, s, intent, answer)
	}
	open := s.State == flow.Waiting || s.State == flow.RetryLater && !sealed(s) ||
		s.State == flow.Refused && c.i.State == flow.Running && !sealed(s)
	switch {
	case s.State == flow.Done || s.State == flow.Skipped:
		c.ignore(step.name, fmt.Sprintf("%s, when the step was %s", c.said(), s.State))
		return nil
	case !open:
		return c.late(step, s, answer)
	}
	if err := c.fold(answer); err != nil {
		return err
	}
	return c.succeed(step, s, "answered", c.said())
}

// said is what says that a step was done.
func (c *course) said() string {
	if c.in.Event != nil {
		return c.in.Event.Type
	}
	return "carried out"
}

// sealed reports whether the last intent was undone, or is being undone.
func sealed(s *flow.Step) bool { return s.UndoIntent > 0 && s.Undoes >= max(1, s.Intent) }

// reply takes the end of a command.
func (c *course) reply() error {
	r, o := c.in.Reply, c.in.Origin
	text := replyText(r)
	if o.Direction == flow.End {
		return c.endReply(text)
	}
	step := c.m.byName[o.Step]
	s := c.i.Step(o.Step)
	if step == nil || s == nil {
		c.ignore(o.Step, "the reply is to no step of this version: "+text)
		return nil
	}
	if o.Direction == flow.Undo {
		return c.undoReply(step, s, text)
	}
	if r.State == flow.ReplyDone {
		return c.carried(step, s)
	}
	if o.Intent != s.Intent {
		c.fx.Ignored++
		return nil
	}
	if s.State != flow.Waiting {
		c.fx.Ignored++
		return nil
	}
	if r.State == flow.ReplyFailed {
		return c.unknown(step, s, text)
	}
	return c.refuse(step, s, text)
}

// carried takes a do that was carried out. Where no event says so that is the success, however late it comes.
func (c *course) carried(step *stepPlan, s *flow.Step) error {
	last := c.in.Origin.Intent == s.Intent
	again := last && (s.Carried || s.State == flow.Done)
	s.Carried = s.Carried || last
	switch {
	case again:
		c.fx.Ignored++
		return nil
	case !step.fromReply:
		if !last {
			c.fx.Ignored++
		}
		return nil
	}
	unchanged := func(state, _ any, _ *eventstore.RecordedEvent) (any, error) { return state, nil }
	return c.success(step, s, c.in.Origin.Intent, answerPlan{outcome: succeeded, fold: unchanged})
}

// replyText is the receiver's own words.
func replyText(r *flow.Reply) string {
	text := string(r.State)
	if r.Code != "" {
		text += " (" + r.Code + ")"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// typeName is what people call a payload.
func typeName(payload any) string {
	if payload == nil {
		return "nothing"
	}
	return reflect.TypeOf(payload).Name()
}

func addressed(name, to string) string {
	if to == "" {
		return name
	}
	return name + " to " + to
}
