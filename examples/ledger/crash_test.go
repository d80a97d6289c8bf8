package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

func TestKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	path := ownSample(t).journal
	for point, nths := range map[string][]int{
		atMigration: {2, 1}, atInstall: {3, 1}, atLease: {2, 1, 3}, atWritten: {24, 1, 48}, atStored: {24, 1, 48},
		atPublished: {3, 1, 8}, atCursorSent: {3, 1, 8}, atCursorMoved: {3, 1, 8},
		atBatchSent: {5, 1, 20}, atBatchAnswered: {5, 1, 20}, atBatchCommitted: {5, 1, 20}, atReport: {1, 3},
	} {
		for _, nth := range nths[:testscale.N(len(nths))] {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				t.Parallel()
				s, pool := newShell(t)
				if point == atMigration || point == atInstall {
					s, pool = emptyShell(t)
				}
				armed := shell{url: s.url, env: []string{armedAt(point, nth)}}
				if r := armed.run(t, "import", path); r.code != -1 {
					t.Fatalf("the program was to be killed, and ended with %d:\n%s%s", r.code, r.out, r.notes)
				}
				s.must(t, "import", path)
				audit(t, s, pool, path)
			})
		}
	}
}

// The points are spread over the whole import: each kill waits until another part of it is stored, a twentieth at full size,
// and then for a random moment. Some come while the program starts.
func TestKillAtRandomPoints(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	path := longJournal(t)
	total := eventsOf(t, path)
	kills := 4 + testscale.N(16)
	s, pool := emptyShell(t)
	inside := 0
	for killed, here := 0, 0; killed < kills; {
		stored, after := here*total/kills+seed.IntN(total/kills), time.Duration(seed.IntN(30))*time.Millisecond
		if seed.IntN(4) == 0 {
			stored, after = 0, time.Duration(seed.IntN(350))*time.Millisecond
		}
		if s.killAfter(t, pool, stored, after, "import", path) {
			killed++
			here++
			if stored > 0 {
				inside++
			}
			continue
		}
		// The last kill came too late: go on with another ledger.
		audit(t, s, pool, path)
		s, pool = emptyShell(t)
		here = 0
	}
	if inside < kills/4 {
		t.Errorf("only %d of %d kills came in the middle of the import", inside, kills)
	}
	s.must(t, "import", path)
	audit(t, s, pool, path)
	if out := s.must(t, "import", path); !strings.HasPrefix(out, "already imported: 0 new\n") {
		t.Errorf("the import after the last says\n%s", out)
	}
}

// killAfter starts the program and kills it a while after so many events are stored; it reports whether there was
// anything left to kill.
func (s shell) killAfter(t *testing.T, pool *pgxpool.Pool, stored int, after time.Duration, args ...string) bool {
	t.Helper()
	_, r := s.strike(t, pool, stored, after, func(p *os.Process) error {
		_ = p.Kill() // one that has just ended needs no end
		return nil
	}, args...)
	if r.code > 0 {
		t.Fatalf("ledger %v failed before it was killed:\n%s", args, r.notes)
	}
	return r.code == -1
}

// strike starts the program, strikes a while after so many events are stored, and waits for the end of the program. It
// reports whether it came to the strike.
func (s shell) strike(
	t *testing.T, pool *pgxpool.Pool, stored int, after time.Duration, strike func(*os.Process) error, args ...string,
) (struck bool, r result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out, notes := s.command(ctx, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code says it
	}()
	var due <-chan time.Time
	if stored == 0 {
		due = time.After(after)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for alive := true; alive; {
		select {
		case <-ended:
			alive = false
		case <-due:
			struck = true
			if err := strike(cmd.Process); err != nil {
				t.Fatal(err)
			}
			<-ended
			alive = false
		case <-look.C:
			var n int // stays 0 while there is no table
			if due == nil && pool.QueryRow(ctx, "SELECT count(*) FROM daybook.events").Scan(&n) == nil && n >= stored {
				due = time.After(after)
			}
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("ledger %v does not end:\n%s", args, notes)
	}
	return struck, result{code: cmd.ProcessState.ExitCode(), out: out.String(), notes: notes.String()}
}

// The server is killed in the middle of the import, at points spread over all of it; the program ends with an error, and
// goes on when it is called again.
func TestKillTheServer(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	path := longJournal(t)
	total := eventsOf(t, path)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := shell{url: server.URL()}
	times := testscale.N(40)
	for i := range times {
		// The last twentieth is left alone, so that there is something to kill it in.
		part := total * 19 / 20 / times
		struck, r := s.strike(t, pool, 1+i*part+seed.IntN(part), time.Duration(seed.IntN(30))*time.Millisecond,
			func(*os.Process) error { return server.Kill() }, "import", path)
		switch {
		case r.code == 0 && i >= times/2:
			t.Logf("the import was done before kill %d of %d", i+1, times)
		case r.code != 1:
			t.Errorf("the import ended with %d when the server was killed, want 1:\n%s", r.code, r.notes)
		}
		if !struck {
			break
		}
		if err := restart(t, server); err != nil {
			t.Fatal(err)
		}
	}
	s.must(t, "import", path)
	audit(t, s, pool, path)
}

// eventsOf is how many events a journal leads to, at least.
func eventsOf(t *testing.T, path string) int {
	t.Helper()
	n := 0
	for _, e := range entriesOf(t, path) {
		n += 1 + len(e.Postings)
	}
	return n
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

// longJournal is the real ledger where there is one, at full size, else the example's own many times over: entries that
// are equal to others in the file, and nevertheless different ones.
func longJournal(t *testing.T) string {
	t.Helper()
	if os.Getenv("DAYBOOK_ACCEPTANCE_DATA") != "" && testscale.Factor() >= 1 {
		return samples(t)[1].journal
	}
	rounds := 10
	if testscale.Factor() < 1 {
		rounds = 5
	}
	var text strings.Builder
	text.WriteString(header)
	for round := range rounds {
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
