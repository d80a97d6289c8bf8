package commandhttp

import (
	"net/http"
	"strconv"
	"strings"
)

const (
	// KeyHeader carries the caller's own name for a request, so that the request takes effect once.
	KeyHeader = "Idempotency-Key"
	// ReplayedHeader is "true" on the answer to a request whose key is known: the answer is that of the first.
	ReplayedHeader = "Idempotency-Replayed"

	maxKey = 255
)

// keyOf reads the Idempotency-Key: a string of RFC 9651 in quotes, as the draft of the IETF has it, or the same text
// without quotes. It is "" when there is none.
func keyOf(h http.Header) (string, error) {
	values := h.Values(KeyHeader)
	refuse := func(detail, remedy string) (string, error) {
		return "", &Problem{Kind: kindSyntax, Field: KeyHeader, Value: Shorten(strings.Join(values, ", ")), Detail: detail, Remedy: remedy}
	}
	invalid := func(detail string) (string, error) {
		return refuse(detail, `send one text of visible characters in quotes, such as "8e03978e-40d5-43dd-bc93-6894a57f9324"`)
	}
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return invalid("it is there more than once")
	}
	s := scanner{text: values[0]}
	s.spaces()
	key, ok := "", true
	quoted := !s.end() && s.text[s.at] == '"'
	if quoted {
		if key, ok = structuredString(&s); ok && s.take(';') {
			s.at = len(s.text) // parameters say nothing that is known here
		}
	} else {
		key = s.while(func(c byte) bool { return isTokenByte(c) || c == ':' || c == '/' || c == '=' || c == '@' })
	}
	s.spaces()
	switch {
	case !quoted && !s.end() && !strings.ContainsFunc(s.text, func(r rune) bool { return r < ' ' || r > '~' }):
		return invalid("it needs quotes, as it has spaces or signs that stand in quotes only")
	case !ok || !s.end():
		return invalid("it is not a text of visible characters in quotes")
	case key == "":
		return invalid("it is empty")
	case len(key) > maxKey:
		return refuse("it has more than "+strconv.Itoa(maxKey)+" characters", "shorten it, for example to a UUID")
	}
	return key, nil
}

// structuredString reads a string of RFC 9651 whose first quote is next: ASCII without control characters, in which only a
// quote and a backslash follow a backslash.
func structuredString(s *scanner) (string, bool) {
	s.at++
	var out strings.Builder
	for !s.end() {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return out.String(), true
		case c == '\\':
			if s.end() || s.text[s.at] != '"' && s.text[s.at] != '\\' {
				return "", false
			}
			c = s.text[s.at]
			s.at++
		case c < 0x20 || c > 0x7e:
			return "", false
		}
		out.WriteByte(c)
	}
	return "", false
}
