package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
)

// problems are what keeps the instance, the most telling first.
func (r *reading) problems() []Problem {
	var all []Problem
	for _, found := range [][]Problem{r.paused(), r.stuck(), r.deadLetters(), r.blocked(), r.overdueTimers(), r.unread(), r.overdueReplies(), r.retries()} {
		for _, p := range found {
			if p.Step == "" || !explainSame(all, p) {
				all = append(all, p)
			}
		}
	}
	for n := range all {
		r.only(&all[n])
	}
	return all
}

// keeps reports whether a problem keeps the instance from going on by itself: whether it is stuck.
func keeps(p Problem) bool { return p.Reason != ReasonRetrying }

// mainProblem is the place of the problem that counts, -1 without any: what keeps it counts before what goes on by itself.
func mainProblem(all []Problem) int {
	if n := slices.IndexFunc(all, keeps); n >= 0 {
		return n
	}
	return min(len(all), 1) - 1
}

// explainSame: the step has a problem already that says more.
func explainSame(all []Problem, p Problem) bool {
	for _, q := range all {
		if q.Step == p.Step && q.Reason != ReasonPaused {
			return true
		}
	}
	return false
}

// command is what somebody types to act on the instance.
func (r *reading) command(verb, step string) string {
	text := "daybook saga " + verb
	names := " " + shellWord(r.row.saga) + " " + shellWord(r.row.key)
	flags := " --reason WHY" + r.inSchema()
	if step != "" {
		flags = " --step=" + shellWord(step) + flags
		if !strings.HasPrefix(step, "-") {
			flags = strings.Replace(flags, "--step=", "--step ", 1)
		}
	}
	if strings.HasPrefix(r.row.saga, "-") || strings.HasPrefix(r.row.key, "-") {
		return text + flags + " --" + names
	}
	return text + names + flags
}

func (r *reading) inSchema() string {
	if r.schema == explainDefaultSchema {
		return ""
	}
	return " --schema " + shellWord(r.schema)
}

func (r *reading) over() bool { return !r.row.endedAt.IsZero() }

func (r *reading) paused() []Problem {
	i := r.row
	if i.pausedAt.IsZero() && i.stuck != flow.Paused {
		return nil
	}
	p := Problem{Reason: ReasonPaused, Since: i.pausedAt, Text: "it was paused", Remedy: "resume it", Commands: []string{r.command("resume", "")}}
	if p.Since.IsZero() {
		p.Since = i.stuckSince
	}
	if by := explainClean(i.pausedBy, 100); by != "" {
		p.Text += " by " + by
	}
	if why := explainClean(i.pausedWhy, 300); why != "" {
		p.Text += ": " + why
	}
	if i.held > 0 {
		p.Text += fmt.Sprintf("; %s waiting for it meanwhile", explainAre(i.held, "input"))
	}
	return []Problem{p}
}

func explainAre(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return fmt.Sprintf("%d %ss are", n, thing)
}

// stuck is what the manager has stored.
func (r *reading) stuck() []Problem {
	i := r.row
	if i.stuck == "" || i.stuck == flow.Paused {
		return nil
	}
	p := Problem{Reason: i.stuck, Step: i.stuckStep, Since: i.stuckSince, Text: explainClean(i.stuckText, 500)}
	step := r.step(i.stuckStep)
	undoing := step != nil && (step.State == flow.UndoFailed || step.State == flow.UndoLater || step.State == flow.Undoing)
	switch {
	case i.stuck == flow.HandlerMissing:
		p.Text = cmp.Or(p.Text, fmt.Sprintf("no program that runs has version %d of its definition", i.version))
		p.Remedy = fmt.Sprintf("run a program that has version %d of %s: it takes what was kept, in order", i.version, explainClean(i.saga, 100))
	case r.keptFails() && i.keptFirst == heldTimer: // see keeper.skip
		r.advise(&p, fmt.Sprintf("%s kept for it, and its definition fails at the first, a timer: mend the program, and it goes on", explainAre(i.held, "input")),
			r.command("retry", ""))
	case r.keptFails():
		r.advise(&p, fmt.Sprintf("%s kept for it, at the first of which its definition fails: mend the program, and it goes on; or pass that one by", explainAre(i.held, "input")),
			r.command("retry", ""), r.command("skip", ""))
	case i.stuck == flow.CompensationFailed || undoing:
		p.Text = cmp.Or(p.Text, "the undo of "+explainClean(i.stuckStep, 100)+" has failed")
		if i.kind == "flow" && step != nil && step.State == flow.UndoFailed { // only its reactions make new commands
			p.Remedy, p.Commands = "undo it by hand, and mark it as done", []string{r.command("mark", i.stuckStep)}
			break
		}
		p.Remedy = "remove the cause and try the undo again; or undo it by hand, and mark it as done"
		p.Commands = []string{r.command("retry", i.stuckStep), r.command("mark", i.stuckStep)}
	case i.stuckStep == "":
		r.advise(&p, "remove the cause and try again", r.command("retry", ""))
	case i.kind == "flow" && step != nil && step.State != flow.Waiting: // only its reactions make new commands
		r.advise(&p, "say by hand how it ended", r.command("answer", i.stuckStep))
	default:
		r.advise(&p, "remove the cause and try the step again; or say by hand how it ended", r.command("retry", i.stuckStep), r.command("answer", i.stuckStep))
	}
	p.Text = cmp.Or(p.Text, "it waits for people")
	return []Problem{p}
}

