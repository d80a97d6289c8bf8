package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/projection"
)

// workerURL makes the test binary a program that runs the projection, and can be killed.
const workerURL = "DAYBOOK_DEADLETTER_TEST_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		fmt.Fprintln(os.Stderr, work(url))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

type noted struct{ N int }

var (
	orderEvents = eventstore.NewCatalog(eventstore.TypeOf[noted]("order.noted"))
	errBad      = errors.New("the order is in trouble")
)

// orders notes what it has applied in order, and fails at what somebody has put into the table trouble.
func orders() projection.Projection {
	return projection.Projection{
		Name: "orders", Version: 1, Events: orderEvents,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE readmodels.noted (n bigserial PRIMARY KEY, stream text, version bigint);
				CREATE TABLE readmodels.trouble (stream text, version bigint)`)
			return err
		},
		Handlers: []projection.Handler{projection.Handle(func(ctx context.Context, tx pgx.Tx, e projection.Event[noted]) error {
			var bad bool
			const look = `SELECT EXISTS (SELECT FROM readmodels.trouble WHERE stream = $1 AND version = $2)`
			if err := tx.QueryRow(ctx, look, e.Stream.String(), int64(e.Version)).Scan(&bad); err != nil {
				return err
			}
			if bad {
				return errBad
			}
			_, err := tx.Exec(ctx, `INSERT INTO readmodels.noted (stream, version) VALUES ($1, $2)`, e.Stream.String(), int64(e.Version))
			return err
		})},
	}
}

func work(url string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{
		Lease: time.Second, BatchSize: 20,
		Classify: func(err error) eventstore.FailureKind {
			if errors.Is(err, errBad) {
				return eventstore.Permanent
			}
			return eventstore.Transient
		},
	}, orders())
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// shop is a store, its projection in a process of its own, and somebody at a terminal.
type shop struct {
	*failed
	store  *postgres.Store
	worker *exec.Cmd
}

func newShop(t *testing.T) *shop {
	pool := postgrestest.New(t)
	if err := projection.Install(t.Context(), pool, orders()); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	s := &shop{failed: &failed{t: t, pool: pool, url: postgrestest.URL(pool)}, store: store}
	t.Cleanup(s.kill)
	return s
}

func (s *shop) start() {
	s.t.Helper()
	s.worker = exec.Command(os.Args[0])
	s.worker.Env = append(os.Environ(), workerURL+"="+s.url)
	s.worker.Stderr = os.Stderr
	if err := s.worker.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill is a kill -9.
func (s *shop) kill() {
	if s.worker != nil {
		_ = s.worker.Process.Kill()
		_ = s.worker.Wait()
		s.worker = nil
	}
}

func (s *shop) append(order, n int) {
	s.t.Helper()
	var events []eventstore.EventData
	for i := range n {
		e, err := orderEvents.Encode(noted{i})
		if err != nil {
			s.t.Fatal(err)
		}
		events = append(events, e)
	}
	if _, err := s.store.Append(s.t.Context(), eventstore.To(eventstore.NewStreamID("order", fmt.Sprint(order)), eventstore.AnyVersion, events...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) trouble(order, version int) {
	s.exec(`INSERT INTO readmodels.trouble VALUES ('order-' || $1::int, $2)`, order, version)
}

func (s *shop) mend(order int) {
	s.exec(`DELETE FROM readmodels.trouble WHERE stream = 'order-' || $1::int`, order)
}

// until waits for a condition of the database.
func (s *shop) until(what, sql string, args ...any) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		var ok bool
		if err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&ok); err != nil {
			s.t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
	}
}

// wait runs the command of a person who waits for a plan.
func (s *shop) wait(args ...string) (string, int) {
	s.t.Helper()
	out, _, err := person(s.t.Context(), "", s.on(args...)...)
	if err != nil && exitCode(err) == 1 {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out, exitCode(err)
}

// noted is what was applied of an order, in the order in which it was.
func (s *shop) noted(order int) string {
	s.t.Helper()
	var text string
	const q = `SELECT coalesce(string_agg(version::text, ' ' ORDER BY n), '') FROM readmodels.noted WHERE stream = 'order-' || $1::int`
	if err := s.pool.QueryRow(s.t.Context(), q, order).Scan(&text); err != nil {
		s.t.Fatal(err)
	}
	return text
}

// letter is the open letter of an order.
func (s *shop) letter(order int) string {
	s.t.Helper()
	var id uuid.UUID
	const q = `SELECT letter FROM daybook.letters WHERE sequence = 'order-' || $1::int AND state = 'parked'`
	if err := s.pool.QueryRow(s.t.Context(), q, order).Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id.String()
}

func (s *shop) checkpoint() (text string) {
	s.t.Helper()
	const q = `SELECT string_agg(floor::text, ',') || coalesce((SELECT string_agg(applied::text, ',' ORDER BY partition) FROM daybook.checkpoints), '') FROM daybook.segments`
	if err := s.pool.QueryRow(s.t.Context(), q).Scan(&text); err != nil {
		s.t.Fatal(err)
	}
	return text
}

const settled = `SELECT count(*) = $1 FROM daybook.parked WHERE state = 'parked'`

// A projection fails at ten orders; somebody mends, tries again with a canary, is stopped by a failure, and goes on. The
// program is killed in the middle of a plan. R-DL02, and the order of every sequence.
func TestDeadLettersFromAFailureToItsEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const all, bad = 30, 10
	for i := range bad {
		s.trouble(i, 1)
	}
	for i := range all {
		s.append(i, 3)
	}
	s.start()
	s.until("the bad orders are set aside", settled, bad)
	s.until("the others are applied", `SELECT count(*) = $1 FROM readmodels.noted`, (all-bad)*3)
	s.until("everything behind is passed by", `SELECT sum(queued) = $1 FROM daybook.parked`, bad*2)
	before := s.checkpoint()
	groups := strings.Fields(lastLine(s.run("groups")))
	if len(groups) < 4 || groups[1] != "orders" || groups[3] != fmt.Sprint(bad) {
		t.Fatalf("groups: %q", groups)
	}

	// The canary fails: nothing else is tried.
	for i := 1; i < bad; i++ {
		s.mend(i)
	}
	out, code := s.wait("redrive", "--group", groups[0], "--canary", "1", "--max-failures", "0", "--yes", "--wait")
	if code != exitPlan || !strings.Contains(out, "stopped: 0 of 10 succeeded, 1 failed, 9 left") || !strings.Contains(out, "the order is in trouble") {
		t.Fatalf("the canary: exit %d\n%s", code, out)
	}
	s.until("one was tried again, once", `SELECT array_agg(attempts ORDER BY position) = ARRAY[2,1,1,1,1,1,1,1,1,1] FROM daybook.letters`)

	// A failure in the middle stops the plan; what was before it is applied with what was queued.
	s.mend(0)
	s.trouble(5, 1)
	out, code = s.wait("redrive", "--consumer", "orders", "--yes", "--wait")
	if code != exitPlan || !strings.Contains(out, "stopped: 5 of 10 succeeded, 1 failed, 4 left") {
		t.Fatalf("a failure: exit %d\n%s", code, out)
	}
	s.until("five are released", `SELECT count(*) = 5 FROM daybook.parked`)

	// The program is killed while a plan runs, and the next one goes on with it.
	s.mend(5)
	id := strings.TrimSuffix(strings.Fields(s.run("redrive", "--consumer", "orders", "--yes", "--rate", "2"))[1], ":")
	s.until("the plan has begun", `SELECT succeeded > 0 FROM daybook.redrives WHERE redrive = $1::uuid`, id)
	s.kill()
	wantIn(t, s.run("plans", id), "running: ")
	s.start()
	if out, code := s.wait("plans", id, "--wait"); code != 0 || !strings.Contains(out, "done: 5 of 5 succeeded, 0 failed") {
		t.Fatalf("after the kill: exit %d\n%s", code, out)
	}
	s.until("all are released", `SELECT count(*) = 0 FROM daybook.parked`)
	for i := range all {
		if got := s.noted(i); got != "1 2 3" {
			t.Errorf("order %d: %q was applied", i, got)
		}
	}
	if after := s.checkpoint(); after != before {
		t.Errorf("redrives have moved the checkpoint from %s to %s", before, after)
	}
}

// What is queued behind a discarded letter goes on in order, and then it is too late for an undo; before, it is not.
func TestDiscardAndUndoBesideAWorker(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.trouble(1, 2)
	s.trouble(2, 2)
	s.append(1, 4)
	s.append(2, 2)
	s.start()
	s.until("both are set aside", settled, 2)
	s.until("what is behind is known", `SELECT sum(queued) = 2 FROM daybook.parked`)
	one, two := s.letter(1), s.letter(2)
	s.run("discard", one, "--reason", "never mind")
	s.until("it goes on", `SELECT count(*) = 1 FROM daybook.parked`)
	if got := s.noted(1); got != "1 3 4" {
		t.Errorf("%q was applied", got)
	}
	s.wantError(exitRefused, "has taken effect since", "undo", one)

	s.run("discard", two, "--reason", "a slip")
	s.until("it is released", `SELECT count(*) = 0 FROM daybook.parked`)
	s.run("undo", two, "--reason", "that was a slip")
	s.append(2, 2)
	s.until("what comes waits behind it", `SELECT count(*) = 1 FROM daybook.parked WHERE state = 'parked' AND queued = 2`)
	s.mend(2)
	if out, code := s.wait("redrive", two, "--wait"); code != 0 {
		t.Errorf("exit %d\n%s", code, out)
	}
	s.until("it goes on", `SELECT count(*) = 0 FROM daybook.parked`)
	if got := s.noted(2); got != "1 2 3 4" {
		t.Errorf("%q was applied", got)
	}
	wantIn(t, s.run("show", two), "applied", "discard by "+whoami()+": a slip", "undo by "+whoami()+": that was a slip", "redrive by "+whoami())
}
