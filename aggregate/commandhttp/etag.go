package commandhttp

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-go/daybook/eventstore"
)

// maxTags is how many entity tags a header may list.
const maxTags = 32

// ETag is the strong entity tag of a version of a stream: "v7", with the quotes. That of a stream without events is "".
func ETag(v eventstore.Version) string {
	if v <= 0 {
		return ""
	}
	return `"v` + strconv.FormatInt(int64(v), 10) + `"`
}

// contentETag is the strong entity tag of a body, for what has no version.
func contentETag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"b` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
}

// entityTag is one of RFC 9110, section 8.8.3.
type entityTag struct {
	weak bool
	text string // with its quotes
}

// version returns the version that the tag stands for when it is one of ours.
func (t entityTag) version() (eventstore.Version, bool) {
	digits, ours := strings.CutPrefix(t.text, `"v`)
	if t.weak || !ours {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(digits, `"`), 10, 64)
	v := eventstore.Version(n)
	return v, err == nil && ETag(v) == t.text // no "v007"
}

// tagList is the value of If-Match or If-None-Match.
type tagList struct {
	present bool
	any     bool // "*"
	tags    []entityTag
}

// matches compares as the header asks: weak tags match only when weakly is true (RFC 9110, section 8.8.3.2). A current tag
// of "" means that nothing is there.
func (l tagList) matches(current string, weakly bool) bool {
	if current == "" {
		return false
	}
	return l.any || slices.ContainsFunc(l.tags, func(t entityTag) bool { return t.text == current && (weakly || !t.weak) })
}

// tagsOf reads a header that is "*" or a list of entity tags.
func tagsOf(h http.Header, name string) (tagList, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return tagList{}, nil
	}
	s := scanner{text: strings.Join(values, ",")}
	l := tagList{present: true}
	invalid := func(detail string) (tagList, error) {
		return tagList{}, &Problem{
			Kind: kindSyntax, Field: name, Value: Shorten(s.text), Detail: detail,
			Remedy: `send an ETag as it came, such as "v7", several of them with commas in between, or * alone`,
		}
	}
	for {
		s.spaces()
		switch {
		case s.end():
			if !l.any && len(l.tags) == 0 {
				return invalid("it lists no entity tag")
			}
			return l, nil
		case s.take(','): // a list may have empty elements
			continue
		case s.take('*'):
			if l.any || len(l.tags) > 0 {
				return invalid("* does not stand alone")
			}
			l.any = true
		default:
			tag, ok := readTag(&s)
			switch {
			case !ok:
				return invalid("it is no list of entity tags")
			case l.any:
				return invalid("* does not stand alone")
			case len(l.tags) == maxTags:
				return invalid("it lists more than " + strconv.Itoa(maxTags) + " entity tags")
			}
			l.tags = append(l.tags, tag)
		}
		if s.spaces(); !s.end() && !s.take(',') {
			return invalid("it is no list of entity tags")
		}
	}
}

func readTag(s *scanner) (t entityTag, ok bool) {
	if strings.HasPrefix(s.text[s.at:], "W/") {
		t.weak = true
		s.at += len("W/")
	}
	from := s.at
	if !s.take('"') {
		return t, false
	}
	s.while(func(c byte) bool { return c == 0x21 || c >= 0x23 && c != 0x7f })
	if !s.take('"') {
		return t, false
	}
	t.text = s.text[from:s.at]
	return t, true
}

// noVersion is a claim that no stream meets, so that the answer says what is there.
const noVersion = eventstore.Version(math.MaxInt64 >> 1)

// claims are the versions that a write is right for: it is tried with the first, and with another one of them when that is
// the one that is there.
type claims []eventstore.ExpectedVersion

// claimsOf reads the preconditions of a write. Those that cannot be heeded are refused: nothing that a caller relies on is
// passed over.
func claimsOf(h http.Header, rule Precondition) (claims, error) {
	match, err := tagsOf(h, "If-Match")
	if err != nil {
		return nil, err
	}
	none, err := tagsOf(h, "If-None-Match")
	if err != nil {
		return nil, err
	}
	never := claims{eventstore.Exactly(noVersion)}
	switch {
	case !match.present && !none.present:
		if rule == Required {
			return nil, &Problem{Kind: kindNeedsMatch, Field: "If-Match"}
		}
		return nil, nil
	case rule == Unversioned:
		field := "If-Match"
		if !match.present {
			field = "If-None-Match"
		}
		return nil, &Problem{
			Kind: kindPrecondition, Title: "The request cannot be made conditional", Field: field, Value: Shorten(h.Get(field)),
			Detail: "what it changes has no version of its own", Remedy: "send it without " + field,
		}
	case none.present && !none.any:
		return nil, &Problem{
			Kind: kindSyntax, Field: "If-None-Match", Value: Shorten(h.Get("If-None-Match")),
			Detail: "a write that needs another version than some is not known here", Remedy: "send If-None-Match: * to create, or If-Match with an ETag",
		}
	case none.present && match.present:
		return never, nil // both cannot be
	case none.present:
		return claims{eventstore.NoStream}, nil
	case match.any:
		return claims{eventstore.StreamExists}, nil
	}
	var out claims
	for _, t := range match.tags {
		if v, ok := t.version(); ok {
			out = append(out, eventstore.Exactly(v))
		}
	}
	if len(out) == 0 {
		return never, nil
	}
	return out, nil
}
