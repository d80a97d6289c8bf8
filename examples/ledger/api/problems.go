package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// problems are the ledger's own among the types of problems; the list is at GET /problems.
var problems = commandhttp.NewProblems("urn:daybook:ledger:",
	commandhttp.ProblemType{Name: "rule", Title: "The request breaks a rule", Remedy: "see rule and detail"},
	commandhttp.ProblemType{
		Name: "no-entry", Status: http.StatusNotFound, Title: "There is no such entry", Remedy: "use the key that the post was answered with",
		For: entry.ErrNotRecorded, Code: "entry-exists",
	},
	commandhttp.ProblemType{
		Name: "no-account", Status: http.StatusNotFound, Title: "There is no such account", Remedy: "open it, or look for its name among the balances",
	},
	commandhttp.ProblemType{
		Name: "reversed", Status: http.StatusConflict, Title: "The entry was reversed before", Remedy: "reverse the reversal to take it back",
		For: entry.ErrReversed, Code: "reversed-once",
	},
	commandhttp.ProblemType{
		Name: "name-used", Status: http.StatusConflict, Title: "The key was given to another entry", Remedy: "post this entry under a key of its own",
		For: entry.ErrKeyUsed, Code: "key-once",
	},
	commandhttp.ProblemType{
		Name: "not-open", Title: "The account is not open", Remedy: "open it first", For: account.ErrNotOpen, Code: "account-open",
	},
	commandhttp.ProblemType{
		Name: "below-zero", Title: "The account never goes below zero", Remedy: "correct the amount, or post what comes in first",
		For: account.ErrBelowZero, Code: "never-below-zero",
	},
	commandhttp.ProblemType{
		Name: "too-many-digits", Title: "The amounts of the account no longer fit 19 digits", Remedy: "go on with a new account",
		For: account.ErrTooManyDigits, Code: "exact-sums",
	},
	commandhttp.ProblemType{
		Name: "other-terms", Title: "The account is open on other terms", Remedy: "leave it as it is, or change its terms",
		For: account.ErrOtherTerms, Code: "open-once",
	},
	commandhttp.ProblemType{
		Name: "stale", Title: "The read model does not show the entry yet",
		Remedy: "ask again with the same token, or with Prefer: handling=lenient for the balances as they are; do not post again",
	},
	commandhttp.ProblemType{
		Name: "unavailable", Title: "The database does not answer", Remedy: "send the same request again, with the same Idempotency-Key: it takes effect once",
	},
)

// kindOf is the type of the problem of a rule.
func kindOf(rule string) string {
	for _, t := range problems.Types() {
		if t.Code == rule && rule != "" {
			return t.Name
		}
	}
	return "rule"
}

// broken makes a problem of what a rule says about a command by itself, or nil of an error that is not a rule's.
func broken(err error) *commandhttp.Problem {
	var rule *journal.RuleError
	if !errors.As(err, &rule) {
		return nil
	}
	return &commandhttp.Problem{
		Kind: "rule", Field: fieldOf(rule.Line, rule.Field), Value: rule.Value, Rule: rule.Rule, Detail: rule.Detail, Remedy: rule.Remedy,
	}
}

// rejected makes a problem of what a rule said about the state of the ledger, perhaps long ago or in another process. The
// text has all of it, and is what is left of a refusal when it is repeated; nil is for a text of somebody else's.
func rejected(_, text string) *commandhttp.Problem {
	r, ok := book.ParseRejection(text)
	if !ok {
		return nil
	}
	p := &commandhttp.Problem{Kind: kindOf(r.Rule), Rule: r.Rule, Detail: r.Detail, Remedy: r.Remedy}
	if r.Account != "" {
		p.Field, p.Value = fieldOf(r.Line, "account"), commandhttp.Shorten(r.Account)
	}
	return p
}

// fieldOf names a member of a posting, which lines count from 1, or of the entry.
func fieldOf(line int, name string) string {
	if line < 1 {
		return name
	}
	return fmt.Sprintf("postings[%d].%s", line-1, name)
}

// away tells the database's troubles, after which the same request may succeed, from mistakes of ours and from what
// has problems of its own.
func away(err error) *commandhttp.Problem {
	if eventstore.IsRetryable(err) {
		return nil
	}
	for _, other := range []error{
		eventstore.ErrUnknownType, eventstore.ErrInvalid, eventstore.ErrHistory, eventstore.ErrUnconfirmed, eventstore.ErrStreamNotFound,
		aggregate.ErrExists, aggregate.ErrRefused, aggregate.ErrMisuse, bus.ErrNoOperation, bus.ErrUnknownCommand, bus.ErrKeyUnused,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, other) {
			return nil
		}
	}
	var (
		decode   *eventstore.DecodeError
		panicked *bus.PanicError
		pg       *pgconn.PgError
	)
	if errors.As(err, &decode) || errors.As(err, &panicked) || errors.As(err, &pg) && !passing(pg.Code) {
		return nil
	}
	return &commandhttp.Problem{Kind: "unavailable", RetryAfter: retryAway, Err: err}
}

// passing reports whether an error of the server says something about the moment.
func passing(code string) bool {
	for _, class := range []string{"08", "25006", "40", "53", "55P03", "57", "58"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}
