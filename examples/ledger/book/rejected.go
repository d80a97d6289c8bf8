package book

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// RejectedError says which posting a rule refused. Nothing of the entry was written.
type RejectedError struct {
	// Line is the line of the posting, or of the entry; 0 when it was not read from a file.
	Line int
	// Account is empty when the rule is the entry's own.
	Account string
	// Err is the rule's own error.
	Err error
}

const beginning = "book: rejected"

// Error is a text that [ParseRejection] reads.
func (e *RejectedError) Error() string {
	text := beginning
	if e.Line > 0 {
		text += fmt.Sprintf(": line %d", e.Line)
	}
	if e.Account != "" {
		text += fmt.Sprintf(": account %q", e.Account)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the rule's own error.
func (e *RejectedError) Unwrap() error { return e.Err }

// rejected wraps what a rule said. An error that is not a rule's passes through, as does nil.
func rejected(line int, name string, err error) error {
	for _, rule := range rules {
		if errors.Is(err, rule) {
			return &RejectedError{Line: line, Account: name, Err: err}
		}
	}
	return err
}

var rules = []error{
	journal.ErrRule, entry.ErrNotRecorded, entry.ErrReversed, entry.ErrKeyUsed,
	account.ErrNotOpen, account.ErrBelowZero, account.ErrTooManyDigits, account.ErrOtherTerms,
}

// Rejection is what the text of a [*RejectedError] says. Of a refusal that is repeated, or that another process met, the
// text is what there is.
type Rejection struct {
	Line    int
	Account string
	// Rule is the name of the rule, Detail what was wrong, Remedy what to do.
	Rule, Detail, Remedy string
}

// ParseRejection reads the text of a [*RejectedError] whose rule is one of an account or an entry.
func ParseRejection(text string) (Rejection, bool) {
	var r Rejection
	rest, ok := strings.CutPrefix(text, beginning+": ")
	if after, found := strings.CutPrefix(rest, "line "); found {
		digits, behind, _ := strings.Cut(after, ": ")
		r.Line, _ = strconv.Atoi(digits)
		rest = behind
	}
	if after, found := strings.CutPrefix(rest, "account "); found {
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return Rejection{}, false
		}
		r.Account, _ = strconv.Unquote(quoted) // QuotedPrefix has seen that it is
		rest = strings.TrimPrefix(after[len(quoted):], ": ")
	}
	rest, found := strings.CutPrefix(rest, "rule ")
	if !ok || !found {
		return Rejection{}, false
	}
	// The rest is "NAME: what: detail: remedy", or without a detail.
	r.Rule, rest, _ = strings.Cut(rest, ": ")
	r.Detail = rest
	if i := strings.LastIndex(rest, ": "); i >= 0 {
		r.Detail, r.Remedy = rest[:i], rest[i+2:]
	}
	return r, true
}
