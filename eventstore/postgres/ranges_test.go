package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// smallRanges gives a database whose ranges hold 100 positions.
func smallRanges(t testing.TB, opts ...postgrestest.Option) *pgxpool.Pool {
	t.Helper()
	return postgrestest.New(t, append(opts, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 100}))...)
}

func rangeCount(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	return value[int](t, pool, `SELECT count(*) FROM daybook.ranges`)
}

func TestAppendsCrossRanges(t *testing.T) {
	t.Parallel()
	for _, run := range []bool{true, false} {
		t.Run(map[bool]string{true: "with Run", false: "without Run"}[run], func(t *testing.T) {
			t.Parallel()
			pool := smallRanges(t)
			store := openStore(t, pool, postgres.Config{})
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			if run {
				running.Go(func() {
					if err := store.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
			}
			rounds := testscale.N(1000)
			if testscale.Factor() < 1 {
				rounds = max(40, rounds*2/5) // of 24 positions, where a range has 100
			}
			for _, err := range concurrently(8, func(int) error {
				id := newStream("cross")
				for i := range rounds {
					if _, err := store.Append(ctx, eventstore.To(id, eventstore.Exactly(eventstore.Version(3*i)), manyEvents(3)...)); err != nil {
						return fmt.Errorf("append %d: %w", i, err)
					}
				}
				return nil
			}) {
				if err != nil {
					t.Error(err)
				}
			}
			if want, got := 8*3*rounds, len(logEvents(t, store, eventstore.Position{})); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
			cancel()
			running.Wait()
		})
	}
}

// An append that is larger than everything ahead makes room for itself.
func TestAppendLargerThanTheRangesAhead(t *testing.T) {
	t.Parallel()
	store := openStore(t, smallRanges(t), postgres.Config{})
	id := newStream("large")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, manyEvents(1000)...))
	if got := len(streamEvents(t, store, id)); got != 1000 {
		t.Errorf("%d events", got)
	}
}

