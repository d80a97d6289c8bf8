package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

// reads are the resources. Entries and accounts are read from the log, so that they need no token and have the version
// that a write takes; balances are a read model.
func (a *API) reads() {
	commandhttp.Query(a.API, "GET /entries/{key}", commandhttp.Read[found[entry.Entry]]{
		Load: a.entry, Version: found[entry.Entry].version, Wait: commandhttp.NoWait,
		Render: func(f found[entry.Entry]) any { return entryView(f) },
	})
	commandhttp.Query(a.API, "GET /accounts/{name}", commandhttp.Read[found[account.Account]]{
		Load: a.account, Version: found[account.Account].version, Wait: commandhttp.NoWait,
		Render: func(f found[account.Account]) any { return accountView(f) },
	})
	stale := func(b balancesAnswer, lag commandhttp.Lag) any {
		b.Stale = &lag
		return b
	}
	commandhttp.Query(a.API, "GET /balances", commandhttp.Read[balancesAnswer]{Load: a.balances, Wait: a.seen, Stale: stale})
	commandhttp.Query(a.API, "GET /balances/{account}", commandhttp.Read[balancesAnswer]{Load: a.balancesOf, Wait: a.seen, Stale: stale})
}

// found is what was read from the log, under its name.
type found[S any] struct {
	aggregate.Loaded[S]
	name string
}

func (f found[S]) version() eventstore.Version { return f.Version }

// entryAnswer is the JSON of an entry.
type entryAnswer struct {
	Key         string             `json:"key"`
	Date        string             `json:"date"`
	Description string             `json:"description"`
	Postings    []commands.Posting `json:"postings"`
	Reverses    string             `json:"reverses,omitempty"`
	ReversedBy  string             `json:"reversedBy,omitempty"`
}

func (a *API) entry(ctx context.Context, r *http.Request) (f found[entry.Entry], err error) {
	if f.name = r.PathValue("key"); commands.IsEntryKey(f.name) {
		f.Loaded, err = a.book.Entry(ctx, f.name)
	}
	if err == nil && !f.Exists() {
		err = noEntry(f.name)
	}
	return f, err
}

func entryView(f found[entry.Entry]) entryAnswer {
	e := f.State
	answer := entryAnswer{Key: f.name, Date: e.Date.String(), Description: e.Description, Reverses: e.Reverses, ReversedBy: e.ReversedBy}
	for _, p := range e.Postings {
		answer.Postings = append(answer.Postings, commands.Posting{Account: p.Account, Amount: p.Amount.String(), Commodity: p.Commodity})
	}
	return answer
}

// accountAnswer is the JSON of an account.
type accountAnswer struct {
	commands.Terms
	Balances []balance `json:"balances"`
}

func (a *API) account(ctx context.Context, r *http.Request) (f found[account.Account], err error) {
	f.name = r.PathValue("name")
	f.Loaded, err = a.book.Account(ctx, f.name)
	if err == nil && !f.Exists() {
		err = &commandhttp.Problem{Kind: "no-account", Field: "name", Value: commandhttp.Shorten(f.name)}
	}
	return f, err
}

func accountView(f found[account.Account]) accountAnswer {
	answer := accountAnswer{Terms: commands.Terms{Name: f.name, NeverBelowZero: f.State.NeverBelowZero}, Balances: []balance{}}
	for _, commodity := range slices.Sorted(maps.Keys(f.State.Holdings)) {
		if sum := f.State.Holdings[commodity].Balance; !sum.IsZero() {
			answer.Balances = append(answer.Balances, balance{Account: f.name, Amount: sum.String(), Commodity: commodity})
		}
	}
	return answer
}

// balance is the JSON of a line.
type balance struct {
	Account   string `json:"account"`
	Amount    string `json:"amount"`
	Commodity string `json:"commodity"`
}

type balancesAnswer struct {
	Account  string    `json:"account,omitempty"`
	Balances []balance `json:"balances"`
	// Stale is there when the balances are older than the token of the request.
	Stale *commandhttp.Lag `json:"stale,omitempty"`
}

func (a *API) balances(ctx context.Context, _ *http.Request) (balancesAnswer, error) {
	lines, err := reports.Now(ctx, a.db)
	return balancesView("", lines), err
}

func (a *API) balancesOf(ctx context.Context, r *http.Request) (balancesAnswer, error) {
	name := r.PathValue("account")
	lines, err := reports.Of(ctx, a.db, name)
	return balancesView(name, lines), err
}

func balancesView(account string, lines []reports.Line) balancesAnswer {
	answer := balancesAnswer{Account: account, Balances: make([]balance, len(lines))}
	for i, line := range lines {
		answer.Balances[i] = balance{Account: line.Account, Amount: line.Balance.String(), Commodity: line.Commodity}
	}
	return answer
}
