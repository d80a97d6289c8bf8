package commands

import (
	"fmt"
	"unicode"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// PostEntry asks for an entry with its postings. Accounts that are not open are opened.
type PostEntry struct {
	// Key is the caller's own name for the entry, or empty: then the entry is named after the command; see [EntryKey].
	Key         string    `json:"key,omitempty"`
	Date        string    `json:"date"`
	Description string    `json:"description"`
	Postings    []Posting `json:"postings"`
}

// Posting moves an amount into an account, or out of it. Amounts are texts, because JSON's numbers are floats to many.
type Posting struct {
	Account   string `json:"account"`
	Amount    string `json:"amount"`
	Commodity string `json:"commodity"`
}

// ReverseEntry asks for an entry that takes another one back.
type ReverseEntry struct {
	// Key is that of the entry to take back.
	Key string `json:"key,omitempty"`
	// Date is that of the new entry.
	Date string `json:"date"`
}

// OpenAccount asks for an account on terms.
type OpenAccount struct {
	Name           string `json:"name"`
	NeverBelowZero bool   `json:"neverBelowZero"`
}

// ChangeTerms asks for other terms of an account.
type ChangeTerms struct {
	Name           string `json:"name,omitempty"`
	NeverBelowZero bool   `json:"neverBelowZero"`
}

// The commands and the names under which they are sent. Those about one stream are carried out in the order in which they
// were sent; entries stand alone.
var (
	PostEntryType    = bus.TypeOf[PostEntry]("ledger.post-entry", bus.EncodedAs(eventstore.JSON))
	ReverseEntryType = bus.TypeOf[ReverseEntry]("ledger.reverse-entry", bus.EncodedAs(eventstore.JSON))
	OpenAccountType  = bus.TypeOf[OpenAccount]("ledger.open-account", bus.EncodedAs(eventstore.JSON), bus.Target(OpenAccount.stream))
	ChangeTermsType  = bus.TypeOf[ChangeTerms]("ledger.change-terms", bus.EncodedAs(eventstore.JSON), bus.Target(ChangeTerms.stream))
)

func (c OpenAccount) stream() string { return account.Type.Stream(c.Name).String() }
func (c ChangeTerms) stream() string { return account.Type.Stream(c.Name).String() }

const maxKey = 200

// Validate reports what no state of the ledger could make right, as a [*journal.RuleError] whose line counts the
// postings from 1.
func (c PostEntry) Validate() error {
	if len(c.Key) > maxKey || containsControl(c.Key) {
		return broken(0, "key", c.Key, journal.RuleText, fmt.Sprintf("the key has more than %d bytes, or a control character", maxKey), "use a UUID or a number")
	}
	e, err := c.entry()
	if err != nil {
		return err
	}
	return journal.Check(e)
}

// Validate reports a date that is none, as a [*journal.RuleError].
func (c ReverseEntry) Validate() error {
	_, err := dateOf(c.Date)
	return err
}

// Validate reports a name that no account can have, as a [*journal.RuleError].
func (c OpenAccount) Validate() error { return journal.CheckAccount(c.Name) }

// Validate reports a name that no account can have, as a [*journal.RuleError].
func (c ChangeTerms) Validate() error { return journal.CheckAccount(c.Name) }

// entry reads the texts. Lines count the postings, so that a rule can say which one it means.
func (c PostEntry) entry() (journal.Entry, error) {
	date, err := dateOf(c.Date)
	if err != nil {
		return journal.Entry{}, err
	}
	if len(c.Postings) > journal.MaxPostings {
		return journal.Entry{}, broken(0, "postings", "", "few-postings",
			fmt.Sprintf("there are %d, more than %d", len(c.Postings), journal.MaxPostings), "split the entry")
	}
	if len(c.Description) > journal.MaxField {
		return journal.Entry{}, tooLong(0, "description", c.Description)
	}
	e := journal.Entry{Date: date, Description: c.Description}
	for i, p := range c.Postings {
		amount, err := journal.ParseAmount(p.Amount)
		if err != nil {
			return journal.Entry{}, broken(i+1, "amount", p.Amount, "plain-number",
				"it is not a plain number of at most 19 digits", "write digits with at most one point, such as -1000.00")
		}
		if len(p.Commodity) > journal.MaxField {
			return journal.Entry{}, tooLong(i+1, "commodity", p.Commodity)
		}
		e.Postings = append(e.Postings, journal.Posting{Line: i + 1, Account: p.Account, Amount: amount, Commodity: p.Commodity})
	}
	return e, nil
}

func dateOf(text string) (journal.Date, error) {
	date, err := journal.ParseDate(text)
	if err != nil {
		return date, broken(0, "date", text, "calendar", "it is not a day of the calendar", "write it YYYY-MM-DD, such as 2012-02-29")
	}
	return date, nil
}

func tooLong(line int, field, value string) error {
	return broken(line, field, value, "field-size", fmt.Sprintf("it has more than %d bytes", journal.MaxField), "shorten it")
}

func broken(line int, field, value, rule, detail, remedy string) error {
	return &journal.RuleError{Rule: rule, Line: line, Field: field, Value: journal.Shorten(value), Detail: detail, Remedy: remedy}
}

func containsControl(text string) bool {
	for _, r := range text {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}
