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
	p := Problem{Reason: i.stuck, Step: i.stuckStep, Since: i.stuckSince, Text: explainOnce(explainClean(i.stuckText, 500))}
	step := r.step(i.stuckStep)
	switch {
	case i.stuck == flow.HandlerMissing:
		p.Text = cmp.Or(p.Text, fmt.Sprintf("no program that runs has version %d of its definition", i.version))
		p.Remedy = fmt.Sprintf("run a program that has version %d of %s: it takes what was kept, in order", i.version, explainClean(i.saga, 100))
	case i.stuck == flow.CompensationFailed || step != nil && (step.State == flow.UndoFailed || step.State == flow.Undoing):
		p.Text = cmp.Or(p.Text, "the undo of "+explainClean(i.stuckStep, 100)+" has failed")
		p.Remedy = "remove the cause and try the undo again; or undo it by hand, and mark it as done"
		p.Commands = []string{r.command("retry", i.stuckStep), r.command("mark", i.stuckStep)}
	case i.stuckStep == "" && i.held > 0:
		p.Remedy = fmt.Sprintf("%s kept for it, which its definition fails at: mend the program, and it goes on", explainAre(i.held, "input"))
	case i.stuckStep == "":
		p.Remedy = "remove the cause and try again; or compensate, unless its pivot is done"
		p.Commands = []string{r.command("retry", ""), r.command("cancel", "")}
	default:
		p.Remedy = "remove the cause and try the step again; or say by hand how it ended; or compensate, unless its pivot is done"
		p.Commands = []string{r.command("retry", i.stuckStep), r.command("answer", i.stuckStep), r.command("cancel", "")}
	}
	p.Text = cmp.Or(p.Text, "it waits for people")
	return []Problem{p}
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
