package reports_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/projection/projectiontest"
)

var (
	may  = journal.Date{Year: 2025, Month: 5, Day: 31}
	june = journal.Date{Year: 2025, Month: 6, Day: 1}
)

func posted(date journal.Date, amount, commodity string) account.Posted {
	return account.Posted{Entry: "k1", Date: date, Amount: decimal.MustParse(amount), Commodity: commodity}
}

func sum(amount string) reports.Sum { return reports.Sum{Amount: decimal.MustParse(amount)} }

var cash = projectiontest.In("account-cash",
	account.Opened{}, posted(may, "5.00", "EUR"), posted(june, "-5.00", "EUR"), posted(june, "1.5", "USD"), posted(may, "0.250", "USD"))

func TestBalances(t *testing.T) {
	t.Parallel()
	got := projectiontest.Fold(t, reports.Balances, cash, projectiontest.In("account-fees", posted(may, "0.00", "EUR")))
	want := map[reports.Place]reports.Sum{{Account: "cash", Commodity: "USD"}: sum("1.750")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the balances (-want +got):\n%s", diff)
	}
}

func TestMovements(t *testing.T) {
	t.Parallel()
	got := projectiontest.Fold(t, reports.Movements, cash)
	want := map[reports.Day]reports.Sum{
		{Account: "cash", Commodity: "EUR", Date: may}:  sum("5.00"),
		{Account: "cash", Commodity: "EUR", Date: june}: sum("-5.00"),
		{Account: "cash", Commodity: "USD", Date: june}: sum("1.5"),
		{Account: "cash", Commodity: "USD", Date: may}:  sum("0.250"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the movements (-want +got):\n%s", diff)
	}
}

func TestEntries(t *testing.T) {
	t.Parallel()
	got := projectiontest.Fold(t, reports.Entries,
		projectiontest.In("entry-k1", entry.Recorded{Date: may, Description: "Lunch", Postings: make([]entry.Posting, 2)}),
		projectiontest.In("entry-k2", entry.Recorded{Date: june, Description: "Back", Postings: make([]entry.Posting, 2), Reverses: "k1"}),
		projectiontest.In("entry-k1", entry.Reversed{By: "k2"}))
	want := map[string]reports.Summary{
		"k1": {Date: may, Description: "Lunch", Postings: 2, ReversedBy: "k2"},
		"k2": {Date: june, Description: "Back", Postings: 2, Reverses: "k1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the entries (-want +got):\n%s", diff)
	}
}
