package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// problems are what keeps the instance, the most telling first.
func (r *reading) problems() []Problem {
	var all []Problem
	for _, found := range [][]Problem{r.paused(), r.stuck(), r.deadLetters(), r.blocked(), r.overdueTimers(), r.overdueReplies(), r.retries()} {
		for _, p := range found {
			if p.Step == "" || !explainSame(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
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
		p.Remedy = "remove the cause and try again; or compensate"
		p.Commands = []string{r.command("retry", ""), r.command("cancel", "")}
	default:
		p.Remedy = "remove the cause and try the step again; or say by hand how it ended, or compensate"
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

// blocked are commands, and their ends, that are where they were 30 s ago.
func (r *reading) blocked() []Problem {
	if r.over() {
		return nil
	}
	var all []Problem
	for _, c := range r.commands {
		switch {
		case c.Closed:
		case c.Where == WhereOutbox || c.Where == WherePublished:
			consumer := cmp.Or(c.head.consumer, explainDispatcher)
			if p, blocked := r.stopped(consumer, c.sent()); blocked {
				p.Step = c.Step
				p.Text = fmt.Sprintf("%s, sent at %s, %s; the %s %s", explainClean(c.Type, 100), explainMoment(c.sent()), c.WhereText(r.now), explainRole(consumer), p.Text)
				if h := c.head; h.position != "" {
					p.Text += fmt.Sprintf("; at the head of its partition stands %s %s, position %s, since %s",
						explainClean(h.kind, 100), h.id, h.position, explainSince(h.at, r.now))
				}
				all = append(all, p)
			}
		case c.ended() && c.RepliedAt.IsZero() && !c.FinishedAt.IsZero():
			if p, blocked := r.stopped(explainReplies(r.row.saga), c.FinishedAt); blocked {
				p.Step = c.Step
				p.Text = fmt.Sprintf("%s, sent at %s, %s; the saga has not learned of it: its manager %s", explainClean(c.Type, 100), explainMoment(c.sent()), c.WhereText(r.now), p.Text)
				all = append(all, p)
			}
		}
	}
	return all
}

func explainRole(consumer string) string {
	switch consumer {
	case explainDispatcher:
		return "dispatcher"
	case explainRelay:
		return "relay"
	}
	return "manager"
}

// stopped judges a consumer that something has been waiting for since a time: nothing has moved for longer than it may.
func (r *reading) stopped(consumer string, since time.Time) (Problem, bool) {
	c := r.consumers[consumer]
	if c.committedAt.After(since) {
		since = c.committedAt
	}
	if r.now.Sub(since) <= explainPatience {
		return Problem{}, false
	}
	p := Problem{Reason: ReasonOutboxBlocked, Since: since, Text: c.atWork(), Commands: []string{"daybook status" + r.inSchema()}}
	role := explainRole(consumer)
	switch {
	case !c.stands():
		p.Text += ", and nothing of it has been committed since " + explainSince(since, r.now)
		p.Remedy = "see what the " + role + " is busy with: its Health and log name handlers that hang"
	case c.name != "" && c.state != "running":
		p.Remedy = "end what keeps the " + role + " from running, and start it again"
	default:
		p.Remedy = "run a program with the " + role
	}
	return p, true
}

// manager says in words who runs the manager.
func (r *reading) manager() string { return r.consumers[explainEvents(r.row.saga)].atWork() }

func (r *reading) overdueTimers() []Problem {
	if r.over() || len(r.paused()) > 0 {
		return nil
	}
	var all []Problem
	for _, t := range r.timers {
		due := t.DueAt
		if t.FreeAt.After(due) {
			due = t.FreeAt
		}
		switch {
		case t.stands(): // that it was given up is stored
		case r.now.Sub(due) > explainPatience:
			p := Problem{
				Reason: ReasonTimerOverdue, Step: explainTimerStep(t.Name), Since: t.DueAt,
				Text:   fmt.Sprintf("timer %s was due at %s and has not fired; its manager %s", explainClean(t.Name, 100), explainSince(t.DueAt, r.now), r.manager()),
				Remedy: "run a program with the manager of " + explainClean(r.row.saga, 100), Commands: []string{"daybook status" + r.inSchema()},
			}
			if t.Error != "" {
				p.Text += "; the last attempt failed: " + explainClean(t.Error, 300)
			}
			if !r.consumers[explainEvents(r.row.saga)].stands() {
				p.Remedy = "see what its manager is busy with: its Health and log say"
			}
			all = append(all, p)
		case t.Error != "":
			all = append(all, Problem{
				Reason: ReasonRetrying, Step: explainTimerStep(t.Name), Since: t.DueAt,
				Text: fmt.Sprintf("timer %s has failed %s: %s; it is tried again at %s", explainClean(t.Name, 100), explainTimes(t.Attempts),
					explainClean(t.Error, 300), explainMoment(t.FreeAt)),
				Remedy: "wait, or remove the cause",
			})
		}
	}
	return all
}

func explainTimes(n int) string {
	switch n {
	case 0, 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// explainTimerStep is the step that a timer belongs to.
func explainTimerStep(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return ""
}

// timerOf is the next timer of a step with one of the names; without a name any.
func (r *reading) timerOf(step string, names ...string) *TimerInfo {
	for i := range r.timers {
		if name := r.timers[i].Name; explainTimerStep(name) == step && (len(names) == 0 || slices.Contains(names, strings.TrimPrefix(name, step))) {
			return &r.timers[i]
		}
	}
	return nil
}

// overdueReplies are steps that wait for longer than they may. One with a timer waits no longer than that.
func (r *reading) overdueReplies() []Problem {
	if r.over() {
		return nil
	}
	var all []Problem
	for _, c := range r.current() {
		since := c.sent()
		if c.Where == WhereDone && c.FinishedAt.After(since) {
			since = c.FinishedAt
		}
		switch {
		case c.Where == WhereOutbox || c.Where == WherePublished || c.Where == WhereSetAside, r.now.Sub(c.sent()) <= r.overdue, r.timerOf(c.Step) != nil:
			continue
		}
		p := Problem{
			Reason: ReasonReplyOverdue, Step: c.Step, Since: c.sent(),
			Text:     fmt.Sprintf("%s was sent at %s and %s; no answer has come since", explainCommand(c), explainSince(c.sent(), r.now), c.WhereText(r.now)),
			Remedy:   "send it again, which is the same command; or say by hand how it ended",
			Commands: []string{r.command("retry", c.Step), r.command("answer", c.Step)},
		}
		if c.Direction == string(flow.Undo) {
			p.Remedy, p.Commands[1] = "send it again, which is the same command; or mark the step as undone", r.command("mark", c.Step)
		}
		all = append(all, p)
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
