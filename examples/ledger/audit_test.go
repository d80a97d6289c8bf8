package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

// audit compares what is stored, and what the read models say, with the journal, which it reads by itself: every
// entry is there once, with all its postings, and no other.
func audit(t *testing.T, s shell, pool *pgxpool.Pool, path string) {
	t.Helper()
	want := make(map[string][]entry.Posting)
	var lines []reports.Line
	keys := journal.NewKeyer()
	for _, e := range entriesOf(t, path) {
		key := keys.Key(e)
		for _, p := range e.Postings {
			want[key] = append(want[key], entry.Posting{Account: p.Account, Amount: p.Amount, Commodity: p.Commodity})
			lines = add(t, lines, p)
		}
	}
	auditLog(t, pool, want)

	var expected strings.Builder
	slices.SortFunc(lines, reports.Compare)
	lines = slices.DeleteFunc(lines, func(l reports.Line) bool { return l.Balance.IsZero() })
	if err := writeCSV(&expected, lines); err != nil {
		t.Fatal(err)
	}
	sameBalances(t, s.must(t, "balances", "-o", "csv"), expected.String(), true)
	sameBalances(t, s.must(t, "balances", "-o", "csv", "--before", "9999-12-31"), expected.String(), true)
}

func add(t *testing.T, lines []reports.Line, p journal.Posting) []reports.Line {
	t.Helper()
	i := slices.IndexFunc(lines, func(l reports.Line) bool { return l.Account == p.Account && l.Commodity == p.Commodity })
	if i < 0 {
		return append(lines, reports.Line{Account: p.Account, Commodity: p.Commodity, Balance: p.Amount})
	}
	sum, err := journal.Add(lines[i].Balance, p.Amount)
	if err != nil {
		t.Fatal(err)
	}
	lines[i].Balance = sum
	return lines
}

func auditLog(t *testing.T, pool *pgxpool.Pool, want map[string][]entry.Posting) {
	t.Helper()
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	catalog := eventstore.Join(account.Events, entry.Events)
	recorded, posted := make(map[string][]entry.Posting), make(map[string][]entry.Posting)
	opened := make(map[string]int)
	for event, err := range store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		payload, err := catalog.Decode(event)
		if err != nil {
			t.Fatal(err)
		}
		switch e := payload.(type) {
		case entry.Recorded:
			if recorded[event.Stream.ID] != nil {
				t.Errorf("entry %s is recorded twice", event.Stream.ID)
			}
			recorded[event.Stream.ID] = e.Postings
		case account.Posted:
			posted[e.Entry] = append(posted[e.Entry], entry.Posting{Account: event.Stream.ID, Amount: e.Amount, Commodity: e.Commodity})
		case account.Opened:
			if opened[event.Stream.ID]++; opened[event.Stream.ID] > 1 {
				t.Errorf("account %s is opened twice", event.Stream.ID)
			}
		default:
			t.Errorf("an event %T is stored", e)
		}
	}
	same := func(a, b []entry.Posting) bool {
		// A stream's events stand together in its append, so the order is another; sorted they are the same.
		sorted := func(all []entry.Posting) []entry.Posting {
			return slices.SortedFunc(slices.Values(all), func(x, y entry.Posting) int {
				return strings.Compare(x.Account+x.Commodity+x.Amount.String(), y.Account+y.Commodity+y.Amount.String())
			})
		}
		return slices.EqualFunc(sorted(a), sorted(b), func(x, y entry.Posting) bool {
			return x.Account == y.Account && x.Commodity == y.Commodity && x.Amount.Cmp(y.Amount) == 0
		})
	}
	if len(recorded) != len(want) || len(posted) != len(want) {
		t.Errorf("%d entries are recorded and %d posted, want %d", len(recorded), len(posted), len(want))
	}
	for key, postings := range want {
		if !same(recorded[key], postings) || !same(posted[key], postings) {
			t.Errorf("entry %s is recorded as %v and posted as %v, want %v", key, recorded[key], posted[key], postings)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
