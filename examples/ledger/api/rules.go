package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// broken is a rule that an entry breaks.
func broken(field, value, rule, detail, remedy string) *problem {
	return &problem{
		Type: typeOf("rule"), Title: "The entry breaks a rule", Status: http.StatusUnprocessableEntity,
		Field: field, Value: short(value), Rule: rule, Detail: detail, Remedy: remedy,
	}
}

// ruled makes a problem of what a rule said, or nil of an error that is not a rule's.
func ruled(err error, in posted) *problem {
	var rule *journal.RuleError
	if errors.As(err, &rule) {
		field := rule.Field
		if i := rule.Line - 1; i >= 0 {
			field = fieldOf(i, field)
		}
		p := broken(field, "", rule.Rule, rule.Detail, rule.Remedy)
		p.Value = rule.Value // safe to show
		return p
	}
	var rejected *book.RejectedError
	if !errors.As(err, &rejected) {
		return nil
	}
	field, value := "account", rejected.Account
	if i := rejected.Line - 1; i >= 0 && i < len(in.Postings) {
		if field = fieldOf(i, "account"); !errors.Is(err, account.ErrNotOpen) {
			field, value = fieldOf(i, "amount"), in.Postings[i].Amount
		}
	}
	// The texts are "rule NAME: what: detail: remedy", or without a detail.
	name, rest, _ := strings.Cut(strings.TrimPrefix(rejected.Err.Error(), "rule "), ": ")
	detail, remedy := rest, ""
	if i := strings.LastIndex(rest, ": "); i >= 0 {
		detail, remedy = rest[:i], rest[i+2:]
	}
	return broken(field, value, name, detail, remedy)
}
