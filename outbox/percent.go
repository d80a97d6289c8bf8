package outbox

import (
	"strings"

	"github.com/daybook-go/daybook/eventstore"
)

const upperHex = "0123456789ABCDEF"

// escape percent-encodes a header value. What needs it is rare, so the text itself comes back as a rule.
func escape(text string) string { return escapeWhere(text, opaque) }

// escapeName percent-encodes a header name.
func escapeName(name string) string { return escapeWhere(name, notToken) }

func escapeWhere(text string, where func(byte) bool) string {
	n := 0
	for i := range len(text) {
		if where(text[i]) {
			n++
		}
	}
	if n == 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2*n)
	for i := range len(text) {
		if c := text[i]; where(c) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// opaque bytes cannot stand in a header value (CloudEvents HTTP protocol binding 1.0, §3.1.3.2).
func opaque(c byte) bool { return c <= ' ' || c == '"' || c == '%' || c > '~' }

// notToken bytes cannot stand in a header name (RFC 9110, §5.6.2), and the percent sign stands for itself nowhere.
func notToken(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return false
	}
	return strings.IndexByte("!#$&'*+-.^_`|~", c) < 0
}

// unescape undoes escape and escapeName, in one pass. A percent sign without two digits is refused.
func unescape(text string) (string, bool) {
	at := strings.IndexByte(text, '%')
	if at < 0 {
		return text, true
	}
	var b strings.Builder
	b.Grow(len(text))
	for ; at >= 0; at = strings.IndexByte(text, '%') {
		if len(text) < at+3 {
			return "", false
		}
		high, low := hexDigit(text[at+1]), hexDigit(text[at+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteString(text[:at])
		b.WriteByte(byte(high<<4 | low))
		text = text[at+3:]
	}
	b.WriteString(text)
	return b.String(), true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// plain texts may stand in a header as they are: printable ASCII without spaces at the ends, which brokers trim.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && text[0] != ' ' && text[len(text)-1] != ' '
}

// bare reports whether a header of the event keeps its name and value: those that tracing looks for.
func bare(name, value string) bool {
	return (name == eventstore.HeaderTraceparent || name == eventstore.HeaderTracestate) && plain(value)
}
