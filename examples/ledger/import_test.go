package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/internal/testscale"
)

// Every row of the balances is right, and importing again changes nothing: at a small scale only the example's own journal is
// imported again.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, want := range samples(t) {
		t.Run(want.journal, func(t *testing.T) {
			t.Parallel()
			checkImport(t, want)
		})
	}
}

func checkImport(t *testing.T, want sample) {
	t.Helper()
	s, pool := emptyShell(t)
	first := s.apart(t, "import", want.journal)
	if first.code != 0 {
		t.Fatalf("the import ended with %d:\n%s", first.code, first.notes)
	}
	out := first.out
	if first := fmt.Sprintf("imported: %d new, 0 already imported\ntook ", want.entries); !strings.HasPrefix(out, first) {
		t.Errorf("the import says\n%s", out)
	}
	for _, lag := range []string{"from commit to published: ", "from commit to shown by the read models: "} {
		if _, text, _ := strings.Cut(out, lag); !strings.Contains(strings.SplitN(text, "\n", 2)[0], "in the median, ") {
			t.Errorf("the import does not say how long it takes %s\n%s", lag, out)
		}
	}
	t.Log(strings.Join(strings.SplitN(out, "\n", 6)[:4], "; "))
	sameBalances(t, s.must(t, "balances", "-o", "csv"), want.balances, want.ordered)
	sameBalances(t, s.must(t, "balances", "-o", "csv", "--before", want.before), want.balancesBefore, want.ordered)
	audit(t, s, pool, want.journal)

	table := s.must(t, "balances")
	if !strings.HasSuffix(out, "\n\n"+table) {
		t.Errorf("the import ends with other balances than\n%s", table)
	}

	if want.ordered && testscale.Factor() < 1 { // that file is long, and its second import as slow as the first
		return
	}
	stored := eventsIn(t, pool)
	again := s.must(t, "import", want.journal)
	if !strings.HasPrefix(again, "already imported: 0 new\n") || !strings.HasSuffix(again, "\n\n"+table) {
		t.Errorf("the second import says\n%s", again)
	}
	if n := eventsIn(t, pool); n != stored {
		t.Errorf("the second import stored %d events", n-stored)
	}
	audit(t, s, pool, want.journal)
}

// Two programs install the store and import the same file at once: each entry is posted by one of them.
func TestTwoImportsAtOnce(t *testing.T) {
	t.Parallel()
	want := ownSample(t)
	s, pool := emptyShell(t)
	var both sync.WaitGroup
	posted := make([]int, 2)
	for i := range posted {
		both.Go(func() {
			r := s.apart(t, "import", want.journal)
			if r.code != 0 {
				t.Errorf("the import ended with %d:\n%s", r.code, r.notes)
			}
			_, _ = fmt.Sscanf(r.out, "imported: %d new", &posted[i])
		})
	}
	both.Wait()
	if posted[0]+posted[1] != want.entries {
		t.Errorf("the two posted %v entries, want %d in all", posted, want.entries)
	}
	audit(t, s, pool, want.journal)
}

func TestStrictImportNeedsOpenAccounts(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	path := journalFile(t,
		"1,2025-01-01,Start,assets:cash,10.00,EUR", "1,2025-01-01,Start,equity,-10.00,EUR",
		"2,2025-01-02,Lunch,expenses:food,4.00,EUR", "2,2025-01-02,Lunch,assets:cash,-4.00,EUR")
	for _, account := range []string{"assets:cash", "equity"} {
		if out := s.must(t, "open", account); out != "opened "+account+"\n" {
			t.Errorf("open says %q", out)
		}
	}
	r := s.run(t, "import", "--strict", path)
	for _, text := range []string{"line 4", `"expenses:food"`, "rule account-open", "open it first", "the 1 entries before it are in the ledger"} {
		if !strings.Contains(r.notes, text) {
			t.Errorf("the refusal does not say %q:\n%s", text, r.notes)
		}
	}
	if r.code != 1 {
		t.Errorf("the import ended with %d, want 1", r.code)
	}
	if n := eventsIn(t, pool); n != 5 {
		t.Errorf("%d events are stored, want two accounts, and one entry with two postings", n)
	}
	s.must(t, "open", "expenses:food")
	if out := s.must(t, "import", "--strict", path); !strings.HasPrefix(out, "imported: 1 new, 1 already imported\n") {
		t.Errorf("the import goes on with\n%s", out)
	}
	audit(t, s, pool, path)
}