// keptFails: see instance.keptFails.
func (r *reading) keptFails() bool {
	return r.row.held > 0 && r.row.stuck == flow.DeadLetter && strings.HasPrefix(r.row.stuckText, keptFailed)
}

// advise says what to do; where an instance can be cancelled, that too.
func (r *reading) advise(p *Problem, remedy string, commands ...string) {
	p.Remedy, p.Commands = remedy, commands
	if r.row.state == string(flow.Running) && r.progress.Extra[onwardExtra] == "" {
		p.Remedy, p.Commands = remedy+"; or compensate", append(commands, r.command("cancel", ""))
	}
}

// only leaves of what to do about a problem what the instance takes now, and says what has to come before the rest.
func (r *reading) only(p *Problem) {
	acts := func(command string) bool { return strings.HasPrefix(command, "daybook saga ") }
	if !slices.ContainsFunc(p.Commands, acts) {
		return
	}
	i := r.row
	first := ""
	var instead []string
	n := slices.IndexFunc(r.actions, func(a ActionInfo) bool { return a.State == "open" })
	switch {
	case n >= 0:
		a := r.actions[n]
		first = fmt.Sprintf("%s has decided to %s it, and the managers have not carried that out: wait for it, or cancel that plan", explainClean(a.Actor, 100), a.Action)
		instead = []string{"daybook saga plans " + a.Plan.String() + r.inSchema(), "daybook saga cancel-plan " + a.Plan.String() + " --reason WHY" + r.inSchema()}
	case p.Reason == ReasonPaused:
		return
	case !i.pausedAt.IsZero():
		first = "resume it first"
	case r.over():
		first = "it has ended, and takes no decisions any more"
	case i.stuck == flow.HandlerMissing && p.Reason != flow.HandlerMissing:
		first = "run a program that has its version first"
	case r.keptFails() && (p.Reason != i.stuck || p.Step != ""):
		first = "what was kept for it comes first"
	default:
		return
	}
	p.Remedy = first + "; then " + p.Remedy
	if r.over() && n < 0 {
		p.Remedy = first
	}
	p.Commands = append(instead, slices.DeleteFunc(slices.Clone(p.Commands), acts)...)
}

func (r *reading) step(name string) *flow.Step {
	for n := range r.progress.Steps {
		if r.progress.Steps[n].Name == name && name != "" {
			return &r.progress.Steps[n]
		}
	}
	return nil
}

// deadLetters are letters of the saga's own consumers that concern the instance, and of the relay.
func (r *reading) deadLetters() []Problem {
	var all []Problem
	show := func(id fmt.Stringer) []string {
		return []string{"daybook deadletter show " + id.String() + r.inSchema(), "daybook deadletter redrive " + id.String() + r.inSchema()}
	}
	for _, l := range r.letters {
		if !l.concerns {
			continue
		}
		p := Problem{
			Reason: ReasonDeadLetter, Since: l.FailedAt, Remedy: "remove the cause and redrive the letter", Commands: show(l.ID),
			Text: fmt.Sprintf("%s could not be taken by %s and is letter %s: %s", explainClean(l.Type, 100), explainClean(l.Consumer, 100), l.ID, explainClean(l.Error, 300)),
		}
		if l.State == "retrying" {
			p.Reason, p.Remedy = ReasonRetrying, "wait, or redrive the letter now"
		}
		all = append(all, p)
	}
	if r.over() {
		return all
	}
	for _, c := range r.commands {
		if c.Where == WhereSetAside && !c.Closed {
			all = append(all, Problem{
				Reason: ReasonDeadLetter, Step: c.Step, Since: c.sent(), Remedy: "remove the cause and redrive the letter", Commands: show(c.Letter),
				Text: fmt.Sprintf("%s, sent at %s, %s", explainClean(c.Type, 100), explainMoment(c.sent()), c.WhereText(r.now)),
			})
		}
	}
	return all
}

// retries are steps that are tried again in their own time.
func (r *reading) retries() []Problem {
	if r.over() {
		return nil
	}
	var all []Problem
	for _, s := range r.progress.Steps {
		what, failed := "", 0
		switch s.State {
		case flow.RetryLater:
			what, failed = "", s.Attempts
		case flow.UndoLater:
			what, failed = "the undo of ", s.UndoAttempts
		default:
			continue
		}
		p := Problem{
			Reason: ReasonRetrying, Step: s.Name, Since: s.SentAt, Remedy: "wait, or try it now", Commands: []string{r.command("retry", s.Name)},
			Text: fmt.Sprintf("%s%s has failed %s", what, explainClean(s.Name, 100), explainTimes(failed)),
		}
		if s.Text != "" {
			p.Text += " (" + explainClean(s.Text, 300) + ")"
		}
		if t := r.timerOf(s.Name, retryTimer, undoTimer); t != nil {
			p.Text += fmt.Sprintf("; attempt %d is made at %s", failed+1, explainMoment(t.DueAt))
		}
		all = append(all, p)
	}
	return all
}
