package sagatest

import (
	"fmt"
	"reflect"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
)

// ThenSends demands that exactly these commands were sent since the last When, in this order: those that do, undo, and the
// last command of the saga.
func (s *Scenario) ThenSends(payloads ...any) *Scenario {
	s.t.Helper()
	s.happened("ThenSends")
	sent := s.sent
	s.sent = nil
	got := make([]any, len(sent))
	for n, c := range sent {
		got[n] = c.Payload
	}
	if len(payloads) == 0 && len(got) == 0 {
		return s
	}
	if diff := gocmp.Diff(payloads, got, everything, cmpopts.EquateEmpty()); diff != "" {
		s.fatalf("ThenSends: other commands than expected (-want +got):\n%s", diff)
	}
	return s
}

// ThenSendsTo demands that exactly one command was sent since the last When, and to whom.
func (s *Scenario) ThenSendsTo(to string, payload any) *Scenario {
	s.t.Helper()
	sent := s.sent
	s.ThenSends(payload)
	if got := sent[0].Target; got != to {
		s.fatalf("ThenSendsTo: %T was sent to %q, want %q", payload, got, to)
	}
	return s
}

// ThenNothing demands that nothing was sent since the last When.
func (s *Scenario) ThenNothing() *Scenario {
	s.t.Helper()
	return s.ThenSends()
}

// ThenCompensates demands that these steps are undone by commands, one after the other in this order, and no others. Each
// undo is confirmed before the next is waited for. Steps that have nothing to undo are not named.
func (s *Scenario) ThenCompensates(steps ...string) *Scenario {
	s.t.Helper()
	s.happened("ThenCompensates")
	for _, step := range steps {
		undo := s.takeUndo()
		if undo == nil {
			s.fatalf("ThenCompensates: want an undo of %q, but none was sent%s", step, s.others())
		}
		if undo.Step != step {
			s.fatalf("ThenCompensates: want an undo of %q, got one of %q, %T%+v", step, undo.Step, undo.Payload, undo.Payload)
		}
		o, _ := s.open(step)
		s.replyTo("ThenCompensates", o, flow.ReplyDone, "")
	}
	if undo := s.takeUndo(); undo != nil {
		s.fatalf("ThenCompensates: %q is undone too, by %T%+v", undo.Step, undo.Payload, undo.Payload)
	}
	return s
}

// takeUndo looks at the undo that was sent, if the last thing that was sent is one.
func (s *Scenario) takeUndo() *flow.Command {
	for n, c := range s.sent {
		if c.Direction == flow.Undo {
			s.sent = append(s.sent[:n:n], s.sent[n+1:]...)
			return &c
		}
	}
	return nil
}

func (s *Scenario) others() string {
	if len(s.sent) == 0 {
		return ""
	}
	return ", only " + describe(s.sent)
}

// ThenCompleted demands that the saga is completed. Its last command is carried out first, if it waits for that.
func (s *Scenario) ThenCompleted() *Scenario {
	s.t.Helper()
	return s.ended("ThenCompleted", flow.Completed)
}

// ThenCompensated demands that the saga has ended, and everything is undone. Its last command is carried out first, if it
// waits for that; undos are not: see ThenCompensates.
func (s *Scenario) ThenCompensated() *Scenario {
	s.t.Helper()
	return s.ended("ThenCompensated", flow.Compensated)
}

func (s *Scenario) ended(name string, want flow.State) *Scenario {
	s.t.Helper()
	s.begun(name)
	if p := s.i.Step(string(want)); p != nil && p.State == flow.Waiting && !s.i.State.Over() {
		if n := len(s.sent); n > 0 && s.sent[n-1].Direction == flow.End {
			s.sent = s.sent[:n-1]
		}
		o, _ := s.open(string(want))
		s.replyTo(name, o, flow.ReplyDone, "")
	}
	if s.i.State != want {
		s.fatalf("%s: the saga is %s%s", name, s.i.State, stuckText(s.i))
	}
	return s
}

