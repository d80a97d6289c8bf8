package saga

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-go/daybook/internal/flow"
)

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
	if e.Stuck && r.row.stuckStep != "" && !slices.ContainsFunc(all, func(c CommandInfo) bool { return c.Step == r.row.stuckStep }) {
		for i := len(r.commands) - 1; i >= 0; i-- { // the last one of the step that is stuck, which has ended
			if r.commands[i].Step == r.row.stuckStep {
				all = append([]CommandInfo{r.commands[i]}, all...)
				break
			}
		}
	}
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
			verb, why := explainRefusal(s.Text)
			if verb != "expired" {
				verb = "was " + verb
			}
			text += fmt.Sprintf(", because %s %s", explainClean(s.Name, 100), verb)
			if why != "" {
				text += " (" + explainClean(why, 300) + ")"
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
