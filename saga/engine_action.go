package saga

import (
	"fmt"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// refusal makes the error of an action that cannot be taken.
func (r *recorder) refusal(step, reason, remedy string) error {
	return &ActionError{
		Action: r.in.Action.Name, Saga: r.i.Saga, Key: r.i.Key, Run: r.i.Run, Step: step, Reason: reason, Remedy: remedy,
	}
}

// audited refuses what does not say who and why.
func (r *recorder) audited() error {
	if strings.TrimSpace(r.in.Action.Actor) == "" || strings.TrimSpace(r.in.Action.Reason) == "" {
		return r.refusal("", "it does not say who and why", "name the actor and the reason")
	}
	return nil
}

// acted writes the action into the history.
func (r *recorder) acted(step, text string) { r.note("action", step, r.in.Action.Name+": "+text) }

func (c *course) action() error {
	if err := c.audited(); err != nil {
		return err
	}
	a := c.in.Action
	if a.Name == flow.ActionCancel {
		return c.cancelled()
	}
	if c.i.State.Over() {
		return c.refusal(a.Step, "the instance is "+string(c.i.State), "nothing is left to do")
	}
	var fits func(*flow.Step) bool
	switch a.Name {
	case flow.ActionRetry:
		fits = c.retriable
	case flow.ActionAnswer:
		fits = c.answerable
	case flow.ActionMark:
		fits = func(s *flow.Step) bool {
			return c.m.byName[s.Name] != nil &&
				(s.State == flow.Undoing || s.State == flow.UndoLater || s.State == flow.UndoFailed)
		}
	default:
		return c.refusal(a.Step, "there is no such action", "use retry, answer, cancel or mark")
	}
	s, err := c.chosen(fits)
	if err != nil {
		return err
	}
	step := c.m.byName[s.Name] // nil: the last command
	switch {
	case a.Name == flow.ActionRetry && step == nil:
		return c.retryEnd(s)
	case a.Name == flow.ActionRetry:
		return c.retryStep(step, s)
	case a.Name == flow.ActionMark:
		s.Marked = true
		c.acted(s.Name, "it is taken as undone")
		delete(c.i.Extra, lateExtra+s.Name)
		return c.undone(step, s, "by hand")
	case step == nil:
		if a.Refuse || a.Event != nil {
			return c.refusal(s.Name, "the last command has no answers", "take it as carried out, or retry it")
		}
		s.Marked = true
		c.acted(s.Name, "it is taken as carried out")
		c.endDone(s, "by hand")
		return nil
	}
	return c.answerStep(step, s)
}

// chosen returns the step that the action is about: the one that is named, or the only one that fits.
func (c *course) chosen(fits func(*flow.Step) bool) (*flow.Step, error) {
	var found *flow.Step
	var names []string
	for n := range c.i.Steps {
		if s := &c.i.Steps[n]; fits(s) {
			found, names = s, append(names, s.Name)
		}
	}
	named := c.in.Action.Step
	remedy := "look at what it waits for"
	if len(names) > 0 {
		remedy = "name one of " + strings.Join(names, ", ")
	}
	if named == "" {
		if len(names) != 1 {
			return nil, c.refusal("", fmt.Sprintf("%d steps fit", len(names)), remedy)
		}
		return found, nil
	}
	s := c.i.Step(named)
	switch {
	case s == nil:
		return nil, c.refusal(named, "the step has not begun", remedy)
	case !fits(s):
		return nil, c.refusal(named, fmt.Sprintf("the step is %s, and the instance %s", s.State, c.i.State), remedy)
	}
	return s, nil
}

func (c *course) isEnd(s *flow.Step) bool {
	return c.m.byName[s.Name] == nil && (s.Name == string(flow.Completed) || s.Name == string(flow.Compensated))
}

func (c *course) retriable(s *flow.Step) bool {
	if c.m.byName[s.Name] == nil && !c.isEnd(s) {
		return false
	}
	switch s.State {
	case flow.Undoing, flow.UndoLater, flow.UndoFailed:
		return true
	case flow.Waiting, flow.RetryLater:
		return c.isEnd(s) || c.i.State == flow.Running
	case flow.Refused, flow.Undone:
		_, stuck := c.i.Extra[stuckExtra+s.Name]
		return stuck
	}
	return false
}

func (c *course) answerable(s *flow.Step) bool {
	if c.isEnd(s) {
		return s.State != flow.Done
	}
	if c.m.byName[s.Name] == nil || c.i.State != flow.Running {
		return false
	}
	_, stuck := c.i.Extra[stuckExtra+s.Name]
	return s.State == flow.Waiting || s.State == flow.RetryLater || stuck && (s.State == flow.Refused || s.State == flow.Undone)
}

func (c *course) retryStep(step *stepPlan, s *flow.Step) error {
	switch s.State {
	case flow.Waiting:
		if s.Intent == 0 {
			return c.refusal(s.Name, "nothing was sent yet", "wait for its answer")
		}
		c.acted(s.Name, "what was sent is sent again")
		c.again(s.Name, flow.Do, s.Intent, 0)
		c.note("sent again", s.Name, s.Sent)
		return nil
	case flow.RetryLater:
		c.acted(s.Name, "it is tried again now")
		return c.sendDo(step, s, step.behind)
	case flow.Undoing:
		c.acted(s.Name, "its undo is sent again")
		c.again(s.Name, flow.Undo, s.UndoIntent, s.Undoes)
		c.note("sent again", s.Name, s.Sent)
		c.unstick(s.Name)
		c.timer(flow.Timer{
			Name: s.Name + undoDeadlineTimer, After: c.m.undoDeadline, Does: "reports that " + s.Name + " is not undone",
		})
		return nil
	case flow.UndoLater, flow.UndoFailed:
		c.acted(s.Name, "it is undone now")
		c.unstick(s.Name)
		return c.sendUndo(step, s, true)
	}
	c.acted(s.Name, "it is tried once more")
	c.unstick(s.Name)
	s.Attempts, s.EndedAt = 0, time.Time{}
	return c.sendDo(step, s, true)
}

func (c *course) retryEnd(s *flow.Step) error {
	c.unstick(s.Name)
	if s.State == flow.Waiting {
		c.acted(s.Name, "the last command is sent again")
		c.again(s.Name, flow.End, s.Intent, 0)
		c.note("sent again", s.Name, s.Sent)
		return nil
	}
	c.acted(s.Name, "the last command is tried again now")
	return c.sendEnd(s)
}

// answerStep takes a step as answered, as somebody says.
func (c *course) answerStep(step *stepPlan, s *flow.Step) error {
	a := c.in.Action
	want := succeeded
	if a.Refuse {
		want = refused
	}
	if a.Refuse && step.behind {
		return c.refusal(s.Name, "it is behind the pivot, where nothing is refused", "answer it as succeeded, or retry it")
	}
	text := "by hand"
	if e := a.Event; e != nil {
		answer, ok := step.answers[e.Type]
		if !ok || answer.outcome != want {
			return c.refusal(s.Name, fmt.Sprintf("%q is no such answer of the step", e.Type), "give an event of one of its answers, or none")
		}
		payload := c.in.Payload
		if payload == nil {
			var err error
			if payload, err = c.m.Decode(*e); err != nil {
				return c.refusal(s.Name, "the event cannot be read: "+err.Error(), "give one that the catalog can decode")
			}
		}
		var err error
		if c.i.Data, err = answer.fold(c.i.Data, payload, e); err != nil {
			return err
		}
		text = e.Type + ", by hand"
	}
	s.Marked = true
	if a.Refuse {
		c.acted(s.Name, "it is taken as refused")
		return c.refuse(step, s, text)
	}
	c.acted(s.Name, "it is taken as done")
	return c.succeed(step, s, "answered", text)
}

// cancelled turns the instance around because somebody wants it.
func (c *course) cancelled() error {
	if step, reason, remedy := c.m.noWayBack(c.i); reason != "" {
		return c.refusal(step, reason, remedy)
	}
	c.acted("", "everything is undone")
	return c.compensate("")
}

// noWayBack says why an instance cannot be cancelled, and what to do instead; no reason: it can.
func (m *processMachine) noWayBack(i *flow.Instance) (step, reason, remedy string) {
	if i.State != flow.Running {
		return "", "the instance is " + string(i.State), "nothing is left to cancel"
	}
	if i.Step(string(flow.Completed)) != nil {
		return "", "all steps are done", "let it end"
	}
	for n := range i.Steps {
		s := &i.Steps[n]
		step := m.byName[s.Name]
		if step != nil && (step.behind || step.pivot && (s.State == flow.Done || s.State == flow.Skipped)) {
			return "", fmt.Sprintf("the pivot %q is done, and the saga does not go back any more", m.pivot.name), "retry what it waits for, or answer it"
		}
		if step == nil || !step.pivot || step.undo.isSet() || step.nothingToUndo != "" {
			continue
		}
		switch s.State {
		case flow.Waiting:
			return s.Name, "it was sent, and there is no way back from it", "wait for its outcome, or answer it"
		case flow.Refused: // the saga is not compensating, so nobody knows
			return s.Name, "nobody knows what became of it, and there is no way back from it", "say with answer how it ended: refused, and everything is undone"
		}
	}
	return "", "", ""
}

// onwardExtra is kept beside the steps of an instance that refuses to be cancelled: who explains it without knowing its
// definition does not advise that.
const onwardExtra = "onward:"

// onward notes whether an instance refuses to be cancelled.
func onward(m flow.Machine, i *flow.Instance) {
	refuses := false
	switch m := m.(type) {
	case *processMachine:
		_, reason, _ := m.noWayBack(i)
		refuses = reason != ""
	case *flowMachine:
		refuses = len(m.cancels) == 0
	case *afterMachine:
		refuses = i.Step(sendStep) != nil
	}
	switch {
	case !refuses || i.State.Over():
		delete(i.Extra, onwardExtra)
	case i.Extra == nil:
		i.Extra = map[string]string{onwardExtra: "1"}
	default:
		i.Extra[onwardExtra] = "1"
	}
}