// Where ranges cannot be added the append says so, and works again once they are there.
func TestNoRangeLeft(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	store := openStore(t, pool, postgres.Config{})
	mustExec(t, pool, `ALTER FUNCTION daybook.ensure_ranges(int) RENAME TO ensure_ranges_gone`)
	mustExec(t, pool, `SELECT setval('daybook.log_position', 1000)`)
	for name, w := range map[string]eventstore.Write{
		"exact": eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")),
		"any":   eventstore.To(newStream("s"), eventstore.AnyVersion, newEvent("1")),
	} {
		_, err := store.Append(t.Context(), w)
		if !errors.Is(err, postgres.ErrNoRange) || errors.Is(err, eventstore.ErrUnconfirmed) {
			t.Errorf("%s: got %v, want ErrNoRange", name, err)
		}
	}
	tx := beginTx(t, pool)
	if _, err := store.WithTx(tx).Append(t.Context(), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1"))); !errors.Is(err, postgres.ErrNoRange) {
		t.Errorf("WithTx: got %v, want ErrNoRange", err)
	}
	if h := store.Health(t.Context()); h.Ready || h.State != "ranges low" {
		t.Errorf("health: %+v", h)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.streams WHERE version > 0`); n != 0 {
		t.Errorf("%d streams claim events", n)
	}
	mustExec(t, pool, `ALTER FUNCTION daybook.ensure_ranges_gone(int) RENAME TO ensure_ranges`)
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
}

func TestEnsureRangesFromManySessions(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	before := rangeCount(t, pool)
	for _, err := range concurrently(8, func(int) error {
		_, err := pool.Exec(context.Background(), `SELECT daybook.ensure_ranges(9)`)
		return err
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	if before != 3 || rangeCount(t, pool) != 9 {
		t.Errorf("%d ranges became %d, want 3 and 9", before, rangeCount(t, pool))
	}
	gaps := value[int](t, pool, `SELECT count(*) FROM daybook.ranges a WHERE NOT EXISTS (SELECT FROM daybook.ranges b WHERE b.first_position = a.next_position)`)
	if gaps != 1 {
		t.Errorf("%d ranges have no successor, want only the last", gaps)
	}
	if n := value[int](t, pool, `SELECT daybook.ensure_ranges(2)`); n != 0 {
		t.Errorf("added %d ranges that nobody needs", n)
	}
}

// Attaching ranges waits for no append, and no append waits for it.
func TestRangesAreAttachedBesideOpenAppends(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	store := openStore(t, pool, postgres.Config{})
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("open"), eventstore.NoStream, newEvent("1")))
	reader := beginTx(t, pool)
	_ = value[int](t, reader, `SELECT count(*) FROM daybook.events`)

	adding := beginTx(t, pool)
	mustExec(t, adding, `SET LOCAL lock_timeout = '5s'`)
	if n := value[int](t, adding, `SELECT daybook.ensure_ranges(10)`); n == 0 {
		t.Fatal("no ranges added")
	}
	// The transaction that added them is still open.
	patient, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Release()
	within(t, patience, "an append beside a range that is being attached", func() {
		mustAppend(t, store, eventstore.To(newStream("beside"), eventstore.NoStream, newEvent("1")))
	})
	within(t, patience, "a read beside a range that is being attached", func() { logEvents(t, store, eventstore.Position{}) })
	mustCommit(t, adding)
	mustCommit(t, tx)
	if got := len(logEvents(t, store, eventstore.Position{})); got != 2 {
		t.Errorf("%d events", got)
	}
}

// A statement trigger of a parent does not fire for an insert made directly into a range.
func TestEveryRangeHasItsTriggers(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	mustExec(t, pool, `SELECT daybook.ensure_ranges(5)`)
	rows, err := pool.Query(t.Context(), `
SELECT c.relname::text, string_agg(t.tgname || ' ' || (t.tgtype & 1)::text, ',' ORDER BY t.tgname)
  FROM pg_class c LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgenabled = 'O'
 WHERE c.relnamespace = 'daybook'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname ~ '^(events|outbox)(_[0-9]+)?$' GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	var name string
	var triggers *string
	if _, err := pgx.ForEachRow(rows, []any{&name, &triggers}, func() error {
		tables++
		want := "register 0"
		if strings.HasPrefix(name, "events") {
			want = "refuse_change 0,register 0"
		}
		if triggers == nil || *triggers != want {
			t.Errorf("%s has the triggers %v, want %s", name, triggers, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if tables != 12 {
		t.Errorf("looked at %d tables, want 12", tables)
	}
	// Registered means: a lock of the class is held.
	for _, insert := range []string{
		`INSERT INTO daybook.events_101 (position, version, id, partition, stream_id, type, data) VALUES (150, 1, gen_random_uuid(), 0, 's-1', 't', '')`,
		`INSERT INTO daybook.outbox_101 (first_position, last_position, partition, topic, key, type, data) VALUES (151, 151, 0, 't', 'k', 'c', '')`,
		`INSERT INTO daybook.events (version, id, partition, stream_id, type, data) VALUES (1, gen_random_uuid(), 0, 's-2', 't', '')`,
	} {
		tx := beginTx(t, pool)
		mustExec(t, tx, insert)
		if n := value[int](t, tx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND pid = pg_backend_pid()
			AND classid = 'daybook.log_position'::regclass::oid`); n != 1 {
			t.Errorf("%d registrations after %s", n, insert)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestStreamOverManyRanges(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	store := openStore(t, pool, postgres.Config{})
	id, early := newStream("long"), newStream("early")
	mustAppend(t, store, eventstore.To(early, eventstore.NoStream, newEvent("0")))
	const appends, each = 50, 50
	for i := range appends {
		list := make([]eventstore.EventData, each)
		for k := range list {
			list[k] = newEvent(fmt.Sprint(i*each + k + 1))
		}
		mustAppend(t, store, eventstore.To(id, eventstore.Exactly(eventstore.Version(i*each)), list...))
	}
	if n := rangeCount(t, pool); n <= 16 {
		t.Fatalf("only %d ranges", n)
	}
	late := openStore(t, pool, postgres.Config{}) // knows the number of ranges from the start
	for name, s := range map[string]*postgres.Store{"early": store, "late": late} {
		list := streamEvents(t, s, id)
		if len(list) != appends*each {
			t.Errorf("%s: %d events, want %d", name, len(list), appends*each)
		}
		for i, e := range list {
			if string(e.Data) != fmt.Sprint(i+1) || e.Version != eventstore.Version(i+1) {
				t.Fatalf("%s: event %d is version %d with %q", name, i, e.Version, e.Data)
			}
		}
		if got := len(streamEvents(t, s, early)); got != 1 {
			t.Errorf("%s: %d events of the early stream", name, got)
		}
		if got := len(streamEvents(t, s, newStream("none"))); got != 0 {
			t.Errorf("%s: %d events of no stream", name, got)
		}
		var some []string
		for e, err := range s.ReadStream(t.Context(), id, eventstore.Range{From: 1100, To: 2300, Limit: 1150}) {
			if err != nil {
				t.Fatal(err)
			}
			some = append(some, string(e.Data))
		}
		if len(some) != 1150 || some[0] != "1100" || some[1149] != "2249" {
			t.Errorf("%s: a part has %d events", name, len(some))
		}
	}
	tx := beginTx(t, pool)
	mustAppend(t, late.WithTx(tx), eventstore.To(id, eventstore.Exactly(appends*each), newEvent("mine")))
	if got := len(streamEvents(t, late.WithTx(tx), id)); got != appends*each+1 {
		t.Errorf("the transaction sees %d events", got)
	}
}
