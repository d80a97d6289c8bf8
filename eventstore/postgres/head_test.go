package postgres_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// openAppend leaves an append of one event uncommitted.
func openAppend(t testing.TB, store *postgres.Store, pool *pgxpool.Pool, data string) pgx.Tx {
	t.Helper()
	tx := beginTx(t, pool)
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("open"), eventstore.NoStream, newEvent(data)))
	return tx
}

func safeHead(t testing.TB, store *postgres.Store) eventstore.Position {
	t.Helper()
	p, err := store.SafeHead(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// R-OG01: a lower position that commits later than a higher one.
func TestALaterCommitIsNeverSkipped(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	other := openStore(t, pool, postgres.Config{}) // another process
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("first")))
	a := openAppend(t, store, pool, "a")
	b := mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("b")))
	for name, s := range map[string]*postgres.Store{"same": store, "other": other} {
		list := logEvents(t, s, eventstore.Position{})
		if got := dataOf(list); !slices.Equal(got, []string{"first"}) {
			t.Fatalf("%s: read %q while a is open", name, got)
		}
		page, err := s.Log().ReadPage(t.Context(), list[0].Position, eventstore.Filter{}, 10)
		if err != nil || len(page.Events) != 0 || page.Through.After(list[0].Position) {
			t.Fatalf("%s: page %+v, %v while a is open", name, page, err)
		}
	}
	mustCommit(t, a)
	for name, s := range map[string]*postgres.Store{"same": store, "other": other} {
		if got := dataOf(logEvents(t, s, eventstore.Position{})); !slices.Equal(got, []string{"first", "a", "b"}) {
			t.Errorf("%s: read %q", name, got)
		}
	}
	if end := safeHead(t, store); end.Before(b.Token.Marks()[0].Position) {
		t.Errorf("safe head %s is below b", end)
	}
}

// R-OG07: the order is that of positions, whenever a transaction began.
func TestOrderDoesNotDependOnWhenTransactionsBegan(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustExec(t, pool, `CREATE TABLE work (i int)`)
	a := beginTx(t, pool)
	mustExec(t, a, `INSERT INTO work VALUES (1)`) // has its transaction id early
	b := beginTx(t, pool)
	mustAppend(t, store.WithTx(b), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("b")))
	mustCommit(t, b)
	first := logEvents(t, store, eventstore.Position{})
	mustAppend(t, store.WithTx(a), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("a")))
	mustCommit(t, a)
	rest := logEvents(t, store, first[len(first)-1].Position)
	if got := append(dataOf(first), dataOf(rest)...); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("read %q", got)
	}
}

// R-OG02: nobody waits for the hole of a rollback.
func TestRolledBackAppendDelaysNobody(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	if err := openAppend(t, store, pool, "gone").Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("2")))
	if got := dataOf(logEvents(t, store, eventstore.Position{})); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("read %q", got)
	}
	// A savepoint that is undone takes its registration with it, and a later append in the same transaction registers anew.
	tx := beginTx(t, pool)
	inner, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, store.WithTx(inner), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("undone")))
	if err := inner.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("3")))
	if got := len(logEvents(t, store, eventstore.Position{})); got != 3 {
		t.Errorf("%d events after a savepoint was undone, want 3", got)
	}
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("4")))
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("5")))
	if got := len(logEvents(t, store, eventstore.Position{})); got != 3 {
		t.Errorf("%d events while the transaction is open, want 3", got)
	}
	mustCommit(t, tx)
	if got := dataOf(logEvents(t, store, eventstore.Position{})); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("read %q", got)
	}
}

