package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// With 200 ranges a reading near the head locks few of them: the lock table of a server has room for some thousands.
func TestReadingsNearTheHeadLockFewRanges(t *testing.T) {
	t.Parallel()
	const size, ranges, most = 1000, 200, 40
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: size}))
	mustExec(t, pool, `SELECT daybook.ensure_ranges(100)`)
	mustExec(t, pool, `SELECT setval('daybook.log_position', $1)`, size*(ranges-100))
	mustExec(t, pool, `SELECT daybook.ensure_ranges(100)`)
	mustExec(t, pool, `SELECT setval('daybook.log_position', $1)`, size*(ranges-2)+500)
	if n := rangeCount(t, pool); n < ranges {
		t.Fatalf("%d ranges", n)
	}
	hookLocks := -1
	id := newStream("recent")
	first := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}, Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			return tx.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid()`).Scan(&hookLocks)
		},
	}})
	end := mustAppend(t, first, eventstore.To(id, eventstore.NoStream, manyEvents(50)...)).Token.Marks()[0].Position.Ordinal()
	store := openStore(t, pool, postgres.Config{}) // as a process that starts now

	locks := func(what string, do func(tx pgx.Tx)) int {
		t.Helper()
		tx := beginTx(t, store.Pool())
		pid := tx.Conn().PgConn().PID()
		do(tx)
		n := value[int](t, pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = $1`, pid)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d locks", what, n)
		return n
	}
	read := func(after int64) func(tx pgx.Tx) {
		return func(tx pgx.Tx) {
			if safe, events, err := store.HeadSteps(t.Context(), tx, after, nil); err != nil || safe != end || (after < end && len(events) == 0) {
				t.Fatalf("safe %d, %d events, %v; want safe %d", safe, len(events), err, end)
			}
		}
	}
	for what, do := range map[string]func(pgx.Tx){
		"safe head at the end":      read(end),
		"safe head and a near page": read(end - 20),
		"first reading of a process": func(tx pgx.Tx) {
			if err := store.FirstReading(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		},
		"a near page of the outbox": func(tx pgx.Tx) {
			page, err := store.OutboxPage(t.Context(), tx, eventstore.OutboxQuery{Partition: eventstore.AllPartitions, After: eventstore.PositionAt(end - 20), Limit: 10})
			if err != nil || len(page.Messages) != 10 {
				t.Fatalf("%d messages, %v", len(page.Messages), err)
			}
		},
		"a near page of one topic and partition": func(tx pgx.Tx) {
			page, err := store.OutboxPage(t.Context(), tx, eventstore.OutboxQuery{Topic: "all", Partition: 3, After: eventstore.PositionAt(end - 20), Limit: 10})
			if err != nil || page.Through.Ordinal() != end {
				t.Fatalf("%+v, %v", page, err)
			}
		},
		"a recent stream": func(tx pgx.Tx) {
			if got := len(streamEvents(t, store.WithTx(tx), id)); got != 50 {
				t.Fatalf("%d events", got)
			}
		},
	} {
		if n := locks(what, do); n >= most {
			t.Errorf("%s holds %d relation locks, want fewer than %d", what, n, most)
		}
	}
	if hookLocks < 0 || hookLocks >= most {
		t.Errorf("an append with a hook holds %d relation locks, want fewer than %d", hookLocks, most)
	}
	// The count would show a reading without a bound.
	if n := locks("unbounded", func(tx pgx.Tx) {
		mustExec(t, tx, `SELECT max(position) FROM daybook.events`)
	}); n < 10*most {
		t.Errorf("a reading without a bound holds only %d locks", n)
	}
}