// ThenRunning demands that the saga has not ended, does not go back and is not stuck.
func (s *Scenario) ThenRunning() *Scenario {
	s.t.Helper()
	s.begun("ThenRunning")
	if s.i.State != flow.Running || s.i.Stuck.Reason != "" {
		s.fatalf("ThenRunning: the saga is %s%s", s.i.State, stuckText(s.i))
	}
	return s
}

// ThenStuck demands that the saga does not go on by itself, for that reason: "dead_letter", "reply_overdue" or
// "compensation_failed".
func (s *Scenario) ThenStuck(reason string) *Scenario {
	s.t.Helper()
	s.begun("ThenStuck")
	if s.i.Stuck.Reason != reason {
		s.fatalf("ThenStuck: want %q, but the saga is %s%s", reason, s.i.State, stuckText(s.i))
	}
	return s
}

func stuckText(i *flow.Instance) string {
	if i.Stuck.Reason == "" {
		return ""
	}
	return fmt.Sprintf(", stuck at %q (%s: %s)", i.Stuck.Step, i.Stuck.Reason, i.Stuck.Text)
}

// ThenState demands that the state is now want.
func (s *Scenario) ThenState(want any) *Scenario {
	s.t.Helper()
	s.begun("ThenState")
	if diff := gocmp.Diff(want, s.i.Data, everything, cmpopts.EquateEmpty()); diff != "" {
		s.fatalf("ThenState: another state than expected (-want +got):\n%s", diff)
	}
	return s
}

// ThenAwaits demands that text is in what the saga says that it waits for.
func (s *Scenario) ThenAwaits(text string) *Scenario {
	s.t.Helper()
	s.begun("ThenAwaits")
	if got := s.parts.Machine.Awaits(s.i); !strings.Contains(got, text) {
		s.fatalf("ThenAwaits: want %q in %q", text, got)
	}
	return s
}

// StateOf returns the state, to look at a part of it by hand. S is the type of the definition's state.
func StateOf[S any](s *Scenario) S {
	s.t.Helper()
	s.begun("StateOf")
	state, ok := s.i.Data.(S)
	if !ok {
		s.fatalf("StateOf: the state is a %T, not a %s", s.i.Data, reflect.TypeFor[S]())
	}
	return state
}

// Definition returns what the scenario is about.
func (s *Scenario) Definition() saga.Definition { return s.def }

func (s *Scenario) begun(name string) {
	s.t.Helper()
	if s.i == nil {
		s.fatalf("%s: no instance has begun", name)
	}
}

func (s *Scenario) happened(name string) {
	s.t.Helper()
	if !s.fresh {
		s.fatalf("%s: nothing has happened that could be looked at: call When first", name)
	}
}

// everything compares unexported fields too, where a type has no Equal method: a difference must not hide there.
var everything = gocmp.Exporter(func(reflect.Type) bool { return true })

func describe(commands []flow.Command) string {
	texts := make([]string, len(commands))
	for n, c := range commands {
		texts[n] = fmt.Sprintf("%T%+v", c.Payload, c.Payload)
	}
	return strings.Join(texts, ", ")
}

// story is what happened, for a test that fails.
func (s *Scenario) story() string {
	text := "\nwhat happened:\n" + strings.Join(s.lines, "\n")
	if len(s.lines) == 0 {
		text = "\nnothing has happened"
	}
	if s.i == nil {
		return text
	}
	text += fmt.Sprintf("\nat %s the saga is %s%s", "+"+s.now.Sub(StartedAt).String(), s.i.State, stuckText(s.i))
	if awaits := s.parts.Machine.Awaits(s.i); awaits != "" {
		text += " and waits for " + awaits
	}
	for name, due := s.nextTimer(); name != ""; name = "" {
		text += fmt.Sprintf("\nthe next timer, %s, is due at +%s and %s", name, due.Sub(StartedAt), s.does[name])
	}
	return text
}

func (s *Scenario) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("sagatest: "+format+"%s", append(args, s.story())...)
}
