package commandhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// preferences are those of RFC 7240 that this package knows. A preference that cannot be read counts as not sent.
type preferences struct {
	// respondAsync: the caller would rather have 202 than wait.
	respondAsync bool
	// wait is how long the caller would wait, if waits.
	wait  time.Duration
	waits bool
	// lenient: the caller would rather have an older answer than none.
	lenient bool
}

// preferencesOf reads the headers Prefer. Of one preference that is there twice the first counts.
func preferencesOf(h http.Header) preferences {
	var out preferences
	seen := make(map[string]bool)
	s := scanner{text: strings.Join(h.Values("Prefer"), ",")}
	for !s.end() {
		name, value, ok := readPreference(&s)
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		switch name {
		case "respond-async":
			out.respondAsync = value == ""
		case "wait":
			if n, err := strconv.ParseUint(value, 10, 31); err == nil {
				out.wait, out.waits = time.Duration(n)*time.Second, true
			}
		case "handling":
			out.lenient = strings.EqualFold(value, "lenient")
		}
	}
	return out
}

// readPreference reads one preference with its parameters, which nothing here uses, and the comma behind it.
func readPreference(s *scanner) (name, value string, ok bool) {
	s.spaces()
	name, value, ok = readPair(s)
	for ok && s.take(';') {
		s.spaces()
		if s.end() || s.text[s.at] == ';' || s.text[s.at] == ',' {
			continue // an empty parameter
		}
		_, _, ok = readPair(s)
	}
	if ok && (s.end() || s.take(',')) {
		return name, value, true
	}
	s.past()
	return "", "", false
}

// readPair reads a name, and the value behind a "=" if there is one, and blanks on every side.
func readPair(s *scanner) (name, value string, ok bool) {
	name = strings.ToLower(s.token())
	s.spaces()
	if ok = name != ""; !ok || !s.take('=') {
		return name, "", ok
	}
	s.spaces()
	if !s.end() && s.text[s.at] == '"' {
		value, ok = s.quoted()
	} else {
		value = s.token()
	}
	s.spaces()
	return name, value, ok
}

// applied collects which preferences an answer has followed.
type applied []string

func (a *applied) wait(d time.Duration) {
	*a = append(*a, "wait="+strconv.FormatInt(int64(d/time.Second), 10))
}
func (a *applied) note(preference string) { *a = append(*a, preference) }

// write sets Preference-Applied.
func (a applied) write(h http.Header) {
	if len(a) > 0 {
		h.Set("Preference-Applied", strings.Join(a, ", "))
	}
}
