package saga

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// Effects record what a reaction wants. Nothing happens before the transaction of the reaction commits, and everything
// then. They are for the goroutine of the reaction, while it runs.
//
// What cannot be recorded (a name that is malformed, a timer that nothing reacts to, a payload that the bus does not know)
// makes the whole reaction fail when it has returned: the event is set aside, as with any other error.
type Effects struct {
	*recorder
	m   *flowMachine
	err error
	end flow.State
}

// Now is when the reaction takes place, in UTC: use it in place of time.Now.
func (fx *Effects) Now() time.Time { return fx.now }

// Command is the name of the command that caused the event, or is replied to; empty when it is none of this instance.
func (fx *Effects) Command() string { return fx.in.Origin.Step }

// Send sends a command. name tells the commands of an instance apart; it has the form of a step's name. When a name is used
// again, that is another command, with an id of its own; to keep one from being sent twice, remember it in the state.
func (fx *Effects) Send(name, to string, payload any) {
	s := fx.named(name)
	if s == nil {
		return
	}
	s.Intent++
	s.State, s.SentAt, s.BeganAt, s.EndedAt, s.Carried, s.Text = flow.Waiting, fx.now, fx.now, time.Time{}, false, ""
	fx.unstick(name)
	sent, err := fx.command(flow.Command{Step: name, Direction: flow.Do, Intent: s.Intent}, to, payload)
	if err != nil {
		fx.fail(err)
		return
	}
	s.Sent = sent
	fx.note("sent", name, sent)
}

// Undo sends the command that undoes the last one of that name. It names its id, so that its handler finds it in
// bus.CommandFrom(ctx).Undoes, and that one is not carried out any more if it has not been.
func (fx *Effects) Undo(name, to string, payload any) {
	s := fx.i.Step(name)
	if s == nil || s.Intent == 0 {
		fx.fail(fmt.Errorf("saga: %s: undo %q: no such command was sent", fx.i.Ref, name))
		return
	}
	s.UndoIntent++
	s.State, s.SentAt, s.Undoes = flow.Undoing, fx.now, s.Intent
	fx.unstick(name)
	sent, err := fx.command(flow.Command{
		Step: name, Direction: flow.Undo, Intent: s.UndoIntent, Undoes: flow.CommandID(fx.i.Ref, name, flow.Do, s.Intent),
	}, to, payload)
	if err != nil {
		fx.fail(err)
		return
	}
	s.Sent = sent
	fx.closeDo(name, s.Intent)
	fx.note("undo", name, sent)
}

// After sets a timer, in place of one of that name: its [ReactTimer] is called when d has passed.
func (fx *Effects) After(name string, d time.Duration) {
	if len(fx.m.timers[name]) == 0 {
		fx.fail(fmt.Errorf("saga: %s: timer %q: nothing reacts to it: add a ReactTimer", fx.i.Ref, name))
		return
	}
	fx.timer(flow.Timer{Name: name, After: max(0, d), Does: "reacts to " + name})
}

// Cancel takes a timer back: it does not fire any more when the reaction has committed. One that is not set is harmless, and
// nothing says so, for only the transaction finds out: one that has fired is in the history, and its reaction came before
// this one. A name that no [ReactTimer] has is never that of a timer, and a line of the history says so.
func (fx *Effects) Cancel(name string) {
	if len(fx.m.timers[name]) == 0 {
		fx.note("ignored", "", fmt.Sprintf("cancel timer %q: it is not set, for nothing reacts to it", name))
	}
	fx.cancel(name)
}

// Complete ends the instance: it did what it was for.
func (fx *Effects) Complete() { fx.end = flow.Completed }

// Compensated ends the instance: what it had done is undone.
func (fx *Effects) Compensated() { fx.end = flow.Compensated }

// Stuck reports that the instance does not go on by itself, and why, until a command of that name is sent again or the
// instance ends.
func (fx *Effects) Stuck(name, why string) {
	if fx.named(name) != nil {
		fx.stick(name, flow.DeadLetter, why)
	}
}

func (fx *Effects) named(name string) *flow.Step {
	if !stepForm.MatchString(name) || reserved(name) {
		fx.fail(fmt.Errorf("saga: %s: command %q: use 1 to 48 of a-z, 0-9 and dashes, and neither completed nor compensated", fx.i.Ref, name))
		return nil
	}
	if s := fx.i.Step(name); s != nil {
		return s
	}
	fx.i.Steps = append(fx.i.Steps, flow.Step{Name: name, BeganAt: fx.now})
	return fx.i.Step(name)
}

func (fx *Effects) fail(err error) { fx.err = cmp.Or(fx.err, err) }

// run calls reactions one after the other.
func (fx *Effects) run(reactions []reactionPlan, in reacted) error {
	for _, r := range reactions {
		state, err := r(fx.i.Data, in, fx)
		if err = errors.Join(err, fx.err); err != nil {
			return err
		}
		fx.i.Data = state
	}
	return nil
}

// finish ends the instance if a reaction said so.
func (fx *Effects) finish() {
	if fx.end != "" && !fx.i.State.Over() {
		fx.i.State = fx.end
		fx.cancelAll()
		for n := range fx.i.Steps {
			s := &fx.i.Steps[n]
			fx.unstick(s.Name)
			if s.State == flow.Waiting && s.Intent > 0 {
				fx.closeDo(s.Name, s.Intent)
			}
		}
		fx.note(string(fx.end), "", "")
	}
	fx.settle()
}
