package postgres_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Under REPEATABLE READ the page of events would have the snapshot that the head was read with, and miss what committed
// between: the store must not inherit a default of the role or database.
func TestDefaultIsolationOfTheUserIsNotTheStores(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	}))
	store := openStore(t, pool, postgres.Config{})
	id := newStream("s")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))

	writer, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, store.WithTx(writer), eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
	reader, err := store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = value[int](t, reader, `SELECT 1`)
	mustCommit(t, writer)
	safe, events, err := store.HeadSteps(t.Context(), reader, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if safe != int64(len(events)) || len(events) != 2 {
		t.Errorf("safe head %d, but %d events below it", safe, len(events))
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if got := value[string](t, pool, `SHOW transaction_isolation`); got != "repeatable read" {
		t.Errorf("the user's pool has %s", got)
	}
}

func TestPoolerWithAnotherDefaultIsolationIsRefused(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}))
	_, err := postgres.New(t.Context(), pool, postgres.Config{TransactionPooler: true, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "default_transaction_isolation") {
		t.Errorf("got %v", err)
	}
}
