package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// clean makes text that others wrote safe for a terminal, and cuts it.
func clean(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n == most {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = '�'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// whole is what no line is long enough for.
const whole = 10_000

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := now.Sub(t); {
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d)
	}
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func printLetters(out io.Writer, page deadletter.Page, now time.Time) error {
	if len(page.Letters) == 0 && page.Next == "" {
		_, err := fmt.Fprintln(out, "no letters")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LETTER\tCONSUMER\tSEQUENCE\tPOSITION\tSTATE\tKIND\tTRIED\tFAILED\tTYPE\tGROUP\tERROR")
	for _, l := range page.Letters {
		sequence := l.Sequence
		if l.Topic != "" {
			sequence = l.Topic + " " + sequence
		}
		fmt.Fprintf(w, "%s\t%s v%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.ID, clean(l.Consumer, 60), l.Version, clean(sequence, 60), l.Position,
			l.State, l.Kind, l.Attempts, ago(l.LastFailedAt, now), clean(l.Type, 60), clean(l.Fingerprint, 16), clean(l.Error, 80))
	}
	if err := w.Flush(); err != nil || page.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(out, "more: --after %s\n", page.Next)
	return err
}

func printGroups(out io.Writer, groups []deadletter.Group, now time.Time) error {
	if len(groups) == 0 {
		_, err := fmt.Fprintln(out, "no letters")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GROUP\tCONSUMER\tLETTERS\tOLDEST\tNEWEST\tTYPE\tEXAMPLE\tERROR")
	more := false
	for _, g := range groups {
		more = more || g.More
		fmt.Fprintf(w, "%s\t%s v%d\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(g.Fingerprint, 16), clean(g.Consumer, 60), g.Version, count(g.Letters, g.More),
			ago(g.Oldest, now), ago(g.Newest, now), clean(g.Type, 60), g.Example, clean(g.Error, 100))
	}
	if err := w.Flush(); err != nil || !more {
		return err
	}
	_, err := fmt.Fprintln(out, "+: there are more letters, which were not counted")
	return err
}

// count is a number; with more it is as far as was counted.
func count(n int64, more bool) string {
	text := fmt.Sprint(n)
	if !more {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + "+"
}

func printDeadStatus(out io.Writer, status []deadletter.ConsumerStatus, now time.Time) error {
	if len(status) == 0 {
		_, err := fmt.Fprintln(out, "nothing is set aside")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONSUMER\tRETRYING\tPARKED\tDRAINING\tQUEUED\tOLDEST\tPLANS")
	for _, s := range status {
		fmt.Fprintf(w, "%s v%d\t%d\t%d\t%d\t%d\t%s\t%d\n", clean(s.Consumer, 60), s.Version, s.Retrying, s.Parked, s.Draining, s.Queued, ago(s.Oldest, now), s.Plans)
	}
	return w.Flush()
}

func printDetail(out io.Writer, d deadletter.Detail, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, clean(fmt.Sprintf(format, args...), whole))
	}
	when := func(t time.Time) string { return t.Format(time.RFC3339) + " (" + ago(t, now) + ")" }
	line("letter", "%s", d.ID)
	line("consumer", "%s v%d", d.Consumer, d.Version)
	if d.Topic != "" {
		line("topic", "%s", d.Topic)
	}
	line("sequence", "%s, partition %d", d.Sequence, d.Partition)
	line("state", "%s, %s", d.State, d.Kind)
	line("attempts", "%d in all, %d in this round", d.Attempts, d.Round)
	line("failed first", "%s", when(d.FirstFailedAt))
	line("failed last", "%s", when(d.LastFailedAt))
	line("handler", "%s", d.Handler)
	line("program", "%s", d.Program)
	line("group", "%s", d.Fingerprint)
	if !d.ClosedAt.IsZero() {
		line("closed", "%s by %s", when(d.ClosedAt), orNone(d.ClosedBy))
		line("reason", "%s", orNone(d.Reason))
	}
	switch q := d.Waiting; {
	case q == nil:
		line("waiting", "nothing: the sequence goes on")
	default:
		line("waiting", "%s, %d queued, positions %s to %s, since %s", q.State, q.Queued, q.First, q.Last, when(q.Since))
		if !q.DueAt.IsZero() {
			line("due", "%s", when(q.DueAt))
		}
	}
	line("plan", "%s", idOrNone(d.Plan))
	for i, text := range d.Errors {
		line(title(i, "error"), "%s", text)
	}
	if !slices.Equal(d.Errors, d.FirstErrors) {
		for i, text := range d.FirstErrors {
			line(title(i, "first error"), "%s", text)
		}
	}
	for i, a := range d.Actions {
		plan := ""
		if a.Plan != (deadletter.Action{}).Plan {
			plan = " in plan " + a.Plan.String()
		}
		line(title(i, "actions"), "%s %s by %s%s: %s", a.At.Format(time.RFC3339), a.What, a.Actor, plan, orNone(a.Reason))
	}
	m := d.Message
	line("message", "%s, position %s, recorded %s", m.ID, m.Position, when(m.RecordedAt))
	line("type", "%s, schema version %d, %s", m.Type, m.SchemaVersion, m.ContentType)
	if d.Stream != "" {
		line("stream", "%s version %d", d.Stream, m.Version)
	}
	for _, f := range fields(m.Metadata) {
		line(f[0], "%s", f[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return printPayload(out, m.Data)
}

func title(i int, text string) string {
	if i > 0 {
		return ""
	}
	return text
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// fields are the parts of metadata that are set, headers in the order of their names.
func fields(m eventstore.Metadata) [][2]string {
	var all [][2]string
	for _, f := range [][2]string{{"tenant", m.Tenant}, {"correlation", m.CorrelationID}, {"causation", m.CausationID}, {"actor", m.Actor}} {
		if f[1] != "" {
			all = append(all, f)
		}
	}
	var names []string
	for name := range m.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, [2]string{"header " + clean(name, whole), m.Headers[name]})
	}
	return all
}

// mostShown bounds what is printed of a payload.
const mostShown = 64 << 10

// printPayload prints text as it is, all else as a dump.
func printPayload(out io.Writer, data []byte) error {
	fmt.Fprintf(out, "\n%d bytes:\n", len(data))
	shown := data[:min(len(data), mostShown)]
	if printable(data) {
		for len(shown) < len(data) && !utf8.RuneStart(data[len(shown)]) {
			shown = shown[:len(shown)-1]
		}
		if len(shown) > 0 {
			fmt.Fprintln(out, strings.TrimSuffix(string(shown), "\n"))
		}
	} else {
		fmt.Fprint(out, hex.Dump(shown))
	}
	if len(shown) < len(data) {
		fmt.Fprintf(out, "… %d bytes more: --raw FILE has them all\n", len(data)-len(shown))
	}
	return nil
}

// printable: a terminal shows it and does nothing else.
func printable(data []byte) bool {
	return utf8.Valid(data) && !strings.ContainsFunc(string(data), func(r rune) bool {
		return !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' || r == utf8.RuneError
	})
}

// detailJSON is a letter with its message.
func detailJSON(d deadletter.Detail) any {
	return struct {
		deadletter.Detail
		SchemaVersion int                 `json:"schema_version"`
		ContentType   string              `json:"content_type"`
		Metadata      eventstore.Metadata `json:"metadata"`
		Data          []byte              `json:"data"`
	}{d, d.Message.SchemaVersion, d.Message.ContentType, d.Message.Metadata, d.Message.Data}
}
