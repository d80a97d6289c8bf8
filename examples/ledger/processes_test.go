package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/examples/ledger/api"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

// entryJSON moves an amount from one account to another.
func entryJSON(key, to, from, amount string) string {
	return fmt.Sprintf(`{"key":%q,"date":"2025-01-31","description":"Lunch","postings":[
		{"account":%q,"amount":%q,"commodity":"EUR"},{"account":%q,"amount":"-%s","commodity":"EUR"}]}`, key, to, amount, from, amount)
}

// R-RW05: one process writes and asks, another one keeps what is asked for. A read is never older than its token.
func TestServeAndWork(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	working := s.work(t)
	serving, c := s.serve(t)
	const writers = 4
	rounds := 3 + testscale.N(22)
	sum, more := fmt.Sprintf("%d.00", rounds), fmt.Sprintf("%d.50", rounds) // of each, and of the first when one was posted alone
	first, last := make([]string, writers), make([]string, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			food, cash := fmt.Sprintf("expenses:food:%d", i), fmt.Sprintf("assets:cash:%d", i)
			for round := 1; round <= rounds; round++ {
				posted := c.post(t, entryJSON(fmt.Sprintf("%d-%d", i, round), food, cash, "1.00"))
				shown := c.read(t, "/balances/"+food, posted.token(), "Prefer", "wait=20")
				if posted.status != http.StatusCreated || shown.status != http.StatusOK || shown.balance() != fmt.Sprintf("%d.00", round) {
					t.Errorf("writer %d, round %d: posted %d %s, shown %d %s", i, round, posted.status, posted.text, shown.status, shown.text)
					return
				}
				if round == 1 {
					first[i] = posted.token()
				}
				last[i] = posted.token()
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if n := eventsIn(t, pool); n != writers*(2+3*rounds) {
		t.Errorf("%d events are stored, want %d", n, writers*(2+3*rounds))
	}

	working.stop(t)
	posted := c.post(t, entryJSON("alone", "expenses:food:0", "assets:cash:0", "0.50"))
	late := c.read(t, "/balances/expenses:food:0?wait=200ms", posted.token())
	if late.status != http.StatusServiceUnavailable || late.header.Get("Retry-After") == "" || late.body.Behind < 1 || late.body.Working == nil || *late.body.Working {
		t.Errorf("without a process that works: %d %v %s", late.status, late.header, late.text)
	}
	stale := c.read(t, "/balances/expenses:food:0?wait=0", posted.token(), "Prefer", "handling=lenient")
	if stale.status != http.StatusOK || stale.balance() != sum || stale.header.Get("Preference-Applied") != "handling=lenient" || stale.header.Get(api.LagHeader) == "" {
		t.Errorf("the stale answer: %d %v %s", stale.status, stale.header, stale.text)
	}
	if old := c.read(t, "/balances/expenses:food:0", last[0]); old.status != http.StatusOK || old.balance() != sum {
		t.Errorf("an older token: %d %s", old.status, old.text)
	}

	// Somebody who waits is answered when there is a worker again.
	waits := make(chan reply, 1)
	go func() { waits <- c.read(t, "/balances/expenses:food:0?wait=30", posted.token()) }()
	again := s.work(t)
	if r := <-waits; r.status != http.StatusOK || r.balance() != more {
		t.Errorf("when work had begun again: %d %s", r.status, r.text)
	}

	serving.stop(t)
	serving, c = s.serve(t)
	for i, token := range append(first, last...) {
		want := map[bool]string{true: more, false: sum}[i%writers == 0]
		if r := c.read(t, fmt.Sprintf("/balances/expenses:food:%d", i%writers), token); r.status != http.StatusOK || r.balance() != want {
			t.Errorf("token %d after the restart: %d %s", i, r.status, r.text)
		}
	}
	serving.stop(t)
	again.stop(t)
	for name, d := range map[string]*daemon{"work": working, "work again": again, "serve": serving} {
		out, _ := d.out.now()
		if strings.Count(out, "\n") != 1 {
			t.Errorf("%s printed more than that it is ready:\n%s", name, out)
		}
		if text := out + d.notes.String(); strings.Contains(text, "Lunch") || strings.Contains(text, "expenses") || strings.Contains(text, pool.Config().ConnConfig.Password) {
			t.Errorf("%s says too much:\n%s", name, text)
		}
	}
}

// A reader who waits does not hold up the end, and is told that he may ask again.
func TestServeEndsWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	s, _ := newShell(t)
	serving, c := s.serve(t)
	posted := c.post(t, entryJSON("1", "expenses:food", "assets:cash", "1.00"))
	waits := make(chan reply, 1)
	go func() { waits <- c.read(t, "/balances?wait=30", posted.token()) }()
	for range 100 { // until it has reached the server for sure: each of these comes after it
		c.do(t, http.MethodGet, "/healthz", "")
	}
	serving.stop(t)
	if r := <-waits; r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("who waited got %d %s", r.status, r.text)
	}
}

