package retry

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxTexts = 20
	maxText  = 1000 // bytes
	// maxErrors ends the walk through errors that wrap themselves.
	maxErrors = 200
)

// Chain returns the texts of err and of everything that it wraps, joined errors as well, outermost first: at most 20, each
// of at most 1,000 bytes, valid UTF-8 without NUL, and none twice in a row. Of a longer chain it has the beginning and
// the innermost. It is nil for nil.
func Chain(err error) []string {
	var texts []string
	walk(err, func(err error, _ bool) {
		text := clean(textOf(err), maxText)
		switch n := len(texts); {
		case n > 0 && texts[n-1] == text:
		case n < maxTexts:
			texts = append(texts, text)
		case texts[n-2] != text:
			texts[n-1] = text
		}
	})
	return texts
}

// maxReason is what a text may be that stands for itself, in bytes.
const maxReason = 10_000

// Text makes a text what PostgreSQL stores: valid UTF-8 without NUL, of at most 10,000 bytes.
func Text(text string) string { return clean(text, maxReason) }

// walk visits err and what it wraps, outermost first. last says that an error wraps nothing.
func walk(err error, visit func(err error, last bool)) {
	left := maxErrors
	var step func(error)
	step = func(err error) {
		if err == nil || left == 0 {
			return
		}
		left--
		wrapped := wrappedBy(err)
		visit(err, len(wrapped) == 0)
		for _, w := range wrapped {
			step(w)
		}
	}
	step(err)
}

// wrappedBy, textOf and stateOf call methods that users wrote, of values that may be nil pointers. A failure is written
// down also when it cannot describe itself.
func wrappedBy(err error) (wrapped []error) {
	defer func() {
		if recover() != nil {
			wrapped = nil
		}
	}()
	switch e := err.(type) { //nolint:errorlint // this is how a chain is walked
	case interface{ Unwrap() error }:
		if w := e.Unwrap(); w != nil {
			return []error{w}
		}
	case interface{ Unwrap() []error }:
		for _, w := range e.Unwrap() {
			if w != nil {
				wrapped = append(wrapped, w)
			}
		}
	}
	return wrapped
}

func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("(a %T that cannot say what it is)", err)
		}
	}()
	return err.Error()
}

func stateOf(err error) (state string) {
	defer func() {
		if recover() != nil {
			state = ""
		}
	}()
	if e, ok := err.(interface{ SQLState() string }); ok { //nolint:errorlint // of this error, not of one that it wraps
		return e.SQLState()
	}
	return ""
}

// clean makes text what PostgreSQL stores, of at most limit bytes.
func clean(text string, limit int) string {
	long := len(text) > 4*limit
	if long { // before work is done on megabytes
		text = text[:4*limit]
	}
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.ReplaceAll(text, "\x00", string(utf8.RuneError))
	const more = "…"
	if !long && len(text) <= limit {
		return text
	}
	end := min(limit-len(more), len(text))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
