package entry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

var may = journal.Date{Year: 2025, Month: 5, Day: 31}

func lunch(amounts ...string) journal.Entry {
	e := journal.Entry{Line: 7, Date: may, Description: "Lunch"}
	for i, amount := range amounts {
		e.Postings = append(e.Postings, journal.Posting{
			Line: 7 + i, Account: []string{"expenses:food", "assets:cash"}[i], Amount: decimal.MustParse(amount), Commodity: "EUR",
		})
	}
	return e
}

var recorded = entry.Recorded{Date: may, Description: "Lunch", Postings: []entry.Posting{
	{Account: "expenses:food", Amount: decimal.MustParse("12.50"), Commodity: "EUR"},
	{Account: "assets:cash", Amount: decimal.MustParse("-12.50"), Commodity: "EUR"},
}}

func TestRecord(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, entry.Type).
		When(entry.Record{Entry: lunch("12.50", "-12.50")}.Decide).
		Then(recorded)
}

func TestRecordObeysTheRules(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, entry.Type).
		When(entry.Record{Entry: lunch("12.50", "-12.05")}.Decide).
		ThenError(journal.ErrRule)
}

func TestReverseOnce(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, entry.Type).
		When(entry.Reverse{By: "k2"}.Decide).
		ThenError(entry.ErrNotRecorded)
	aggregatetest.For(t, entry.Type).
		Given(recorded).
		When(entry.Reverse{By: "k2"}.Decide).
		Then(entry.Reversed{By: "k2"}).
		When(entry.Reverse{By: "k3"}.Decide).
		ThenError(entry.ErrReversed)
}

func TestOpposite(t *testing.T) {
	t.Parallel()
	june := journal.Date{Year: 2025, Month: 6, Day: 1}
	got := entry.Entry{Recorded: recorded}.Opposite(june)
	want := journal.Entry{Date: june, Description: "Reversal of: Lunch", Postings: []journal.Posting{
		{Account: "expenses:food", Amount: decimal.MustParse("-12.50"), Commodity: "EUR"},
		{Account: "assets:cash", Amount: decimal.MustParse("12.50"), Commodity: "EUR"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the opposite (-want +got):\n%s", diff)
	}
	if err := journal.Check(got); err != nil {
		t.Error(err)
	}
}

// The keys are stored: they must never change.
func TestReversalKey(t *testing.T) {
	t.Parallel()
	if got, want := entry.ReversalKey("k1"), "632898fa814db3a6bd5e841afa09e3906de508d8b20e6d180e7c1db0166a6dd4"; got != want {
		t.Errorf("the key of the reversal of k1 is %s, want %s", got, want)
	}
}
