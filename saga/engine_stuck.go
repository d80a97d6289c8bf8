package saga

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/retry"
)

// stick says why a step does not go on by itself.
func (r *recorder) stick(step, reason, text string) {
	r.i.Extra[stuckExtra+step] = reason + "\n" + text
	r.note("stuck", step, reason+": "+text)
}

func (r *recorder) unstick(step string) { delete(r.i.Extra, stuckExtra+step) }

// settle derives what the instance is stuck at from its steps, the first in order that is, and from the timers that were
// given up.
func (r *recorder) settle() {
	r.standing()
	for n := range r.i.Steps {
		name := r.i.Steps[n].Name
		if kept, ok := r.i.Extra[stuckExtra+name]; ok {
			reason, text, _ := strings.Cut(kept, "\n")
			r.stuckAt(reason, name, text)
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.i.Extra)) {
		if strings.HasPrefix(name, standingExtra) {
			r.stuckAt(flow.DeadLetter, "", r.i.Extra[name])
			return
		}
	}
	// What the manager has put there is its own.
	if r.i.Stuck.Reason != flow.Paused && r.i.Stuck.Reason != flow.HandlerMissing {
		r.i.Stuck = flow.Stuck{}
	}
}

func (r *recorder) stuckAt(reason, step, text string) {
	was := r.i.Stuck
	if was.Reason != reason || was.Step != step || was.Text != text {
		r.i.Stuck = flow.Stuck{Reason: reason, Step: step, Text: text, Since: r.now}
	}
}

// standing keeps which timers were given up, until they come again, are set anew or are cancelled: the manager says so in the
// instance's row only, where anything that comes later takes its place.
func (r *recorder) standing() {
	if s := r.i.Stuck; s.Reason == flow.DeadLetter && s.Step == "" {
		if found := standingForm.FindStringSubmatch(s.Text); found != nil {
			r.i.Extra[standingExtra+found[1]] = s.Text
		}
	}
	goes := func(name string) { delete(r.i.Extra, standingExtra+name) }
	goes(r.in.Timer)
	for _, name := range r.fx.Cancel {
		goes(name)
	}
	for _, t := range r.fx.Timers {
		goes(t.Name)
	}
	// Whatever is retried, the manager lets all of them come again.
	if r.fx.CancelAll || r.in.Action != nil && r.in.Action.Name == flow.ActionRetry {
		maps.DeleteFunc(r.i.Extra, func(name, _ string) bool { return strings.HasPrefix(name, standingExtra) })
	}
}

// standingText is how the manager says that a timer was given up, and standingForm finds the timer in that.
func standingText(timer string, attempts int, cause error) string {
	return retry.Text(fmt.Sprintf("timer %s failed %d times: %v", timer, attempts, cause))
}

var standingForm = regexp.MustCompile(`(?s)^timer (.+?) failed \d+ times: `)

// Awaits says what the instance waits for.
func (m *processMachine) Awaits(i *flow.Instance) string {
	if i.State.Over() {
		return ""
	}
	var waits []string
	for n := range i.Steps {
		s := &i.Steps[n]
		step := m.byName[s.Name]
		end := step == nil && (s.Name == string(flow.Completed) || s.Name == string(flow.Compensated))
		switch {
		case end && s.State == flow.Waiting:
			waits = append(waits, "its last command, "+s.Sent+", to be carried out")
		case end && s.State == flow.RetryLater:
			waits = append(waits, "the next attempt at its last command, "+s.Sent)
		case end && s.State == flow.Refused:
			waits = append(waits, "somebody to decide about its last command, "+s.Sent)
		case step != nil:
			if text := awaitsStep(i, s); text != "" {
				waits = append(waits, text)
			}
		}
	}
	return strings.Join(waits, "; ")
}

func awaitsStep(i *flow.Instance, s *flow.Step) string {
	_, stuck := i.Extra[stuckExtra+s.Name]
	switch {
	case s.State == flow.Undoing:
		return s.Name + " to be undone (" + s.Sent + ")"
	case s.State == flow.UndoLater:
		return "the next attempt to undo " + s.Name
	case stuck:
		return "somebody to decide about " + s.Name
	case s.State == flow.RetryLater:
		return "the next attempt of " + s.Name
	case s.State == flow.Waiting && i.State == flow.Running:
		return "an answer to " + s.Name + " (" + s.Sent + ")"
	}
	return ""
}
