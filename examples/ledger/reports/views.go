package reports

import (
	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/projection"
)

// Place is where an amount lies.
type Place struct {
	Account   string
	Commodity string
}

// Day is a place on one day: the entry's own date, not the day of the import.
type Day struct {
	Account   string
	Commodity string
	Date      journal.Date
}

// Sum is the total of the amounts posted to a place, or to a place on one day.
type Sum struct {
	Amount decimal.Decimal
}

func place(e projection.Event[account.Posted]) Place {
	return Place{Account: e.Stream.ID, Commodity: e.Payload.Commodity}
}

func day(e projection.Event[account.Posted]) Day {
	return Day{Account: e.Stream.ID, Commodity: e.Payload.Commodity, Date: e.Payload.Date}
}

func (s Sum) posted(e projection.Event[account.Posted]) Sum {
	sum, err := journal.Add(s.Amount, e.Payload.Amount)
	if err != nil {
		panic(err) // no account allows it, and a view that stands still is better than one that is wrong
	}
	return Sum{Amount: sum}
}

func (s Sum) zero() bool { return s.Amount.IsZero() }

// Balances has a row per account and commodity.
var Balances = projection.View[Place, Sum]{
	Name: "balances", Version: 1, Events: account.Events,
	Folds: []projection.Fold[Place, Sum]{projection.On(place, Sum.posted)},
	Gone:  Sum.zero,
}

// Movements has a row per account, commodity and day.
var Movements = projection.View[Day, Sum]{
	Name: "movements", Version: 1, Events: account.Events,
	Folds: []projection.Fold[Day, Sum]{projection.On(day, Sum.posted)},
	Gone:  Sum.zero,
}

// Summary is what is kept of an entry.
type Summary struct {
	Date        journal.Date
	Description string
	Postings    int
	// Reverses and ReversedBy are keys of other entries, or empty.
	Reverses   string
	ReversedBy string
}

func (s Summary) recorded(e projection.Event[entry.Recorded]) Summary {
	s.Date, s.Description, s.Postings, s.Reverses = e.Payload.Date, e.Payload.Description, len(e.Payload.Postings), e.Payload.Reverses
	return s
}

func (s Summary) reversed(e projection.Event[entry.Reversed]) Summary {
	s.ReversedBy = e.Payload.By
	return s
}

// Entries has a row per entry, by its key.
var Entries = projection.View[string, Summary]{
	Name: "entries", Version: 1, Events: entry.Events,
	Folds: []projection.Fold[string, Summary]{
		projection.On(projection.ByStream, Summary.recorded),
		projection.On(projection.ByStream, Summary.reversed),
	},
}

// All returns every view, to be installed and run.
func All() []projection.Definition {
	return []projection.Definition{Balances, Movements, Entries}
}
