package account

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// The rules of an account. The texts begin with the rule's name.
var (
	ErrNotOpen       = errors.New("rule account-open: the account is not open")
	ErrBelowZero     = errors.New("rule never-below-zero: the account never goes below zero")
	ErrTooManyDigits = fmt.Errorf("rule exact-sums: the account's amounts no longer fit %d digits", decimal.MaxPrec)
	ErrOtherTerms    = errors.New("rule open-once: the account is open already, on other terms")
)

// Refusals are the rules as the outcomes of commands name them.
var Refusals = []aggregate.Refusal{
	aggregate.Refuses("account-open", ErrNotOpen),
	aggregate.Refuses("never-below-zero", ErrBelowZero),
	aggregate.Refuses("exact-sums", ErrTooManyDigits),
	aggregate.Refuses("open-once", ErrOtherTerms),
}

// Event is what can happen to an account.
//
//sumtype:decl
type Event interface{ accountEvent() }

// Opened: the account takes postings from now on.
type Opened struct {
	NeverBelowZero bool
}

// Posted: an entry moved an amount into the account, or out of it when the amount is negative.
type Posted struct {
	// Entry is the key of the entry, Date and Description are the entry's own.
	Entry       string
	Date        journal.Date
	Description string
	Amount      decimal.Decimal
	Commodity   string
}

// TermsChanged: other terms hold for the postings that follow.
type TermsChanged struct {
	NeverBelowZero bool
}

func (Opened) accountEvent()       {}
func (Posted) accountEvent()       {}
func (TermsChanged) accountEvent() {}

// Type is the kind of aggregate; an account's id is its full name, such as "assets:cash".
//
// No event is declared as unaffected by another (aggregate.Unaffected), although most accounts could take postings in
// any order: what is declared holds for a type of event, so for every account, and a posting to an account that may not
// go below zero is right only after the postings it was decided on, as is one to an account whose amounts are about to
// fill all digits.
var Type = aggregate.Define("account", Account.Evolve, Events)

// Events are the events of an account and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Opened]("account.opened"),
	eventstore.TypeOf[Posted]("account.posted"),
	eventstore.TypeOf[TermsChanged]("account.terms-changed"))

// Account is the state that decisions are made on.
type Account struct {
	Open           bool
	NeverBelowZero bool
	// Holdings are by commodity.
	Holdings map[string]Holding
}

// Holding is what an account has of one commodity.
type Holding struct {
	// Balance is the sum of all amounts.
	Balance decimal.Decimal
	// Turnover is the sum of all amounts without their signs. It bounds every sum that can be made of them.
	Turnover decimal.Decimal
}

// Evolve folds an event into the state.
func (a Account) Evolve(e Event) Account {
	switch e := e.(type) {
	case Opened:
		a.Open, a.NeverBelowZero = true, e.NeverBelowZero
	case Posted:
		if a.Holdings == nil {
			a.Holdings = make(map[string]Holding)
		}
		// What was stored was decided by Post, which has made this sum.
		a.Holdings[e.Commodity], _ = a.Holdings[e.Commodity].plus(e.Amount)
	case TermsChanged:
		a.NeverBelowZero = e.NeverBelowZero
	}
	return a
}

// Open asks for an account that takes postings.
type Open struct {
	// NeverBelowZero: no commodity may ever have a negative balance.
	NeverBelowZero bool
}

// Decide opens the account. Asking again for the same is a success without an event.
func (c Open) Decide(a Account) ([]Event, error) {
	switch {
	case !a.Open:
		return []Event{Opened(c)}, nil
	case a.NeverBelowZero != c.NeverBelowZero:
		return nil, fmt.Errorf("%w: leave it as it is, or use another account", ErrOtherTerms)
	}
	return nil, nil
}

// ChangeTerms asks for other terms from now on.
type ChangeTerms struct {
	// NeverBelowZero: no commodity may have a negative balance any more.
	NeverBelowZero bool
}

// Decide changes the terms, unless what the account holds is against them. Asking for the present ones is a success
// without an event.
func (c ChangeTerms) Decide(a Account) ([]Event, error) {
	switch {
	case !a.Open:
		return nil, fmt.Errorf("%w: open it first", ErrNotOpen)
	case a.NeverBelowZero == c.NeverBelowZero:
		return nil, nil
	}
	if c.NeverBelowZero {
		for _, commodity := range slices.Sorted(maps.Keys(a.Holdings)) {
			if balance := a.Holdings[commodity].Balance; balance.IsNeg() {
				return nil, fmt.Errorf("%w: it holds %s %s: post what is missing first", ErrBelowZero, balance, commodity)
			}
		}
	}
	return []Event{TermsChanged(c)}, nil
}

// Post asks to move an amount as part of an entry.
type Post struct {
	Entry       string
	Date        journal.Date
	Description string
	Amount      decimal.Decimal
	Commodity   string
}

// Decide posts the amount if the rules of the account allow it.
func (c Post) Decide(a Account) ([]Event, error) {
	if !a.Open {
		return nil, fmt.Errorf("%w: open it first", ErrNotOpen)
	}
	before := a.Holdings[c.Commodity]
	after, err := before.plus(c.Amount)
	if err != nil {
		return nil, fmt.Errorf("%w: go on with a new account", ErrTooManyDigits)
	}
	if a.NeverBelowZero && after.Balance.IsNeg() {
		return nil, fmt.Errorf("%w: a posting of %s to a balance of %s %s would leave %s: correct the amount, or post what comes in first",
			ErrBelowZero, c.Amount, before.Balance, c.Commodity, after.Balance)
	}
	return []Event{Posted(c)}, nil
}

// plus is the holding after an amount, or an error where a sum would have to be rounded.
func (h Holding) plus(amount decimal.Decimal) (Holding, error) {
	turnover, err := h.Turnover.AddExact(amount.Abs(), max(h.Turnover.Scale(), amount.Scale()))
	if err != nil {
		return h, err
	}
	balance, err := journal.Add(h.Balance, amount)
	return Holding{Balance: balance, Turnover: turnover}, err
}
