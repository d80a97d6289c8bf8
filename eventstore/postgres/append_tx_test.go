package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// R-AC03: two appends to one stream in one transaction, and inline handlers see both versions.
func TestTwoAppendsInOneTransaction(t *testing.T) {
	t.Parallel()
	var seen []eventstore.Version
	store, pool := freshStore(t, postgres.Config{Hooks: []postgres.Hook{
		func(_ context.Context, _ pgx.Tx, events []eventstore.RecordedEvent) error {
			for _, e := range events {
				seen = append(seen, e.Version)
			}
			return nil
		},
	}})
	id := newStream("twice")
	tx := beginTx(t, pool)
	in := store.WithTx(tx)
	mustAppend(t, in, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	if got := streamEvents(t, in, id); len(got) != 1 {
		t.Errorf("the transaction sees %d of its own events", len(got))
	}
	if got := streamEvents(t, store, id); len(got) != 0 {
		t.Errorf("others see %d uncommitted events", len(got))
	}
	mustAppend(t, in, eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
	mustCommit(t, tx)
	if got := streamEvents(t, store, id); len(got) != 2 {
		t.Errorf("%d events stored", len(got))
	}
	if len(seen) != 2 || seen[0] != 1 || seen[1] != 2 {
		t.Errorf("the hook saw versions %v", seen)
	}
}

func TestConflictLeavesTheCallersTransactionAsItWas(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustExec(t, pool, `CREATE TABLE mine (k int PRIMARY KEY)`)
	id, other := newStream("used"), newStream("other")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	const settingsSQL = `SELECT current_setting('enable_seqscan') || ' ' || current_setting('jit') || ' ' || current_setting('work_mem')`

	tx := beginTx(t, pool)
	mustExec(t, tx, `SET LOCAL work_mem = '5MB'`)
	mustExec(t, tx, `INSERT INTO mine VALUES (1)`)
	before := value[string](t, tx, settingsSQL)
	for _, w := range [][]eventstore.Write{
		{eventstore.To(id, eventstore.NoStream, newEvent("x"))},
		{eventstore.To(id, eventstore.Exactly(9), newEvent("x"))},
		{eventstore.To(other, eventstore.StreamExists, newEvent("x"))},
		{eventstore.To(other, eventstore.NoStream, newEvent("x")), eventstore.Check(id, eventstore.NoStream)},
	} {
		if _, err := store.WithTx(tx).Append(t.Context(), w...); !errors.Is(err, eventstore.ErrConflict) {
			t.Fatalf("got %v, want a conflict", err)
		}
	}
	if after := value[string](t, tx, settingsSQL); after != before {
		t.Errorf("settings were %s and are %s", before, after)
	}
	mustExec(t, tx, `INSERT INTO mine VALUES (2)`)
	mustAppend(t, store.WithTx(tx), eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
	mustCommit(t, tx)
	if n := value[int](t, pool, `SELECT count(*) FROM mine`); n != 2 {
		t.Errorf("%d rows of the caller were committed", n)
	}
	if got := dataOf(streamEvents(t, store, id)); len(got) != 2 {
		t.Errorf("stored %q", got)
	}
	if n := len(logEvents(t, store, eventstore.Position{})); n != 2 {
		t.Errorf("%d events in the log", n)
	}
}

func TestSettingsOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	const plansSQL, commitSQL = `SELECT current_setting('enable_seqscan') || ' ' || current_setting('jit')`, `SELECT current_setting('synchronous_commit')`
	for _, set := range []struct{ seqscan, jit string }{{"on", "on"}, {"off", "on"}, {"on", "off"}} {
		plans := set.seqscan + " " + set.jit
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, conn, `SET synchronous_commit = off`)
		mustExec(t, conn, `SET enable_seqscan = `+set.seqscan)
		mustExec(t, conn, `SET jit = `+set.jit)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, store.WithTx(tx), eventstore.To(newStream("setting"), eventstore.NoStream, newEvent("1")))
		if got := value[string](t, tx, plansSQL); got != plans {
			t.Errorf("enable_seqscan and jit were %s and are %s", plans, got)
		}
		// An acknowledged append must be on disk: positions would be handed out again after a crash.
		if got := value[string](t, tx, commitSQL); got != "on" {
			t.Errorf("synchronous_commit is %s in a transaction that appended", got)
		}
		mustCommit(t, tx)
		if a, b := value[string](t, conn, plansSQL), value[string](t, conn, commitSQL); a != plans || b != "off" {
			t.Errorf("after the commit enable_seqscan and jit are %s and synchronous_commit %s", a, b)
		}
		mustExec(t, conn, `RESET ALL`)
		conn.Release()
	}
}

