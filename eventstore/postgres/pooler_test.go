package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// R-PG04: with default settings the store says at the start that it cannot work.
func TestPoolerThatWasNotAnnouncedIsRefused(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{"cache statement": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec} {
		pool := pooled(t, postgrestest.New(t), 2, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		_, err := postgres.New(t.Context(), pool, postgres.Config{Logger: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, postgres.ErrPooler) {
			t.Errorf("%s: got %v, want ErrPooler", name, err)
		}
	}
}

// The other mode of queries without named statements.
func TestCacheDescribeBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	pool := pooled(t, postgrestest.New(t), 2, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	})
	store := openStore(t, pool, postgres.Config{TransactionPooler: true})
	a, b := newStream("a"), newStream("b")
	for i := range 20 {
		v := eventstore.Exactly(eventstore.Version(2 * i))
		mustAppend(t, store, eventstore.To(a, v, newEvent("1"), newEvent("2")))
		mustAppend(t, store, eventstore.To(b, eventstore.AnyVersion, newEvent("1")), eventstore.Check(a, eventstore.StreamExists))
		if got := len(logEvents(t, store, eventstore.Position{})); got != 3*(i+1) {
			t.Fatalf("%d events after round %d", got, i)
		}
	}
	if got := len(streamEvents(t, store, a)); got != 40 {
		t.Errorf("%d events", got)
	}
	if _, err := store.Append(t.Context(), eventstore.To(a, eventstore.NoStream, newEvent("x"))); !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// Nothing that the store sets may stay on a backend that others use next, and nothing may be missing.
func TestSettingsBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	direct := postgrestest.New(t)
	pool := pooled(t, direct, 1, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	var inside string
	store := openStore(t, pool, postgres.Config{TransactionPooler: true, Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			return tx.QueryRow(ctx, `SELECT current_setting('enable_seqscan')`).Scan(&inside)
		},
	}})
	const sql = `SELECT current_setting('enable_seqscan') || ' ' || current_setting('synchronous_commit') || ' ' || current_setting('default_transaction_isolation')`
	before := value[string](t, pool, sql)
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	if inside != "on" {
		t.Errorf("enable_seqscan is %s inside the hook", inside)
	}
	if got := len(logEvents(t, store, eventstore.Position{})); got != 1 {
		t.Errorf("%d events", got)
	}
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	mustCommit(t, tx)
	if after := value[string](t, pool, sql); after != before {
		t.Errorf("the backend had %s and has %s", before, after)
	}
	// Registrations end with each transaction, though the backend lives on.
	if n := value[int](t, direct, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
		WHERE locktype = 'advisory' AND objsubid = 2`); n != 0 {
		t.Errorf("%d registrations stay", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := value[int](t, direct, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`); n != 0 {
		t.Error("a backend of the pooler listens")
	}
}
