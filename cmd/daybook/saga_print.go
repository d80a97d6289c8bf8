package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/daybook-go/daybook/saga"
)

func printWhy(out io.Writer, e saga.Explanation) error {
	fmt.Fprintln(out, clean(e.Sentence, whole))
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, clean(fmt.Sprintf(format, args...), whole))
	}
	for i, p := range e.Problems {
		if i > 0 {
			line("and", "%s: %s", p.Reason, p.Text)
		}
		line("to do", "%s", p.Remedy)
		for _, c := range p.Commands {
			line("", "  %s", c)
		}
	}
	line("state", "%s, version %d, run %d of %d, began %s ago", e.State, e.Version, e.Run, e.Runs, ago(e.StartedAt, e.At))
	line("done", "%s", stepNames(e.Done))
	line("now", "%s", stepNames(e.Now))
	if e.ToCome != nil {
		line("to come", "%s", orNone(strings.Join(e.ToCome, ", ")))
	} else {
		line("to come", "not known: only its definition says")
	}
	line("compensated", "%s", stepNames(e.Compensated))
	if len(e.Other) > 0 {
		line("other", "%s", stepNames(e.Other))
	}
	if e.Held > 0 {
		line("kept", "%s until it can take them", counted(e.Held, "input"))
	}
	for i, t := range e.Timers {
		text := fmt.Sprintf("%s %s (%s)", t.Name, t.DueAt.Format(time.RFC3339), due(t.DueAt, e.At))
		if t.Does != "" {
			text += ": " + t.Does
		}
		if t.Error != "" {
			text += fmt.Sprintf("; failed %s: %s", counted(t.Attempts, "time"), t.Error)
		}
		line(title(i, "timers"), "%s", text)
	}
	for i, c := range e.Commands {
		line(title(i, "commands"), "%s", commandLine(c, e.At))
	}
	for i, l := range e.Letters {
		line(title(i, "letters"), "%s of %s v%d, %s: %s", l.ID, l.Consumer, l.Version, l.State, l.Error)
	}
	for i, a := range e.Actions {
		text := fmt.Sprintf("%s %s %s by %s: %s; %s", a.At.Format(time.RFC3339), a.Action, a.Step, a.Actor, a.Reason, a.State)
		if a.Result != "" {
			text += ": " + a.Result
		}
		line(title(i, "actions"), "%s", strings.ReplaceAll(text, "  ", " "))
	}
	line("history", "%d lines: daybook saga history %s", e.Earlier+int64(len(e.Timeline)), clean(e.Saga, 100)+" "+fmt.Sprintf("%q", e.Key))
	return w.Flush()
}

func due(t, now time.Time) string {
	if t.After(now) {
		return "in " + span(t.Sub(now))
	}
	return span(now.Sub(t)) + " ago"
}

func stepNames(steps []saga.StepInfo) string {
	var names []string
	for _, s := range steps {
		name := s.Name
		if s.State != "done" && s.State != "undone" {
			name += " (" + s.StateText() + ")"
		}
		if s.Marked {
			name += " (by hand)"
		}
		names = append(names, name)
	}
	return orNone(strings.Join(names, ", "))
}

func commandLine(c saga.CommandInfo, now time.Time) string {
	step := c.Step
	if c.Direction != "do" {
		step = c.Direction + " " + step
	}
	text := fmt.Sprintf("%s: %s", step, c.Type)
	if c.Target != "" {
		text += " to " + c.Target
	}
	text += fmt.Sprintf(", sent %s", c.SentAt.Format(time.RFC3339))
	if !c.ResentAt.IsZero() {
		text += " and again " + c.ResentAt.Format(time.RFC3339)
	}
	text += ", " + c.WhereText(now)
	switch c.Where {
	case saga.WhereDone, saga.WhereRefused, saga.WhereExpired, saga.WhereFailed: // it says so itself
	default:
		if c.Closed {
			text += "; its step is over, and it is never carried out any more"
		}
	}
	return text + " (" + c.ID.String() + ")"
}

func printTimeline(out io.Writer, e saga.Explanation) error {
	if e.Earlier > 0 {
		fmt.Fprintf(out, "%s before these are left out\n", counted(e.Earlier, "line"))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AT\tWHAT\tSTEP\tTEXT\tEVENT\tBY\tREASON")
	for _, h := range e.Timeline {
		event := "-"
		if h.Position != "" {
			event = h.Position
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.At.Format(time.RFC3339Nano), clean(h.Kind, 30), clean(orNone(h.Step), 60), clean(orNone(h.Text), 200), event,
			clean(orNone(h.Actor), 60), clean(orNone(h.Reason), 200))
	}
	return w.Flush()
}

func printSagas(out io.Writer, f saga.Filter, page saga.Page, now time.Time) error {
	if len(page.Sagas) == 0 && page.Next == "" {
		text := "no instances of " + clean(f.Saga, 100)
		switch {
		case f.After != "":
			text = "no more instances of " + clean(f.Saga, 100)
		case f != saga.Filter{Saga: f.Saga}:
			text += " that fit"
		}
		fmt.Fprintln(out, text)
		return seeLetters(out, f)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tRUN\tSTATE\tREASON\tSTEP\tFOR\tSTARTED\tCHANGED\tAWAITS")
	for _, i := range page.Sagas {
		i.Reason = strings.Join(i.Reasons, ", ")
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(i.Key, 80), i.Run, i.State, orNone(i.Reason), clean(orNone(i.Step), 60),
			ago(i.StuckSince, now), ago(i.StartedAt, now), ago(i.ChangedAt, now), clean(orNone(i.Awaits), 80))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := seeLetters(out, f); err != nil || page.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "more: --after %s\n", page.Next)
	return err
}

// seeLetters says where the rest is: what should have begun an instance may be a dead letter.
func seeLetters(out io.Writer, f saga.Filter) error {
	if !f.Stuck {
		return nil
	}
	_, err := fmt.Fprintln(out, "see also: daybook deadletter list")
	return err
}

// printCounts is the part of the status that is about sagas.
func printCounts(out io.Writer, counts []saga.Count, now time.Time) error {
	if len(counts) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SAGA\tRUNNING\tCOMPENSATING\tSTUCK\tSTUCK FOR\tPAUSED\tOVERDUE TIMERS\tOVERDUE FOR")
	stuck := false
	for _, c := range counts {
		stuck = stuck || c.Stuck > 0
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(c.Saga, 60), capped(c.Running), capped(c.Compensating), capped(c.Stuck), ago(c.StuckSince, now),
			capped(c.Paused), capped(c.Timers), ago(c.OverdueSince, now))
	}
	if err := w.Flush(); err != nil || !stuck {
		return err
	}
	_, err := fmt.Fprintln(out, "\nsome sagas are stuck: see daybook saga list SAGA --stuck, and daybook saga why SAGA KEY")
	return err
}

// capped is a number that is not counted further.
func capped(n int) string {
	if n >= saga.CountsCap {
		return fmt.Sprintf("%d+", saga.CountsCap)
	}
	return fmt.Sprint(n)
}