// R-OG05: whatever commits between the steps of a reading, what was read as complete stays complete.
func TestCommitsBetweenTheStepsOfAReading(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMaxConns(40))
	store := openStore(t, pool, postgres.Config{})
	rounds := testscale.N(10_000)
	if testscale.Factor() < 1 {
		rounds = max(100, rounds/4)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	ctx, cancel := context.WithCancel(context.Background())
	held := make(chan pgx.Tx, 6)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for ctx.Err() == nil {
				tx, err := pool.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err = store.WithTx(tx).Append(context.Background(), eventstore.To(newStream("w"), eventstore.NoStream, newEvent("1"), newEvent("2"))); err != nil {
					t.Error(err)
				}
				select {
				case held <- tx:
				case <-ctx.Done():
					if err := tx.Rollback(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, 0))
	end := func() {
		tx := <-held
		var err error
		if r.IntN(5) == 0 {
			err = tx.Rollback(context.Background())
		} else {
			err = tx.Commit(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	}
	conn, err := store.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var cursor int64
	var got []int64
	for range rounds {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		end()
		safe, events, err := store.HeadSteps(ctx, tx, cursor, func() { end(); end() })
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Position.Ordinal() > safe {
				t.Fatalf("a page gave position %s above the safe head %d", e.Position, safe)
			}
			got = append(got, e.Position.Ordinal())
		}
		cursor = max(cursor, safe)
	}
	conn.Release()
	cancel()
	writers.Wait()
	for len(held) > 0 {
		end()
	}
	rows, err := pool.Query(t.Context(), `SELECT position FROM daybook.events WHERE position <= $1 ORDER BY position`, cursor)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d events read, %d lie at or below the cursor", len(got), len(want))
	}
	if len(want) < rounds/2 {
		t.Errorf("only %d events in %d rounds: too few to show anything", len(want), rounds)
	}
}

func TestSafeHeadNeverFalls(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	rounds := testscale.N(1000)
	errs := concurrently(8, func(i int) error {
		if i >= 4 { // writers
			for range rounds {
				tx, err := pool.Begin(context.Background())
				if err != nil {
					return err
				}
				if _, err := store.WithTx(tx).Append(context.Background(), eventstore.To(newStream("w"), eventstore.NoStream, newEvent("1"))); err != nil {
					return err
				}
				if err := tx.Commit(context.Background()); err != nil {
					return err
				}
			}
			return nil
		}
		var last eventstore.Position
		for range rounds {
			p, err := store.SafeHead(context.Background())
			if err != nil {
				return err
			}
			if p.Before(last) {
				t.Errorf("the safe head fell from %s to %s", last, p)
			}
			last = p
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// R-OG11: holes cost a reader nothing but the step over them, however wide they are.
func TestWideHoles(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	n := testscale.N(1000)
	for i := range n {
		mustExec(t, pool, `SELECT count(nextval('daybook.log_position')) FROM generate_series(1, 100)`)
		if i == n/2 { // more than a page looks at
			mustExec(t, pool, `SELECT setval('daybook.log_position', 1000000)`)
		}
		mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("x")))
	}
	mustExec(t, pool, `SELECT setval('daybook.log_position', 1500000)`) // and a hole at the end
	late := openStore(t, pool, postgres.Config{})
	for name, s := range map[string]*postgres.Store{"early": store, "late": late} {
		if got := len(logEvents(t, s, eventstore.Position{})); got != n {
			t.Errorf("%s: %d events, want %d", name, got, n)
		}
		log, after, pages, seen := s.Log(), eventstore.Position{}, 0, 0
		for {
			page, err := log.ReadPage(t.Context(), after, eventstore.Filter{Types: []string{"test.happened"}}, 100)
			if err != nil {
				t.Fatal(err)
			}
			seen += len(page.Events)
			if pages++; !page.Through.After(after) {
				break
			}
			after = page.Through
		}
		if seen != n || pages > n/100+15 {
			t.Errorf("%s: %d events in %d pages", name, seen, pages)
		}
	}
}

// A lock carries 31 bits of the position above which its owner writes.
func TestHeadBeyondTwoToThe31(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	mustExec(t, pool, `CALL daybook.add_range(2140000001, 2150000001)`)
	mustExec(t, pool, `SELECT setval('daybook.log_position', 2147483640)`)
	before := eventstore.PositionAt(2147483640)
	var want []string
	for range 8 {
		open := openAppend(t, store, pool, "open")
		mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1"), newEvent("2"), newEvent("3")))
		if got := dataOf(logEvents(t, store, before)); !slices.Equal(got, want) {
			t.Fatalf("read %d events while an append is open, want %d", len(got), len(want))
		}
		mustCommit(t, open)
		want = append(want, "open", "1", "2", "3")
		if got := dataOf(logEvents(t, store, before)); !slices.Equal(got, want) {
			t.Fatalf("read %d events, want %d", len(got), len(want))
		}
	}
	if end := safeHead(t, store); end.Ordinal() < 1<<31+20 {
		t.Errorf("only came to %s", end)
	}
}
