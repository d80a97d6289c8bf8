package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// asProgram makes this test binary be the program, so that tests can kill it.
const asProgram = "LEDGER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	p := program{out: os.Stdout, notes: os.Stderr, now: time.Now}
	p.crashAt(os.Getenv(crashPoint))
	report := p.behindHostileBroker(os.Getenv(hostileSeed))
	code := p.run(context.Background(), os.Args[1:])
	report()
	os.Exit(code)
}

// patience bounds one run of the program.
const patience = 2 * time.Minute

// shell runs the program on one database: as a process of its own where that makes a difference.
type shell struct {
	url string
	env []string
}

// newShell gives the program a database in which the store is installed, as after its first run.
func newShell(t *testing.T) (shell, *pgxpool.Pool) {
	t.Helper()
	pool := postgrestest.New(t)
	return shell{url: postgrestest.URL(pool)}, pool
}

// emptyShell gives it an empty database.
func emptyShell(t *testing.T) (shell, *pgxpool.Pool) {
	t.Helper()
	pool := postgrestest.Empty(t)
	return shell{url: postgrestest.URL(pool)}, pool
}

// result is what a run left behind.
type result struct {
	code       int
	out, notes string
}

func (s shell) command(ctx context.Context, args ...string) (cmd *exec.Cmd, out, notes *bytes.Buffer) {
	out, notes = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", pgserver.RunVariable+"="+s.url)
	// With the race detector a program sleeps for a second before it ends, unless it is told not to.
	cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdout, cmd.Stderr = out, notes
	// A program that hangs says where.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, out, notes
}

// run waits for the end of the program, however it ends. Only one that is armed, and would take this process with it, needs
// a process of its own.
func (s shell) run(t *testing.T, args ...string) result {
	t.Helper()
	if len(s.env) > 0 {
		return s.apart(t, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, notes := newOutput(), newOutput()
	p := program{out: out, notes: notes, now: time.Now, database: s.url}
	code := p.run(ctx, args)
	if ctx.Err() != nil {
		t.Fatalf("ledger %v does not end:\n%s", args, notes)
	}
	return result{code: code, out: out.String(), notes: notes.String()}
}

// apart is run as a process of its own.
func (s shell) apart(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out, notes := s.command(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("ledger %v: %v", args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("ledger %v does not end:\n%s", args, notes)
	}
	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), notes: notes.String()}
}

// must is run for what has to succeed; it returns what was printed.
func (s shell) must(t *testing.T, args ...string) string {
	t.Helper()
	r := s.run(t, args...)
	if r.code != 0 {
		t.Fatalf("ledger %v ended with %d:\n%s", args, r.code, r.notes)
	}
	return r.out
}

// sample is a journal with what must come out of it.
type sample struct {
	journal                string
	entries                int
	balances               string
	before, balancesBefore string
	ordered                bool // the rows of the expected files are in the order of the program's
}

// samples are the example's own journal and, in the folder that DAYBOOK_ACCEPTANCE_DATA names, a real one of three years.
func samples(t *testing.T) []sample {
	t.Helper()
	dir := os.Getenv("DAYBOOK_ACCEPTANCE_DATA")
	if dir == "" {
		t.Log("DAYBOOK_ACCEPTANCE_DATA is unset: only the example's own journal is imported")
		return []sample{ownSample(t)}
	}
	return []sample{ownSample(t), {
		journal: filepath.Join(dir, "ledger-3years.csv"), entries: 1035,
		balances: read(t, dir, "ledger-3years-balances.csv"),
		before:   "2013-01-01", balancesBefore: read(t, dir, "ledger-3years-balances-before-2013.csv"),
		ordered: true,
	}}
}

func ownSample(t *testing.T) sample {
	t.Helper()
	return sample{
		journal: filepath.Join("testdata", "journal.csv"), entries: 48,
		balances: read(t, "testdata", "balances.csv"),
		before:   "2025-03-01", balancesBefore: read(t, "testdata", "balances-before-2025-03-01.csv"),
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sameBalances compares byte for byte, or by row where the order of the rows is another.
func sameBalances(t *testing.T, got, want string, ordered bool) {
	t.Helper()
	if !ordered {
		got, want = sortedRows(t, got), sortedRows(t, want)
	}
	if got != want {
		t.Errorf("the balances are\n%s\nwant\n%s", got, want)
	}
}

func sortedRows(t *testing.T, text string) string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	lines := make(map[string]bool, len(rows))
	for _, row := range rows[1:] {
		lines[strings.Join(row, "|")] = true
	}
	if len(lines) != len(rows)-1 {
		t.Errorf("a row is there twice in\n%s", text)
	}
	return strings.Join(sortedKeys(lines), "\n")
}

// journalFile writes a journal for a test; rows are txnidx, date, description, account, amount, commodity.
func journalFile(t *testing.T, rows ...string) string {
	t.Helper()
	return fileOf(t, header+strings.Join(rows, "\n")+"\n")
}

const header = "txnidx,date,description,account,amount,commodity\n"

func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// entriesOf reads a journal without the program.
func entriesOf(t *testing.T, path string) []journal.Entry {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var entries []journal.Entry
	for entry, err := range journal.Read(file, path) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	return entries
}
