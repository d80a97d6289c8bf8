package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// current are the commands that the instance waits for: the last of each step that is under way, and what else has no end.
func (r *reading) current() []CommandInfo {
	if r.over() {
		return nil
	}
	var all []CommandInfo
	for _, c := range r.commands {
		if c.Closed {
			continue
		}
		s := r.step(c.Step)
		switch {
		case s == nil: // of a flow, or the last command
			if !c.ended() {
				all = append(all, c)
			}
		case s.State == flow.Waiting && c.Direction == string(flow.Do) && c.Intent == s.Intent && r.row.state == string(flow.Running),
			s.State == flow.Waiting && c.Direction == string(flow.End) && c.Intent == s.Intent,
			s.State == flow.Undoing && c.Direction == string(flow.Undo) && c.Intent == s.UndoIntent:
			all = append(all, c)
		}
	}
	return all
}

// explainCommand names a command for people.
func explainCommand(c CommandInfo) string {
	text := explainClean(c.Type, 100)
	if c.Target != "" {
		text += " to " + explainClean(c.Target, 100)
	}
	if c.Step != "" {
		of := ""
		if c.Direction == string(flow.Undo) {
			of = "undo of "
		}
		text += " (" + of + explainClean(c.Step, 100) + ")"
	}
	return text
}

// explain puts together what was read.
func (r *reading) explain() Explanation {
	i := r.row
	e := Explanation{
		Saga: i.saga, Key: i.key, Run: i.run, Runs: i.runs, Version: i.version, Kind: i.kind, State: i.state,
		Done: []StepInfo{}, Now: []StepInfo{}, Compensated: []StepInfo{}, Commands: r.commands, Timers: r.timers, Held: i.held, Letters: r.letters,
		Timeline: r.history, Actions: r.actions, Tenant: i.tenant, CorrelationID: i.correlation, StartedBy: i.startedBy,
		StartedAt: i.startedAt, ChangedAt: i.changedAt, EndedAt: i.endedAt, At: r.now,
	}
	if len(r.history) > 0 {
		e.Earlier = max(r.history[0].Entry-1, 0)
	}
	r.steps(&e)
	if !r.over() {
		e.Awaits, e.AwaitsSince = r.awaits(e.Now)
	}
	e.Problems = r.problems()
	if len(e.Problems) > 0 {
		p := e.Problems[0]
		for _, q := range e.Problems { // what keeps it counts before what goes on by itself
			if q.Reason != ReasonRetrying {
				p = q
				break
			}
		}
		e.Reason, e.Text, e.Since, e.Stuck = p.Reason, p.Text, p.Since, p.Reason != ReasonRetrying
		if n := slices.IndexFunc(e.Problems, func(q Problem) bool { return q.Reason == p.Reason && q.Text == p.Text }); n > 0 {
			e.Problems = append([]Problem{p}, slices.Delete(e.Problems, n, n+1)...)
		}
	}
	e.Sentence = r.sentence(e)
	return e
}

func (r *reading) steps(e *Explanation) {
	begun := map[string]bool{}
	for _, s := range r.progress.Steps {
		begun[s.Name] = true
		info := StepInfo{
			Name: s.Name, State: string(s.State), Intent: s.Intent, Attempts: s.Attempts, Undos: s.UndoAttempts, Carried: s.Carried, Marked: s.Marked,
			Text: s.Text, BeganAt: s.BeganAt, SentAt: s.SentAt, EndedAt: s.EndedAt,
		}
		switch s.State {
		case flow.Done:
			e.Done = append(e.Done, info)
		case flow.Waiting, flow.RetryLater, flow.Undoing, flow.UndoLater:
			e.Now = append(e.Now, info)
		case flow.Undone:
			e.Compensated = append(e.Compensated, info)
		default:
			e.Other = append(e.Other, info)
		}
	}
	switch {
	case r.over() || r.row.state != string(flow.Running):
		e.ToCome = []string{}
	case r.progress.Plan != nil:
		e.ToCome = []string{}
		for _, name := range r.progress.Plan {
			if !begun[name] {
				e.ToCome = append(e.ToCome, name)
			}
		}
	}
}

// awaits is what the instance waits for and since when.
func (r *reading) awaits(now []StepInfo) (string, time.Time) {
	var since time.Time
	var names []string
	for _, s := range now {
		names = append(names, s.Name)
		for _, t := range []time.Time{s.BeganAt, s.SentAt} {
			if t.After(since) {
				since = t
			}
		}
	}
	for _, c := range r.current() {
		if c.sent().After(since) {
			since = c.sent()
		}
	}
	if since.IsZero() {
		since = r.row.changedAt
	}
	text := r.row.awaits
	switch {
	case text != "":
	case len(names) > 0:
		text = "the end of " + strings.Join(names, ", ")
	case len(r.timers) > 0:
		text = "timer " + r.timers[0].Name
	default:
		text = "what comes for it"
	}
	return text, since.UTC()
}

