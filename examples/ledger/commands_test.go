package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// eventsIn counts what is stored; a database without the store has nothing.
func eventsIn(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM daybook.events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReverse(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	path := journalFile(t,
		"1,2025-01-01,Start,assets:cash,10.00,EUR", "1,2025-01-01,Start,equity,-10.00,EUR",
		"2,2025-01-02,Lunch,expenses:food,4.00,EUR", "2,2025-01-02,Lunch,assets:cash,-4.00,EUR")
	s.must(t, "import", path)
	key := keyOf(t, s, "expenses:food", "Lunch")

	out := s.must(t, "reverse", key, "--date", "2025-02-01")
	if !strings.Contains(out, "2025-02-01  Reversal of: Lunch, 2 postings\nreverses "+key) {
		t.Errorf("the reversal says\n%s", out)
	}
	sameBalances(t, s.must(t, "balances", "-o", "csv"),
		"\"account\",\"commodity\",\"balance\"\n\"assets:cash\",\"EUR\",\"10.00\"\n\"equity\",\"EUR\",\"-10.00\"\n", true)
	// It was made in February: what was true before it stays true.
	if before := s.must(t, "balances", "-o", "csv", "--before", "2025-02-01"); !strings.Contains(before, `"expenses:food","EUR","4.00"`) {
		t.Errorf("the balances before the reversal are\n%s", before)
	}
	stored := eventsIn(t, pool)
	if r := s.run(t, "reverse", key); r.code != 1 || !strings.Contains(r.notes, "rule reversed-once") {
		t.Errorf("the second reversal ends with %d:\n%s", r.code, r.notes)
	}
	for beginning, says := range map[string]string{"ffffffffffffffff": "no such entry", "xyz": "is not the beginning of a key"} {
		if r := s.run(t, "reverse", beginning); r.code != 1 || !strings.Contains(r.notes, says) {
			t.Errorf("reverse %s ends with %d:\n%s", beginning, r.code, r.notes)
		}
	}
	if out := s.must(t, "import", path); !strings.HasPrefix(out, "already imported: 0 new\n") {
		t.Errorf("the import after the reversal says\n%s", out)
	}
	if n := eventsIn(t, pool); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
	// A reversal is an entry like any other.
	s.must(t, "reverse", keyOf(t, s, "expenses:food", "Reversal of: Lunch"))
	if balances := s.must(t, "balances", "-o", "csv"); !strings.Contains(balances, `"expenses:food","EUR","4.00"`) {
		t.Errorf("after the reversal was reversed the balances are\n%s", balances)
	}
}

// keyOf is the key, as far as it is shown, of the posting with a description.
func keyOf(t *testing.T, s shell, account, description string) string {
	t.Helper()
	history := s.must(t, "history", account)
	for line := range strings.Lines(history) {
		if before, ok := strings.CutSuffix(strings.TrimSpace(line), "  "+description); ok {
			return strings.Fields(before)[3]
		}
	}
	t.Fatalf("%q is not in the history\n%s", description, history)
	return ""
}

func TestHistory(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	s.must(t, "open", "--never-below-zero", "assets:cash")
	s.must(t, "import", journalFile(t,
		"1,2025-01-01,Start,assets:cash,10.00,EUR", "1,2025-01-01,Start,equity,-10.00,EUR",
		"2,2025-01-02,Lunch,expenses:food,4.00,EUR", "2,2025-01-02,Lunch,assets:cash,-4.00,EUR"))
	now := s.must(t, "history", "assets:cash")
	if !strings.HasPrefix(now, "1  opened, never below zero\n2  posted  2025-01-01  ") ||
		!strings.HasSuffix(now, "\n\nat version 3: open, never below zero\n  6.00 EUR\n") {
		t.Errorf("the history is\n%s", now)
	}
	then := s.must(t, "history", "assets:cash", "--at", "2")
	if strings.Contains(then, "Lunch") || !strings.HasSuffix(then, "\n\nat version 2: open, never below zero\n  10.00 EUR\n") {
		t.Errorf("the history at version 2 is\n%s", then)
	}
	for args, says := range map[string]string{
		"assets:nothing": "never opened", "assets:cash --at 4": "later than the last version", "assets:cash --at 0": "not a version",
	} {
		if r := s.run(t, append([]string{"history"}, strings.Fields(args)...)...); r.code != 1 || !strings.Contains(r.notes, says) {
			t.Errorf("history %s ends with %d:\n%s", args, r.code, r.notes)
		}
	}
}

func TestBalancesArguments(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	if out := s.must(t, "balances", "-o", "csv"); out != "\"account\",\"commodity\",\"balance\"\n" {
		t.Errorf("the balances of an empty ledger are %q", out)
	}
	for args, says := range map[string]string{
		"--before 2013-13-01": "YYYY-MM-DD", "-o xml": "use table or csv", "everything": "unknown command",
	} {
		if r := s.run(t, append([]string{"balances"}, strings.Fields(args)...)...); r.code != 1 || !strings.Contains(r.notes, says) {
			t.Errorf("balances %s ends with %d:\n%s", args, r.code, r.notes)
		}
	}
}

func TestMissingArgumentIsNamed(t *testing.T) {
	t.Parallel()
	s := shell{url: "postgres://127.0.0.1:1/none"} // no command comes as far as to connect
	for command, want := range map[string]string{
		"import": "name the journal: ledger import FILE", "reverse": "name the entry: ledger reverse ENTRY",
		"open": "name the account: ledger open ACCOUNT", "history": "name the account: ledger history ACCOUNT",
	} {
		if r := s.run(t, command); r.code != 1 || r.notes != "ledger: "+want+"\n" {
			t.Errorf("%s: %d %q, want %q", command, r.code, r.notes, want)
		}
		if r := s.run(t, command, "a", "b"); r.code != 1 || !strings.Contains(r.notes, "not 2") {
			t.Errorf("%s with two: %d %q", command, r.code, r.notes)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	out := shell{}.must(t, "-h")
	for _, command := range []string{"import", "balances", "reverse", "history", "open", "serve", "work"} {
		if !strings.Contains(out, "\n  "+command+" ") {
			t.Errorf("the help does not name %s:\n%s", command, out)
		}
	}
}

// A zero posting is accepted, and leaves no row.
func TestZeroLeavesNoRow(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	s.must(t, "import", journalFile(t,
		"1,2025-01-01,Waived,assets:cash,0.00,EUR", "1,2025-01-01,Waived,expenses:fees,0.00,EUR",
		"2,2025-01-01,Out,assets:cash,-5.00,EUR", "2,2025-01-01,Out,expenses:fees,5.00,EUR",
		"3,2025-01-01,Back,assets:cash,5.00,EUR", "3,2025-01-01,Back,expenses:fees,-5.00,EUR"))
	if out := s.must(t, "balances", "-o", "csv"); out != "\"account\",\"commodity\",\"balance\"\n" {
		t.Errorf("the balances are %q", out)
	}
	for _, table := range []string{"balances", "movements"} {
		var n int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM readmodels."+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows, want none: %v", table, n, err)
		}
	}
}

// entriesIn counts the entries that are stored.
func entriesIn(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM daybook.events WHERE stream_id LIKE 'entry-%' AND version = 1").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
