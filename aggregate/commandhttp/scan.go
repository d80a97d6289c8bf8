package commandhttp

import "strings"

// scanner reads the value of a header from the left.
type scanner struct {
	text string
	at   int
}

func (s *scanner) end() bool { return s.at >= len(s.text) }

// spaces skips blanks and tabs.
func (s *scanner) spaces() {
	for !s.end() && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// take skips c if it is next.
func (s *scanner) take(c byte) bool {
	if s.end() || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// while returns the longest run of bytes that are accepted.
func (s *scanner) while(accept func(byte) bool) string {
	from := s.at
	for !s.end() && accept(s.text[s.at]) {
		s.at++
	}
	return s.text[from:s.at]
}

// token reads a token of RFC 9110; "" if none is next.
func (s *scanner) token() string { return s.while(isTokenByte) }

// quoted reads a quoted-string of RFC 9110 whose first quote is next.
func (s *scanner) quoted() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	var out strings.Builder
	for !s.end() {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return out.String(), true
		case c == '\\':
			if s.end() {
				return "", false
			}
			c = s.text[s.at]
			s.at++
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
		out.WriteByte(c)
	}
	return "", false
}

// past moves behind the next comma that is not quoted, to go on after what cannot be read.
func (s *scanner) past() {
	for !s.end() {
		switch s.text[s.at] {
		case ',':
			s.at++
			return
		case '"':
			if _, ok := s.quoted(); !ok {
				s.at = len(s.text)
			}
		default:
			s.at++
		}
	}
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