// R-AC09: who lost a race gets a conflict, a violation in the caller's own table stays the caller's, and reuse of ids is
// neither.
func TestConflictAgainstOtherViolations(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	mustExec(t, pool, `CREATE TABLE mine (k int PRIMARY KEY)`)
	mustExec(t, pool, `INSERT INTO mine VALUES (1)`)
	store := openStore(t, pool, postgres.Config{})
	id := newStream("account")
	first := ownEvent("1")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, first))

	_, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, ownEvent("other")))
	if !errors.Is(err, eventstore.ErrConflict) || !eventstore.IsRetryable(err) {
		t.Errorf("(a) got %v", err)
	}
	result, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, first))
	if err != nil || !result.Repeated || result.Versions[id] != 1 {
		t.Errorf("the same append again: %+v, %v", result, err)
	}
	changed := first
	changed.Data = []byte("2")
	_, err = store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, changed))
	if !errors.Is(err, eventstore.ErrReusedID) || errors.Is(err, eventstore.ErrConflict) || eventstore.IsRetryable(err) {
		t.Errorf("(b) got %v", err)
	}
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
	_, err = tx.Exec(t.Context(), `INSERT INTO mine VALUES (1)`)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23505" || eventstore.IsRetryable(err) {
		t.Errorf("(c) got %v", err)
	}
	if _, err := store.WithTx(tx).Append(t.Context(), eventstore.To(id, eventstore.Exactly(2), newEvent("3"))); err == nil || eventstore.IsRetryable(err) {
		t.Errorf("append in a transaction that has failed: %v", err)
	}
}

// R-AC08: a decision that changes nothing neither asserts nor bumps a version.
func TestDecidingNothingAssertsNothing(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	id := newStream("read")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	tx := beginTx(t, pool)
	if got := streamEvents(t, store.WithTx(tx), id); len(got) != 1 {
		t.Fatalf("%d events", len(got))
	}
	if _, err := store.WithTx(tx).Append(t.Context()); err != nil {
		t.Errorf("append of nothing: %v", err)
	}
	mustAppend(t, store, eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
	mustExec(t, tx, `INSERT INTO daybook.outbox (last_position, partition, topic, key, type, data)
		VALUES (currval('daybook.log_position'), 0, 't', 'k', 'command', '') ON CONFLICT DO NOTHING`)
	mustCommit(t, tx)
	if v := value[int64](t, pool, `SELECT version FROM daybook.streams WHERE stream_id = $1`, id.String()); v != 2 {
		t.Errorf("version %d", v)
	}
	// Only checking is possible too, and holds against the writer.
	if _, err := store.Append(t.Context(), eventstore.Check(id, eventstore.Exactly(1))); !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("check of an old version: %v", err)
	}
	mustAppend(t, store, eventstore.Check(id, eventstore.Exactly(2)))
}

func TestBusyInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	a, b := newStream("a"), newStream("b")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, newEvent("1")), eventstore.To(b, eventstore.NoStream, newEvent("1")))
	busy := func(name, code string, err error) {
		t.Helper()
		var pgErr *pgconn.PgError
		if !errors.Is(err, eventstore.ErrBusy) || !eventstore.IsRetryable(err) || !errors.As(err, &pgErr) || pgErr.Code != code {
			t.Errorf("%s: got %v, want ErrBusy from %s", name, err, code)
		}
	}

	holder := beginTx(t, pool)
	mustAppend(t, store.WithTx(holder), eventstore.To(a, eventstore.Exactly(1), newEvent("2")))
	waiter := beginTx(t, pool)
	mustExec(t, waiter, `SET LOCAL lock_timeout = '20ms'`)
	_, err := store.WithTx(waiter).Append(t.Context(), eventstore.To(a, eventstore.Exactly(1), newEvent("2")))
	busy("lock_timeout", "55P03", err)
	if err := waiter.Rollback(t.Context()); err != nil {
		t.Error(err)
	}

	// A deadlock: each locks one stream and then wants the other's.
	other := beginTx(t, pool)
	mustAppend(t, store.WithTx(other), eventstore.To(b, eventstore.Exactly(1), newEvent("2")))
	second := make(chan error, 1)
	go func() {
		_, err := store.WithTx(other).Append(context.Background(), eventstore.To(a, eventstore.Exactly(1), newEvent("2")))
		second <- errors.Join(err, other.Rollback(context.Background()))
	}()
	awaitBlocked(t, pool, 1)
	_, err = store.WithTx(holder).Append(t.Context(), eventstore.To(b, eventstore.Exactly(1), newEvent("2")))
	if err == nil { // the other one was chosen
		mustCommit(t, holder)
		err = <-second
	} else {
		if err := holder.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Errorf("the survivor of the deadlock: %v", err)
		}
	}
	busy("deadlock", "40P01", err)

	c := newStream("c")
	mustAppend(t, store, eventstore.To(c, eventstore.NoStream, newEvent("1")))
	for name, w := range map[string]eventstore.Write{
		"exact": eventstore.To(c, eventstore.Exactly(1), newEvent("x")),
		"any":   eventstore.To(c, eventstore.AnyVersion, newEvent("x")),
		"check": eventstore.Check(c, eventstore.Exactly(1)),
	} {
		old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		_ = value[int](t, old, `SELECT count(*) FROM daybook.streams`) // takes the snapshot
		mustAppend(t, store, eventstore.To(c, eventstore.AnyVersion, newEvent("meanwhile")))
		_, err = store.WithTx(old).Append(t.Context(), w)
		busy("repeatable read, "+name, "40001", err)
		if err := old.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A deadlock with a transaction that is not an append is run again and does not reach the caller.
func TestDeadlockWithAForeignTransactionIsRetried(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	// The victim is the one whose deadlock_timeout ends first: the store's.
	patient := pool.Config()
	patient.ConnConfig.RuntimeParams["deadlock_timeout"] = "20ms"
	store := openStore(t, pool, postgres.Config{})
	a, b := newStream("a"), newStream("b")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, newEvent("1")), eventstore.To(b, eventstore.NoStream, newEvent("1")))
	mustExec(t, store.Pool(), `SELECT 1`)

	foreign := beginTx(t, pool)
	mustExec(t, foreign, `SET LOCAL deadlock_timeout = '60s'`)
	lock := `SELECT 1 FROM daybook.streams WHERE stream_id = $1 FOR UPDATE`
	mustExec(t, foreign, lock, b.String())
	appended := make(chan error, 1)
	go func() {
		_, err := store.Append(context.Background(), eventstore.To(a, eventstore.AnyVersion, newEvent("2")), eventstore.To(b, eventstore.AnyVersion, newEvent("2")))
		appended <- err
	}()
	awaitBlocked(t, pool, 1) // it holds a and waits for b
	mustExec(t, foreign, lock, a.String())
	mustCommit(t, foreign)
	if err := <-appended; err != nil {
		t.Errorf("the append: %v", err)
	}
	if n := value[int](t, pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 1 {
		t.Errorf("%d deadlocks", n)
	}
	if got := len(logEvents(t, store, eventstore.Position{})); got != 4 {
		t.Errorf("%d events, want 4", got)
	}
}