// A post that the database holds up does neither.
func TestServeEndsWhileAPostHangs(t *testing.T) {
	t.Parallel()
	s, pool := newShell(t)
	serving, c := s.serve(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // the test's context may have ended
	if _, err := tx.Exec(t.Context(), "LOCK TABLE daybook.events IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	hangs := make(chan reply, 1)
	go func() { hangs <- c.post(t, entryJSON("1", "expenses:food", "assets:cash", "1.00")) }()
	const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for hung := false; !hung; <-look.C {
		if err := pool.QueryRow(t.Context(), waiting).Scan(&hung); err != nil {
			t.Fatal(err)
		}
	}
	serving.stop(t)
	if r := <-hangs; r.status != 0 && (r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "") {
		t.Errorf("who posted got %d %s", r.status, r.text)
	}
}

func TestServeNeedsAnAddress(t *testing.T) {
	t.Parallel()
	s := shell{url: "postgres://127.0.0.1:1/none"} // it does not come as far as to connect
	for _, address := range []string{"127.0.0.1", "127.0.0.1:http:80", "192.0.2.1:8080"} {
		if r := s.run(t, "serve", "--listen", address); r.code != 1 || !strings.Contains(r.notes, "such as 127.0.0.1:8080") {
			t.Errorf("%s: %d %s", address, r.code, r.notes)
		}
	}
}

// named are the points between the steps of the pipeline. The more often a point is to be passed before, the longer the
// journal must be: a process that is slow does more in one step.
var named = map[string][]int{
	atPublished: {3, 1, 25}, atCursorSent: {3, 1, 25}, atCursorMoved: {3, 1, 25},
	atBatchSent: {5, 1, 25}, atBatchAnswered: {5, 1, 25}, atBatchCommitted: {5, 1, 25},
}

func journalFor(t *testing.T, nth int) string {
	t.Helper()
	if nth > 5 {
		return longJournal(t)
	}
	return ownSample(t).journal
}

// The process that publishes and keeps the read models is killed while another one imports; that one takes over.
func TestKillTheWorker(t *testing.T) {
	t.Parallel()
	for point, nths := range named {
		for _, nth := range nths[:testscale.N(len(nths))] {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				t.Parallel()
				path := journalFor(t, nth)
				s, pool := newShell(t)
				victim := shell{url: s.url, env: []string{armedAt(point, nth)}}.work(t)
				s.must(t, "import", path)
				if !victim.died(t) {
					t.Fatalf("the worker was to be killed")
				}
				audit(t, s, pool, path)
			})
		}
	}
}

// The server is killed at the same points; the worker outlives it.
func TestKillTheServerAtEveryPoint(t *testing.T) {
	t.Parallel()
	for point, nths := range named {
		for _, nth := range nths[:testscale.N(len(nths))] {
			t.Run(fmt.Sprintf("%s %d", point, nth), func(t *testing.T) {
				t.Parallel()
				path := journalFor(t, nth)
				server, s, pool := ownServer(t)
				ask := filepath.Join(t.TempDir(), "kill the server")
				armed := shell{url: s.url, env: []string{armedAt(point, nth), crashServer + "=" + ask}}
				worker := armed.work(t)
				killed := make(chan error, 1)
				go func() { killed <- killWhenAsked(t, server, ask) }()
				r := s.run(t, "import", path)
				if err := <-killed; err != nil {
					t.Fatal(err)
				}
				if r.code != 0 && !strings.Contains(r.notes, "run the same command again") {
					t.Errorf("the import ended with %d:\n%s", r.code, r.notes)
				}
				s.must(t, "import", path)
				audit(t, s, pool, path)
				worker.stop(t)
				out, _ := worker.out.now()
				t.Logf("the import ended with %d, the worker printed\n%s", r.code, out)
			})
		}
	}
}

