package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

// crashPoint names, for the program that this test binary is, where it kills itself: "point:nth".
const crashPoint = "LEDGER_TEST_CRASH"

// The places where a crash would hurt most.
const (
	atMigration      = "migration begun"          // nothing or a part of the schema is there
	atInstall        = "read models half made"    // tables are made and not committed
	atLease          = "lease taken"              // the read models have an owner that is dead
	atWritten        = "append written"           // the events are in a transaction that is not committed
	atStored         = "append stored"            // committed, and the program has not noted it
	atBatchSent      = "batch about to be sent"   // folded, and nothing of it in the database
	atBatchAnswered  = "batch answered in part"   // the outcome of the commit is not known
	atBatchCommitted = "batch committed"          // applied, and the runner has not noted it
	atReport         = "report about to be given" // everything is done, and nobody was told
)

// crashAt arms the program.
func (p *program) crashAt(text string) {
	point, nth, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(nth)
	if err != nil {
		return
	}
	c := &crasher{point: point}
	c.left.Store(int64(n))
	p.pool = func(config *pgxpool.Config) { config.ConnConfig.Tracer = c }
	p.store = postgres.Config{Observer: c}
	if point == atWritten { // hooks change the way an append is made, so only where one is needed
		p.store.Hooks = []postgres.Hook{func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error {
			c.reached(atWritten)
			return nil
		}}
	}
	p.projections.Observer = c
	p.out = c
}

// crasher ends the process, as kill -9 does, when it comes to a place for the nth time.
type crasher struct {
	point string
	left  atomic.Int64
}

func (c *crasher) reached(point string) {
	if point != c.point || c.left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

func (c *crasher) ObserveAppend(eventstore.AppendObservation) { c.reached(atStored) }
func (c *crasher) ObserveBatch(eventstore.BatchObservation)   { c.reached(atBatchCommitted) }
func (c *crasher) ObserveWait(eventstore.WaitObservation)     {}

func (c *crasher) Write(text []byte) (int, error) {
	c.reached(atReport)
	return os.Stdout.Write(text)
}

type statement struct{}

func (c *crasher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(data.SQL, "CREATE OR REPLACE VIEW"):
		c.reached(atInstall)
	case strings.Contains(data.SQL, "CREATE TABLE"), strings.Contains(data.SQL, "CREATE SCHEMA"):
		c.reached(atMigration)
	}
	return context.WithValue(ctx, statement{}, data.SQL)
}

func (c *crasher) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); strings.Contains(sql, ".segments AS s\n     SET owner") {
		c.reached(atLease)
	}
}

func (c *crasher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "commit_batch") {
			c.reached(atBatchSent)
		}
	}
	return ctx
}

func (c *crasher) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "readmodels") && strings.Contains(data.SQL, "INSERT") {
		c.reached(atBatchAnswered)
	}
}

func (c *crasher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	path := ownSample(t).journal
	for point, nths := range map[string][]int{
		atMigration: {2, 1}, atInstall: {3, 1}, atLease: {2, 1, 3}, atWritten: {24, 1, 48}, atStored: {24, 1, 48},
		atBatchSent: {5, 1, 20}, atBatchAnswered: {5, 1, 20}, atBatchCommitted: {5, 1, 20}, atReport: {1, 3},
	} {
		for _, nth := range nths[:testscale.N(len(nths))] {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				t.Parallel()
				s, pool := newShell(t)
				armed := shell{url: s.url, env: []string{fmt.Sprintf("%s=%s:%d", crashPoint, point, nth)}}
				if r := armed.run(t, "import", path); r.code != -1 {
					t.Fatalf("the program was to be killed, and ended with %d:\n%s%s", r.code, r.out, r.notes)
				}
				s.must(t, "import", path)
				audit(t, s, pool, path)
			})
		}
	}
}

const kills = 20

func TestKillAtRandomPoints(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	path := longJournal(t)
	s, pool := newShell(t)
	for killed := 0; killed < kills; {
		// From before the first statement to some dozens of entries later.
		if s.killAfter(t, time.Duration(seed.IntN(350))*time.Millisecond, "import", path) {
			killed++
			continue
		}
		// A machine that is faster than the kills: go on with another ledger.
		audit(t, s, pool, path)
		s, pool = newShell(t)
	}
	s.must(t, "import", path)
	audit(t, s, pool, path)
	if out := s.must(t, "import", path); !strings.HasPrefix(out, "already imported: 0 new\n") {
		t.Errorf("the import after the last says\n%s", out)
	}
}

// killAfter starts the program and kills it; it reports whether there was anything left to kill.
func (s shell) killAfter(t *testing.T, after time.Duration, args ...string) bool {
	t.Helper()
	cmd, _, notes := s.command(t.Context(), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() > 0 {
		t.Fatalf("ledger %v failed before it was killed:\n%s", args, notes)
	}
	return cmd.ProcessState.ExitCode() == -1
}

func TestKillTheServer(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	path := longJournal(t)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	s := shell{url: server.URL()}
	killed := 0
	for range testscale.N(40) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd, _, notes := s.command(ctx, "import", path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		timer := time.AfterFunc(time.Duration(150+seed.IntN(350))*time.Millisecond, func() { result <- server.Kill() })
		_ = cmd.Wait()
		if timer.Stop() {
			cancel()
			break // done before its time: the machine is fast
		}
		killed++
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("the import ended with %d when the server was killed, want 1:\n%s", code, notes)
		}
		if ctx.Err() != nil {
			t.Fatalf("the import did not end when the server was killed:\n%s", notes)
		}
		cancel()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if killed == 0 {
		t.Fatal("the import ended before the server was killed: make the journal longer")
	}
	s.must(t, "import", path)
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	audit(t, s, pool, path)
}

// seeded prints the seed; LEDGER_TEST_SEED sets it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LEDGER_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("LEDGER_TEST_SEED is %q; want a number", text)
		}
	}
	t.Logf("LEDGER_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// longJournal is the real ledger where there is one, else the example's own many times over: entries that are equal to
// others in the file, and nevertheless different ones.
func longJournal(t *testing.T) string {
	t.Helper()
	if os.Getenv("DAYBOOK_ACCEPTANCE_DATA") != "" {
		return samples(t)[1].journal
	}
	var text strings.Builder
	text.WriteString(header)
	for round := range 10 {
		for _, e := range entriesOf(t, ownSample(t).journal) {
			for _, p := range e.Postings {
				fmt.Fprintf(&text, "%d0%s,%s,%s,%s,%s,%s\n", round+1, e.Index, e.Date, plain(e.Description), p.Account, p.Amount, p.Commodity)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "long.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plain needs no quotes.
func plain(description string) string {
	return strings.NewReplacer(`"`, "", ",", "").Replace(description)
}
