package saga

import (
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
		Done: []StepInfo{}, Now: []StepInfo{}, Compensated: []StepInfo{}, Commands: r.commands, Timers: r.timers, Held: i.held,
		Timeline: r.history, Actions: r.actions, Tenant: i.tenant, CorrelationID: i.correlation, StartedBy: i.startedBy,
		StartedAt: i.startedAt, ChangedAt: i.changedAt, EndedAt: i.endedAt, At: r.now,
	}
	if len(r.history) > 0 {
		e.Earlier = max(r.history[0].Entry-1, 0)
	}
	for _, l := range r.letters {
		e.Letters = append(e.Letters, l.LetterInfo)
	}
	r.steps(&e)
	if !r.over() {
		e.Awaits, e.AwaitsSince = r.awaits(e.Now)
	}
	e.Problems = r.problems()
	if n := mainProblem(e.Problems); n >= 0 {
		p := e.Problems[n]
		e.Reason, e.Text, e.Since, e.Stuck = p.Reason, p.Text, p.Since, keeps(p)
		e.Problems = append([]Problem{p}, slices.Delete(e.Problems, n, n+1)...)
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
			if explainLast(s.Name) { // its end is that of the instance
				continue
			}
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

// explainLast: the name is that of the last command, which is no step.
func explainLast(name string) bool {
	return name == string(flow.Completed) || name == string(flow.Compensated)
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
	if r.row.stuckStep != "" && !r.row.stuckSince.IsZero() { // what changed afterwards, such as a pause, is not what it waits for
		since = r.row.stuckSince
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