// ownServer is a server to be killed, which keeps what it has acknowledged.
func ownServer(t *testing.T) (*pgserver.Server, shell, *pgxpool.Pool) {
	t.Helper()
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
	t.Cleanup(pool.Close)
	return server, shell{url: server.URL()}, pool
}

// killWhenAsked waits for the file, kills the server, lets who has asked go on, and starts the server again.
func killWhenAsked(t *testing.T, server *pgserver.Server, ask string) error {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(patience / 2); !exists(ask); <-look.C {
		if time.Now().After(deadline) {
			return errors.New("nobody has asked for the end of the server")
		}
	}
	if err := server.Kill(); err != nil {
		return err
	}
	if err := os.Remove(ask); err != nil {
		return err
	}
	return restart(t, server)
}

// restart starts a server that was killed. Processes of the old one may be in its way for a moment.
func restart(t *testing.T, server *pgserver.Server) error {
	t.Helper()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for attempt := 1; ; attempt++ {
		err := server.Restart(t.Context())
		if err == nil || attempt == 20 {
			return err
		}
		t.Log(err)
		<-look.C
	}
}

// waits is how the log of a worker says that one of its parts waits.
func waits(part string) string { return `level=WARN msg="consumer waiting" consumer=` + part + " " }

// partState is a line of a worker's log on a part, or a segment of the relay, that is in another state.
var partState = regexp.MustCompile(`msg="consumer (\w+)" consumer=(\S+ version=\d+(?: segment=\d+)?)`)

// While the database is away the two say so, and not again and again, and afterwards they go on.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	server, s, _ := ownServer(t)
	working := s.work(t)
	serving, c := s.serve(t)
	before := c.post(t, entryJSON("1", "expenses:food", "assets:cash", "1.00"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := c.do(t, http.MethodGet, "/readyz", ""); r.status != http.StatusServiceUnavailable || r.body.State != "unreachable" {
		t.Errorf("readiness is %d %s", r.status, r.text)
	}
	lunch := entryJSON("", "expenses:food", "assets:cash", "1.00")
	away := c.postAs(t, "lunch", lunch)
	if away.status != http.StatusServiceUnavailable || away.header.Get("Retry-After") == "" {
		t.Errorf("a post is answered with %d %v %s", away.status, away.header, away.text)
	}
	if r := c.read(t, "/balances", before.token()); r.status != http.StatusServiceUnavailable {
		t.Errorf("a read is answered with %d %s", r.status, r.text)
	}
	if r := c.do(t, http.MethodGet, "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("the process lives: %d %s", r.status, r.text)
	}
	for _, part := range []string{"outbox-relay", "balances", "movements", "entries", "commands"} {
		working.waitFor(t, working.notes, waits(part))
	}
	if err := restart(t, server); err != nil {
		t.Fatal(err)
	}
	// Sent again under its key, it is posted once.
	after := c.postAs(t, "lunch", lunch)
	for range 3 {
		after = c.postAs(t, "lunch", lunch)
	}
	if r := c.read(t, "/balances/expenses:food?wait=30", after.token()); r.status != http.StatusOK || r.balance() != "2.00" {
		t.Errorf("afterwards: %d %s, %d %s", after.status, after.text, r.status, r.text)
	}
	// Connections that broke while they rested are found one by one, each by who takes it.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for asked := 1; ; asked++ {
		r := c.do(t, http.MethodGet, "/readyz", "")
		if r.status == http.StatusOK {
			break
		}
		if asked == 100 {
			t.Fatalf("readiness is %d %s", r.status, r.text)
		}
		<-again.C
	}
	serving.stop(t)
	working.stop(t)
	states := map[string]string{}
	for _, m := range partState.FindAllStringSubmatch(working.notes.String(), -1) {
		if states[m[2]] == m[1] {
			t.Errorf("%s is said to be %s, twice in a row", m[2], m[1])
		}
		states[m[2]] = m[1]
	}
	// A part may find several connections broken, one after the other.
	if n := strings.Count(working.notes.String(), "\n"); n > 60 {
		t.Errorf("the worker noted %d lines", n)
	}
	for _, line := range []string{`level=WARN msg="not ready" state=unreachable reason=`, "level=INFO msg=ready "} {
		if n := strings.Count(serving.notes.String(), line); n != 1 {
			t.Errorf("the server said %d times %q, want once:\n%s", n, line, serving.notes)
		}
	}
	if out := working.out.String(); out != working.ready+"\n" {
		t.Errorf("the worker printed\n%s", out)
	}
	t.Logf("the worker noted\n%s", working.notes)
}
