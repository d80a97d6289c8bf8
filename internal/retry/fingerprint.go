package retry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/daybook-go/daybook/eventstore"
)

// maxMasked bounds how much of an error's text a fingerprint looks at, in bytes.
const maxMasked = 4096

// Fingerprint groups failures of one cause: 16 hexadecimal digits made of the handler, the kind, the types of err and of
// everything that it wraps, their SQLSTATEs (of what has a method SQLState() string), and the texts of the innermost
// errors without what differs from message to message: quoted strings, UUIDs, numbers, hexadecimal digits and other words
// with a digit in them. How often a type or a text occurs does not matter, nor how many such values follow each other.
//
// It is stored: a change of what goes into it splits the groups that there are.
func Fingerprint(handler string, kind eventstore.FailureKind, err error) string {
	var types, states, texts []string
	once := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	walk(err, func(err error, last bool) {
		once(&types, fmt.Sprintf("%T", err))
		if state := stateOf(err); state != "" {
			once(&states, state)
		}
		if last && len(texts) < maxTexts {
			once(&texts, mask(clean(textOf(err), maxMasked)))
		}
	})
	hash := sha256.New()
	for _, list := range [][]string{{handler, kind.String()}, types, states, texts} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(list)))
		hash.Write(size[:])
		for _, s := range list {
			binary.BigEndian.PutUint64(size[:], uint64(len(s)))
			hash.Write(size[:])
			hash.Write([]byte(s))
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

const (
	masked     = '#'
	separators = " ,.:;-+_/\t\n"
)

// mask puts one # for values that differ from message to message.
func mask(text string) string {
	out := make([]byte, 0, len(text))
	last := -1 // where the last # is in out
	put := func() {
		if last >= 0 && strings.Trim(string(out[last+1:]), separators) == "" {
			out = out[:last+1] // one for a list, a time, a number with its fraction
			return
		}
		if n := len(out); n > 0 && (out[n-1] == '-' || out[n-1] == '+') && (n == 1 || strings.IndexByte(separators+"(=[<>", out[n-2]) >= 0) {
			out = out[:n-1] // a sign
		}
		last = len(out)
		out = append(out, masked)
	}
	before := ' '                // the rune before text
	var open [utf8.RuneSelf]bool // quotes that end nowhere: they are not looked for again
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == '"' || (r == '\'' || r == '`') && !wordy(before) && !open[r]:
			if n := quoted(text, byte(r)); n > 0 {
				put()
				size, r = n, ' '
			} else {
				open[r] = true
				out = append(out, text[:size]...)
			}
		case wordy(r):
			size = word(text)
			if varies(text[:size]) {
				put()
			} else {
				out = append(out, text[:size]...)
			}
		default:
			out = append(out, text[:size]...)
		}
		before, text = r, text[size:]
	}
	return string(out)
}

func wordy(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// word is the length of the UUID or the word that text begins with.
func word(text string) int {
	if isUUID(text) {
		return 36
	}
	if end := strings.IndexFunc(text, func(r rune) bool { return !wordy(r) }); end >= 0 {
		return end
	}
	return len(text)
}

// varies: a word with a digit is a number, a duration, an identifier. Eight or more letters that are all hexadecimal
// digits are no word of any text.
func varies(word string) bool {
	if strings.ContainsFunc(word, unicode.IsDigit) || isUUID(word) {
		return true
	}
	return len(word) >= 8 && strings.Trim(word, "abcdefABCDEF") == ""
}

func isUUID(text string) bool {
	if len(text) < 36 {
		return false
	}
	for i := range 36 {
		c := text[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	after, _ := utf8.DecodeRuneInString(text[36:])
	return len(text) == 36 || !wordy(after)
}

// quoted is the length of the quoted string that text begins with, 0 when it ends nowhere. A double quote that ends
// nowhere was cut off: it goes to the end. A single one at the end of a word is an apostrophe.
func quoted(text string, quote byte) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote:
			if after, _ := utf8.DecodeRuneInString(text[i+1:]); quote == '"' || i+1 == len(text) || !wordy(after) {
				return i + 1
			}
		}
	}
	if quote == '"' {
		return len(text)
	}
	return 0
}
