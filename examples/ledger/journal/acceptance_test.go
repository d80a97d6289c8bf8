package journal

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"

	"github.com/govalues/decimal"
)

// journalCase is a file with what must come out of it.
type journalCase struct {
	dir, file                        string
	entries, postings, commodities   int
	mixed, zeros                     int
	before, balances, balancesBefore string
	balancesRows, balancesBeforeRows int
	outOfOrder                       bool
}

// TestJournal reads a whole journal, checks every entry and compares the sums.
// DAYBOOK_ACCEPTANCE_DATA names a folder with a real ledger of three years; the
// journal of this example is read in any case.
func TestJournal(t *testing.T) {
	t.Parallel()
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		checkJournal(t, journalCase{
			dir: filepath.Join("..", "testdata"), file: "journal.csv",
			entries: 48, postings: 104, commodities: 4, mixed: 8, zeros: 2, outOfOrder: true,
			before:   "2025-03-01",
			balances: "balances.csv", balancesRows: 20,
			balancesBefore: "balances-before-2025-03-01.csv", balancesBeforeRows: 20,
		})
	})
	dir := os.Getenv("DAYBOOK_ACCEPTANCE_DATA")
	if dir == "" {
		t.Log("DAYBOOK_ACCEPTANCE_DATA is unset: only the example's own journal was read")
		return
	}
	t.Run("three years", func(t *testing.T) {
		t.Parallel()
		checkJournal(t, journalCase{
			dir: dir, file: "ledger-3years.csv",
			entries: 1035, postings: 3203, commodities: 9, mixed: 291, zeros: 2, outOfOrder: true,
			before:   "2013-01-01",
			balances: "ledger-3years-balances.csv", balancesRows: 53,
			balancesBefore: "ledger-3years-balances-before-2013.csv", balancesBeforeRows: 36,
		})
	})
}

type place struct{ account, commodity string }

func checkJournal(t *testing.T, want journalCase) {
	t.Helper()
	f, err := os.Open(filepath.Join(want.dir, want.file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, err := ParseDate(want.before)
	if err != nil {
		t.Fatal(err)
	}

	got := journalCase{dir: want.dir, file: want.file, before: want.before,
		balances: want.balances, balancesBefore: want.balancesBefore,
		balancesRows: want.balancesRows, balancesBeforeRows: want.balancesBeforeRows}
	all, early := make(map[place]decimal.Decimal), make(map[place]decimal.Decimal)
	keys, commodities := make(map[string]int), make(map[string]bool)
	keyer, last := NewKeyer(), ""
	for e, err := range Read(f, want.file) {
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(e); err != nil {
			t.Error(err)
		}
		key := keyer.Key(e)
		if first, ok := keys[key]; ok {
			t.Errorf("the entries at lines %d and %d have the same key", first, e.Line)
		}
		keys[key] = e.Line
		got.entries++
		if e.Mixed() {
			got.mixed++
		}
		// As texts of one length, numbers are in order when their texts are.
		if len(e.Index) < len(last) || len(e.Index) == len(last) && e.Index < last {
			got.outOfOrder = true
		}
		last = e.Index
		for _, p := range e.Postings {
			got.postings++
			commodities[p.Commodity] = true
			if p.Amount.IsZero() {
				got.zeros++
			}
			add(t, all, p)
			if e.Date.Before(before) {
				add(t, early, p)
			}
		}
	}
	got.commodities = len(commodities)
	if got != want {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
	compareBalances(t, all, filepath.Join(want.dir, want.balances), want.balancesRows)
	compareBalances(t, early, filepath.Join(want.dir, want.balancesBefore), want.balancesBeforeRows)
}

func add(t *testing.T, sums map[place]decimal.Decimal, p Posting) {
	t.Helper()
	at := place{p.Account, p.Commodity}
	sum, err := Add(sums[at], p.Amount)
	if err != nil {
		t.Fatal(err)
	}
	sums[at] = sum
}

// compareBalances compares texts, so that the digits behind the point count.
func compareBalances(t *testing.T, sums map[place]decimal.Decimal, file string, rows int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(table) != rows+1 {
		t.Errorf("%s has %d rows; want %d", file, len(table)-1, rows)
	}
	for _, row := range table[1:] {
		at := place{row[0], row[1]}
		if sum, ok := sums[at]; !ok || sum.String() != row[2] {
			t.Errorf("%s: %s in %s is %s; want %s", file, at.account, at.commodity, sum, row[2])
		}
		delete(sums, at)
	}
	for at, sum := range sums {
		if !sum.IsZero() {
			t.Errorf("%s lacks %s in %s: %s", file, at.account, at.commodity, sum)
		}
	}
}