// sentenceCommands is how many commands one sentence tells of.
const sentenceCommands = 3

func (r *reading) sentence(e Explanation) string {
	i := r.row
	text := fmt.Sprintf("%s %q", explainClean(i.saga, 100), explainCut(i.key, 100))
	if i.runs > 1 {
		text += fmt.Sprintf(" run %d of %d", i.run, i.runs)
	}
	if r.over() {
		return text + r.ending(e)
	}
	switch {
	case e.Stuck && e.Reason == ReasonPaused:
		text += fmt.Sprintf(" is paused since %s: %s", explainSince(e.Since, r.now), e.Text)
	case e.Stuck:
		at := ""
		if p := e.Problems[0]; p.Step != "" {
			at = " at " + explainClean(p.Step, 100)
		}
		text += fmt.Sprintf(" is stuck%s since %s, %s: %s", at, explainSince(e.Since, r.now), e.Reason, e.Text)
	case e.Reason == ReasonRetrying:
		text += ": " + e.Text
	}
	switch {
	case e.Reason == "" || e.Reason == ReasonPaused:
		begins := " waits for "
		if e.Reason == ReasonPaused {
			begins = "; it waits for "
		} else if i.state == string(flow.Compensating) {
			begins = " is being compensated and waits for "
		}
		text += begins + explainClean(e.Awaits, 300) + " since " + explainSince(e.AwaitsSince, r.now)
	case i.state == string(flow.Compensating):
		text += "; it is being compensated"
	}
	text += r.sentCommands(e)
	return text + r.nextTimer(e) + "."
}

// sentCommands tells of the commands that are under way, unless what keeps the instance has told of them.
func (r *reading) sentCommands(e Explanation) string {
	told := 0
	text := ""
	all := r.current()
	for _, c := range all {
		if len(e.Problems) > 0 && e.Problems[0].Step == c.Step && (e.Reason == ReasonOutboxBlocked || e.Reason == ReasonReplyOverdue || c.Where == WhereSetAside) {
			continue
		}
		if told++; told > sentenceCommands {
			continue
		}
		sent := "sent"
		if c.ResentAt.After(c.SentAt) {
			sent = "sent again"
		}
		text += fmt.Sprintf("; %s was %s at %s and %s", explainCommand(c), sent, explainMoment(c.sent()), c.WhereText(r.now))
	}
	if told > sentenceCommands {
		text += fmt.Sprintf("; and %s", explainCount(told-sentenceCommands, "other command"))
	}
	return text
}

func (r *reading) nextTimer(e Explanation) string {
	n := slices.IndexFunc(r.timers, func(t TimerInfo) bool { return !t.stands() })
	switch {
	case n < 0 && len(r.timers) > 0 && e.Reason == ReasonPaused:
		return fmt.Sprintf("; its %s still meanwhile", explainStand(len(r.timers)))
	case n < 0:
		return ""
	}
	t := r.timers[n]
	if e.Reason == ReasonTimerOverdue {
		if t.Does == "" {
			return ""
		}
		return "; it " + explainClean(t.Does, 300)
	}
	text := fmt.Sprintf("; next, at %s, ", explainMoment(t.DueAt))
	if d := t.DueAt.Sub(r.now); d > 0 {
		text = fmt.Sprintf("; next, at %s (in %s), ", explainMoment(t.DueAt), explainSpan(d))
	}
	text += "timer " + explainClean(t.Name, 100)
	if t.Does != "" {
		text += " " + explainClean(t.Does, 300)
	}
	return text
}

func explainStand(timers int) string {
	if timers == 1 {
		return "timer stands"
	}
	return fmt.Sprintf("%d timers stand", timers)
}

// ending says how an instance ended.
func (r *reading) ending(e Explanation) string {
	took := explainSpan(r.row.endedAt.Sub(r.row.startedAt))
	if r.row.state != string(flow.Compensated) {
		return fmt.Sprintf(" was %s at %s, after %s.", r.row.state, explainMoment(r.row.endedAt), took)
	}
	text := fmt.Sprintf(" was compensated at %s, after %s", explainMoment(r.row.endedAt), took)
	for _, s := range e.Other {
		if s.State == string(flow.Refused) {
			text += fmt.Sprintf(", because %s was refused", explainClean(s.Name, 100))
			if s.Text != "" {
				text += " (" + explainClean(s.Text, 300) + ")"
			}
		}
	}
	var undone []string
	for _, s := range e.Compensated {
		undone = append(undone, explainClean(s.Name, 100))
	}
	if len(undone) > 0 {
		text += "; undone: " + strings.Join(undone, ", ")
	}
	return text + "."
}

// explainCut cuts a text that is quoted afterwards.
func explainCut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
