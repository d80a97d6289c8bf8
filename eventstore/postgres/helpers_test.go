package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// patience bounds waiting for what must happen; a test that needs all of it has failed.
const patience = 30 * time.Second

// openStore opens a store that is closed with the test.
func openStore(t testing.TB, pool *pgxpool.Pool, cfg postgres.Config) *postgres.Store {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	store, err := postgres.New(t.Context(), pool, cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(store.Close)
	return store
}

// freshStore opens a store on a database of its own.
func freshStore(t testing.TB, cfg postgres.Config) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	pool := postgrestest.New(t)
	return openStore(t, pool, cfg), pool
}

// newStream returns a stream that nobody else uses.
func newStream(category string) eventstore.StreamID {
	return eventstore.NewStreamID(category, uuid.NewString())
}

func newEvent(data string) eventstore.EventData {
	return eventstore.EventData{Type: "test.happened", Data: []byte(data)}
}

// ownEvent has an id of the caller's.
func ownEvent(data string) eventstore.EventData {
	e := newEvent(data)
	e.ID = uuid.New()
	return e
}

func manyEvents(n int) []eventstore.EventData {
	list := make([]eventstore.EventData, n)
	for i := range list {
		list[i] = newEvent("x")
	}
	return list
}

func mustAppend(t testing.TB, store eventstore.Appender, writes ...eventstore.Write) eventstore.AppendResult {
	t.Helper()
	result, err := store.Append(context.Background(), writes...)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return result
}

func streamEvents(t testing.TB, store eventstore.StreamReader, id eventstore.StreamID) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for e, err := range store.ReadStream(context.Background(), id, eventstore.Range{}) {
		if err != nil {
			t.Fatalf("read stream %q: %v", id, err)
		}
		list = append(list, e)
	}
	return list
}

func logEvents(t testing.TB, store eventstore.AllReader, after eventstore.Position) []eventstore.RecordedEvent {
	t.Helper()
	var list []eventstore.RecordedEvent
	for e, err := range store.ReadAll(context.Background(), after, eventstore.Filter{}) {
		if err != nil {
			t.Fatalf("read log: %v", err)
		}
		list = append(list, e)
	}
	return list
}

func dataOf(list []eventstore.RecordedEvent) []string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = string(e.Data)
	}
	return texts
}

type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// value runs a query that gives one value.
func value[T any](t testing.TB, db queryer, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func mustExec(t testing.TB, db execer, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// beginTx opens a transaction that is rolled back with the test unless it ended before.
func beginTx(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // a transaction that ended is no error here
	return tx
}

func mustCommit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// await polls a condition of the database until it holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %s for: %s", patience, what)
		case <-tick.C:
		}
	}
}

// awaitBlocked waits until n backends of the pool's database wait for a lock.
func awaitBlocked(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	await(t, "a backend that waits for a lock", func() bool {
		return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	})
}

// within fails the test unless f ends in time.
func within(t testing.TB, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("%s took longer than %s", what, limit)
	}
}
