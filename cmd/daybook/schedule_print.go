package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/daybook-go/daybook/saga/schedule"
)

// troubled is how many schedules the status shows that are late or have failed.
const troubled = 20

// printSchedules is the part of the status that is about schedules.
func printSchedules(out io.Writer, s schedule.Summary, now time.Time) error {
	if s.Schedules == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "\nschedules   %d, %s late, %s failed the last time\n", s.Schedules, ofThem(s.Late), ofThem(s.Failed)); err != nil || len(s.Troubled) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tTENANT\tLATE\tAS\tFAILED\tERROR")
	for _, t := range s.Troubled {
		late, failed := "-", "-"
		if t.Late > 0 {
			late = span(t.Late)
		}
		if !t.Failed.IsZero() {
			failed = t.Failed.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", clean(t.Job, 80), clean(orNone(t.Tenant), 80), late, orNone(whyLate(t, now)), failed, clean(orNone(t.Error), 200))
	}
	if err := w.Flush(); err != nil || s.More == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "and %d more\n", s.More)
	return err
}

// ofThem is how many of several things.
func ofThem(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func whyLate(t schedule.Trouble, now time.Time) string {
	switch {
	case t.Late == 0:
		return ""
	case t.Orphaned:
		return "no process has known it for " + ago(t.Seen, now)
	case t.Open:
		return "an earlier firing goes on"
	default:
		return "no process begins it"
	}
}
