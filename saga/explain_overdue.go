package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

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

// unread: nobody runs the manager, and there is something that it has not read. What that is, nobody knows.
func (r *reading) unread() []Problem {
	c := r.consumers[explainEvents(r.row.saga)]
	since := c.until
	if c.committedAt.After(since) {
		since = c.committedAt
	}
	if c.state != "running" && c.since.After(since) {
		since = c.since.UTC()
	}
	if r.over() || c.name == "" || !c.behind || c.live > 0 && c.state == "running" || r.now.Sub(since) <= explainPatience {
		return nil
	}
	p := Problem{
		Reason: ReasonOutboxBlocked, Since: since, Text: "its manager " + c.atWork() + ", and has not read what came since",
		Remedy: "run a program with the manager of " + explainClean(r.row.saga, 100), Commands: []string{"daybook status" + r.inSchema()},
	}
	if c.state != "running" {
		p.Remedy = "end what keeps the manager from running, and start it again"
	}
	return []Problem{p}
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
		case t.stands():
			if said := standingForm.FindStringSubmatch(r.row.stuckText); r.row.stuck == "" || said == nil || said[1] != t.Name {
				all = append(all, r.standing(t))
			}
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

// standing: a timer was given up, and something else stands in the row.
func (r *reading) standing(t TimerInfo) Problem {
	p := Problem{
		Reason: flow.DeadLetter, Step: explainTimerStep(t.Name), Since: t.DueAt,
		Text: fmt.Sprintf("timer %s was given up: it failed %s", explainClean(t.Name, 100), explainTimes(t.Attempts)),
	}
	r.advise(&p, "remove the cause and try again", r.command("retry", ""))
	if t.Error != "" {
		p.Text += ": " + explainClean(t.Error, 300)
	}
	return p
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
