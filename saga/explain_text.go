package saga

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// explainClean makes text that others wrote safe for a terminal, and cuts it.
func explainClean(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n == most {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

func explainMoment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// explainSince is a moment, and how long ago it was.
func explainSince(t, now time.Time) string {
	return explainMoment(t) + " (" + explainSpan(now.Sub(t)) + ")"
}

// explainSpan is a time in its two greatest units.
func explainSpan(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return explainUnits(int(d/time.Minute), "m", int(d/time.Second)%60, "s")
	case d < 24*time.Hour:
		return explainUnits(int(d/time.Hour), "h", int(d/time.Minute)%60, "m")
	}
	return explainUnits(int(d/(24*time.Hour)), "d", int(d/time.Hour)%24, "h")
}

func explainUnits(n int, unit string, rest int, below string) string {
	if rest == 0 {
		return fmt.Sprintf("%d%s", n, unit)
	}
	return fmt.Sprintf("%d%s%d%s", n, unit, rest, below)
}

func explainCount(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// explainWhy is a code and a text of those who refused something.
func explainWhy(code, reason string) string {
	return explainJoin(explainClean(code, 60), explainClean(reason, 300))
}

func explainJoin(code, reason string) string {
	switch {
	case code == "":
		return reason
	case reason == "":
		return code
	}
	return code + ": " + reason
}

// explainRefusal is how a step that is not done ended, as a verb and the rest: nobody has refused what was given up or has
// expired.
func explainRefusal(text string) (verb, why string) {
	for begins, verb := range map[string]string{"failed": "given up", "expired": "expired", "refused": "refused"} {
		rest, ok := strings.CutPrefix(text, begins)
		switch {
		case !ok:
		case rest == "":
			return verb, ""
		case strings.HasPrefix(rest, ": "):
			return verb, rest[2:]
		case strings.HasPrefix(rest, " (") && strings.Contains(rest, ")"):
			code, reason, _ := strings.Cut(rest[2:], ")")
			return verb, explainJoin(code, strings.TrimPrefix(reason, ": "))
		}
	}
	return "refused", text
}

// shellWord is a text as somebody types it in a shell.
func shellWord(text string) string {
	plain := text != "" && text[0] != '-'
	printable := true
	for _, r := range text {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r))
		printable = printable && unicode.IsPrint(r)
	}
	switch {
	case plain:
		return text
	case printable:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	quoted := strconv.QuoteToASCII(text)
	return "$'" + strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), "'", `\'`) + "'"
}
