package api

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

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
	Stale *lag `json:"stale,omitempty"`
}

func (a *api) balances(w http.ResponseWriter, r *http.Request) error {
	return a.read(w, r, "", func(ctx context.Context) ([]reports.Line, error) { return reports.Now(ctx, a.db) })
}

func (a *api) balancesOf(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("account")
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return syntax("account", short(name), "it is not text", "encode the name in UTF-8, and that for the path")
	}
	return a.read(w, r, name, func(ctx context.Context) ([]reports.Line, error) { return reports.Of(ctx, a.db, name) })
}

// read waits for the token of the request, and answers with the balances.
func (a *api) read(w http.ResponseWriter, r *http.Request, account string, lines func(context.Context) ([]reports.Line, error)) error {
	ask, err := a.askOf(r)
	if err != nil {
		return err
	}
	stale, err := a.wait(r.Context(), ask)
	if err != nil {
		ask.applied(w, false)
		return err
	}
	ctx, cancel := working(r)
	defer cancel()
	found, err := lines(ctx)
	if err != nil {
		return err
	}
	answer := balancesAnswer{Account: account, Balances: make([]balance, len(found)), Stale: stale}
	for i, line := range found {
		answer.Balances[i] = balance{Account: line.Account, Amount: line.Balance.String(), Commodity: line.Commodity}
	}
	ask.applied(w, stale != nil)
	if stale != nil {
		w.Header().Set(LagHeader, stale.text())
	}
	return writeJSON(w, http.StatusOK, answer)
}

// entryAnswer is the JSON of an entry.
type entryAnswer struct {
	posted
	Reverses   string `json:"reverses,omitempty"`
	ReversedBy string `json:"reversedBy,omitempty"`
}

// entry is read from the log, so that it needs no token.
func (a *api) entry(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	ctx, cancel := working(r)
	defer cancel()
	var e entry.Entry
	var err error
	if ledgerKey.MatchString(key) {
		e, err = a.recorded(ctx, key)
	}
	switch {
	case err != nil:
		return err
	case len(e.Postings) == 0:
		return &problem{
			Type: typeOf("not-found"), Title: "There is no such entry", Status: http.StatusNotFound,
			Field: "key", Value: short(key), Remedy: "use the key that the post was answered with",
		}
	}
	answer := entryAnswer{Reverses: e.Reverses, ReversedBy: e.ReversedBy}
	answer.Key, answer.Date, answer.Description = key, e.Date.String(), e.Description
	for _, p := range e.Postings {
		answer.Postings = append(answer.Postings, posting{Account: p.Account, Amount: p.Amount.String(), Commodity: p.Commodity})
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (a *api) recorded(ctx context.Context, key string) (entry.Entry, error) {
	loaded, err := a.book.Entry(ctx, key)
	return loaded.State, err
}