func TestNeverBelowZero(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	s.must(t, "open", "--never-below-zero", "assets:cash")
	if out := s.must(t, "open", "--never-below-zero", "assets:cash"); out != "assets:cash is open already\n" {
		t.Errorf("opening it again says %q", out)
	}
	if r := s.run(t, "open", "assets:cash"); r.code != 1 || !strings.Contains(r.notes, "rule open-once") {
		t.Errorf("opening it on other terms ends with %d:\n%s", r.code, r.notes)
	}
	r := s.run(t, "import", journalFile(t,
		"1,2025-01-01,Start,assets:cash,10.00,EUR", "1,2025-01-01,Start,equity,-10.00,EUR",
		"2,2025-01-02,Lunch,expenses:food,10.01,EUR", "2,2025-01-02,Lunch,assets:cash,-10.01,EUR"))
	if r.code != 1 {
		t.Errorf("the import ended with %d, want 1", r.code)
	}
	for _, text := range []string{"line 5", `"assets:cash"`, "rule never-below-zero", "would leave -0.01"} {
		if !strings.Contains(r.notes, text) {
			t.Errorf("the refusal does not say %q:\n%s", text, r.notes)
		}
	}
	if n := eventsIn(t, pool); n != 5 {
		t.Errorf("%d events are stored, want two accounts, and one entry with two postings", n)
	}
}

// badInput is a file that ends an import, and what the note says.
type badInput struct {
	text string
	says []string
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	good := "1,2025-01-01,Start,assets:cash,10.00,EUR\n1,2025-01-01,Start,equity,-10.00,EUR\n"
	row := "2,2025-01-02,Lunch,expenses:food,4.00,EUR\n"
	s, pool := newShell(t)
	s.must(t, "import", fileOf(t, header+good))
	stored := eventsIn(t, pool)
	for name, c := range map[string]badInput{
		"missing column": {text: "txnidx,date,description,account,commodity\n", says: []string{"line 1", `column "amount"`}},
		"semicolons":     {text: strings.ReplaceAll(header+good, ",", ";"), says: []string{"line 1", "semicolons"}},
		"empty":          {text: "", says: []string{"line 1", "the file is empty"}},
		"bad number": {text: header + good + row + "2,2025-01-02,Lunch,assets:cash,\"-4,00\",EUR\n",
			says: []string{"line 5", `column "amount"`, "-4,00", "write digits"}},
		"bad date": {text: header + good + strings.ReplaceAll(row, "2025-01-02", "2025-02-30"),
			says: []string{"line 4", `column "date"`, "2025-02-30", "YYYY-MM-DD"}},
		"truncated": {text: header + good + row + "2,2025-01-02,Lunch,ass",
			says: []string{"line 5", "cut off"}},
		"truncated in quotes": {text: header + good + row + "2,2025-01-02,\"Lun",
			says: []string{"line 5"}},
		"NUL": {text: header + good + row + "2,2025-01-02,Lunch,assets\x00cash,-4.00,EUR\n",
			says: []string{"line 5", `column "account"`, "NUL"}},
		"invalid UTF-8": {text: header + good + row + "2,2025-01-02,Lunch,assets:\xff,-4.00,EUR\n",
			says: []string{"line 5", `column "account"`, "UTF-8"}},
		"1 MB field": {text: header + good + row + "2,2025-01-02,Lunch," + strings.Repeat("a", 1<<20) + ",-4.00,EUR\n",
			says: []string{"line 5", `column "account"`}},
		"not zero in sum": {text: header + good + row + "2,2025-01-02,Lunch,assets:cash,-4.01,EUR\n",
			says: []string{"line 4", "rule zero-sum", "-0.01"}},
		"one-sided": {text: header + good + row + "2,2025-01-02,Lunch,assets:cash,4.01,USD\n",
			says: []string{"line 4", "rule both-sides"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := fileOf(t, c.text)
			r := s.run(t, "import", path)
			if r.code != 1 || r.out != "" {
				t.Errorf("the import ended with %d, and printed %q", r.code, r.out)
			}
			for _, text := range append(c.says, path, "nothing of that entry was stored", "correct the file") {
				if !strings.Contains(r.notes, text) {
					t.Errorf("the note does not say %q:\n%s", text, r.notes)
				}
			}
			if len(r.notes) > 4000 {
				t.Errorf("the note has %d bytes", len(r.notes))
			}
			if n := eventsIn(t, pool); n != stored {
				t.Errorf("%d events were stored", n-stored)
			}
		})
	}
}

// What only looks different is the same journal.
func TestHarmlessInput(t *testing.T) {
	t.Parallel()
	plain := read(t, "testdata", "journal.csv")
	s, pool := newShell(t)
	s.must(t, "import", fileOf(t, plain))
	stored := eventsIn(t, pool)
	for name, text := range map[string]string{
		"CRLF":            strings.ReplaceAll(plain, "\n", "\r\n"),
		"byte order mark": "\ufeff" + plain,
		"header alone":    header,
	} {
		if out := s.must(t, "import", fileOf(t, text)); !strings.HasPrefix(out, "already imported: 0 new\n") {
			t.Errorf("%s: the import says\n%s", name, out)
		}
	}
	if n := eventsIn(t, pool); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
}

func TestNoFile(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	if r := s.run(t, "import", "nowhere.csv"); r.code != 1 || !strings.Contains(r.notes, "nowhere.csv") {
		t.Errorf("ended with %d:\n%s", r.code, r.notes)
	}
}
