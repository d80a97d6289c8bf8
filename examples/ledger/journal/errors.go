package journal

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	// ErrSyntax is matched by every [*SyntaxError].
	ErrSyntax = errors.New("journal: not a journal in CSV")
	// ErrRule is matched by every [*RuleError].
	ErrRule = errors.New("journal: entry breaks a rule")
)

// SyntaxError says where a file is not a journal in CSV and what to do.
type SyntaxError struct {
	// File is the name given to Read.
	File string
	// Line counts from 1. For a quoted field of several lines it is the first.
	Line int
	// Column is the name in the header, or empty when the fault is the row's.
	Column string
	// Value is the offending field, shortened and escaped so that it is safe
	// to print, or empty.
	Value string
	// Reason says what is wrong, Remedy what to do about it.
	Reason, Remedy string
}

func (e *SyntaxError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "journal: read %s: line %d", e.File, e.Line)
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %q", e.Column)
	}
	if e.Value != "" {
		fmt.Fprintf(&b, ", value \"%s\"", e.Value)
	}
	return b.String() + ": " + e.Reason + ": " + e.Remedy
}

// Is matches ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// RuleError says which rule an entry breaks and on which line.
type RuleError struct {
	// Rule is one of the Rule constants.
	Rule string
	// Line is the entry's first line, or the posting's where one posting is at
	// fault; 0 when the entry was not read from a file.
	Line int
	// Field says what of the entry or of the posting is at fault: "postings", "description", "account" or "commodity".
	Field string
	// Value is the offending text, shortened and escaped so that it is safe to print, or empty.
	Value string
	// Detail says what is wrong, with the values, and Remedy what to do.
	Detail, Remedy string
}

func (e *RuleError) Error() string {
	where := "entry"
	if e.Line > 0 {
		where = "entry at line " + strconv.Itoa(e.Line)
	}
	return fmt.Sprintf("journal: check %s: rule %s: %s: %s", where, e.Rule, e.Detail, e.Remedy)
}

// Is matches ErrRule.
func (e *RuleError) Is(target error) bool { return target == ErrRule }

const shownBytes = 40

// Shorten makes a text from outside safe to show: at most 40 bytes, and those of control characters escaped.
func Shorten(s string) string { return show(s) }

// show shortens and escapes a value from a file: an error may be printed on a
// terminal, and the value may be a megabyte of control characters.
func show(s string) string {
	more := ""
	if len(s) > shownBytes {
		cut := shownBytes
		for cut > shownBytes-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s, more = s[:cut], "…"
	}
	quoted := strconv.Quote(s)
	return quoted[1:len(quoted)-1] + more
}
