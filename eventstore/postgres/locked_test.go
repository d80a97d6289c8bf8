package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// With one connection f reads on the one that has the locks, and so do the hooks of its append, while others wait.
func TestLockedStreamsNeedOneConnection(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	var store *postgres.Store
	read := 0
	store = openStore(t, pool, postgres.Config{MaxConns: 1, Hooks: []postgres.Hook{
		func(ctx context.Context, _ pgx.Tx, events []eventstore.RecordedEvent) error {
			if ctx.Value(inside{}) == nil {
				return nil
			}
			for _, err := range store.ReadStream(ctx, events[0].Stream, eventstore.Range{}) {
				if err != nil {
					return err
				}
				read++
			}
			return nil
		},
	}})
	id, c := newStream("s"), newKey()
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	others := make(chan error, 4)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := store.WithStreamsLocked(ctx, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
		for range cap(others) {
			go func() {
				_, err := store.Append(context.Background(), eventstore.To(id, eventstore.AnyVersion, newEvent("x")))
				others <- err
			}()
		}
		if _, found, err := store.FirstOutcome(ctx, c); found || err != nil {
			return fmt.Errorf("found %t, %w", found, err)
		}
		for _, err := range concurrently(4, func(int) error { // side by side, too
			for _, err := range store.ReadStream(ctx, id, eventstore.Range{}) {
				if err != nil {
					return err
				}
			}
			_, err := store.SafeHead(ctx)
			return err
		}) {
			if err != nil {
				return err
			}
		}
		if _, _, err := store.Snapshots().Load(ctx, id, "f", 0); err != nil {
			return err
		}
		_, err := s.AppendOnce(context.WithValue(ctx, inside{}, true), c, eventstore.Outcome{}, eventstore.To(id, eventstore.Exactly(1), newEvent("2")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(others) {
		if err := <-others; err != nil {
			t.Error(err)
		}
	}
	if n := len(streamEvents(t, store, id)); n != 6 || read != 2 {
		t.Errorf("%d events, the hook read %d", n, read)
	}
	nested := store.WithStreamsLocked(t.Context(), nil, nil, func(ctx context.Context, _ eventstore.LockedStreams) error {
		return store.WithStreamsLocked(ctx, nil, nil, func(context.Context, eventstore.LockedStreams) error { return nil })
	})
	if !errors.Is(nested, eventstore.ErrInvalid) {
		t.Errorf("nested: %v", nested)
	}
}

type inside struct{}

// Two processes lock the same streams.
func TestTwoStoresLockStreams(t *testing.T) {
	t.Parallel()
	a, pool := freshStore(t, postgres.Config{MaxConns: 2})
	stores := []*postgres.Store{a, openStore(t, pool, postgres.Config{MaxConns: 2})}
	x, y := newStream("x"), newStream("y")
	const callers, rounds = 8, 5
	for i, err := range concurrently(callers, func(i int) error {
		ids := []eventstore.StreamID{x, y}
		if i/2%2 == 1 {
			ids = []eventstore.StreamID{y, x}
		}
		store := stores[i%2]
		for range rounds {
			if err := store.WithStreamsLocked(context.Background(), nil, ids, func(ctx context.Context, s eventstore.LockedStreams) error {
				var v eventstore.Version
				for e, err := range store.ReadStream(ctx, x, eventstore.Range{}) {
					if err != nil {
						return err
					}
					v = e.Version
				}
				_, err := s.Append(ctx, eventstore.To(x, eventstore.Exactly(v), newEvent("1")), eventstore.To(y, eventstore.Exactly(v), newEvent("1")))
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if n := len(streamEvents(t, a, x)); n != callers*rounds {
		t.Errorf("%d events", n)
	}
}

// A deadlock with a transaction that locks as it likes, and one that waits for ever, end as busy.
func TestBusyLockedStreams(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	a, b := newStream("a"), newStream("b")
	mustAppend(t, store, eventstore.To(a, eventstore.NoStream, newEvent("1")), eventstore.To(b, eventstore.NoStream, newEvent("1")))
	tx := beginTx(t, pool)
	mustExec(t, tx, `SET LOCAL deadlock_timeout = '1min'`) // the other one finds it
	mustExec(t, tx, `SELECT FROM daybook.streams WHERE stream_id = $1 FOR UPDATE`, b.String())
	waiting := make(chan error, 1)
	err := store.WithStreamsLocked(t.Context(), nil, []eventstore.StreamID{a}, func(ctx context.Context, s eventstore.LockedStreams) error {
		go func() {
			_, err := tx.Exec(context.Background(), `SELECT FROM daybook.streams WHERE stream_id = $1 FOR UPDATE`, a.String())
			waiting <- err
		}()
		awaitBlocked(t, pool, 1)
		_, err := s.Append(ctx, eventstore.To(b, eventstore.AnyVersion, newEvent("2")))
		return err
	})
	if !errors.Is(err, eventstore.ErrBusy) || !eventstore.IsRetryable(err) {
		t.Errorf("deadlock: %v, want ErrBusy", err)
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	impatient := openStore(t, pool, postgres.Config{})
	mustExec(t, impatient.Pool(), `SET lock_timeout = '1ms'`)
	ran := false
	err = impatient.WithStreamsLocked(t.Context(), nil, []eventstore.StreamID{a}, func(context.Context, eventstore.LockedStreams) error {
		ran = true
		return nil
	})
	if !errors.Is(err, eventstore.ErrBusy) || ran {
		t.Errorf("lock time-out: %v, want ErrBusy; f ran: %t", err, ran)
	}
}

// An append that finds no range may be run again at once, with everything around it.
func TestLockedStreamsAtTheEndOfTheRanges(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 100}))
	store := openStore(t, pool, postgres.Config{})
	mustExec(t, pool, `SELECT setval('daybook.log_position', 299)`)
	id := newStream("s")
	runs := 0
	for {
		err := store.WithStreamsLocked(t.Context(), nil, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
			_, err := s.Append(ctx, eventstore.To(id, eventstore.NoStream, manyEvents(50)...))
			return err
		})
		if runs++; err == nil || runs == 10 {
			break
		}
		if !eventstore.IsRetryable(err) {
			t.Fatal(err)
		}
	}
	if n := len(streamEvents(t, store, id)); n != 50 || runs < 2 {
		t.Errorf("%d events after %d runs", n, runs)
	}
}

// Keys that are held leave connections for appends, and what is beyond them is held in the process.
func TestHeldKeysLeaveConnections(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	for _, conns := range []int32{1, 4} {
		store := openStore(t, pool, postgres.Config{MaxConns: conns})
		var releases []func()
		for i := range 10 {
			c := eventstore.Claim{Scope: fmt.Sprint(conns), Key: fmt.Sprint(i)}
			release, err := store.HoldKey(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
			if _, err := store.HoldKey(t.Context(), c); !errors.Is(err, eventstore.ErrInProgress) {
				t.Errorf("%d connections, key %d: %v", conns, i, err)
			}
		}
		if n := store.Pool().Stat().AcquiredConns(); n != conns/2 {
			t.Errorf("%d of %d connections hold keys", n, conns)
		}
		within(t, patience, "an append", func() { mustAppendOnce(t, store, newKey(), eventstore.Outcome{}) })
		for _, release := range releases {
			release()
			release()
		}
		await(t, "all connections back", func() bool { return store.Pool().Stat().AcquiredConns() == 0 }) // old keys may be seen to
		release, err := store.HoldKey(t.Context(), eventstore.Claim{Scope: fmt.Sprint(conns), Key: "9"})
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
}

// R-RL02: commands whose callers give up at any point leave no connection, lock or goroutine behind. Not in parallel,
// since it counts goroutines.
func TestCancelledCommands(t *testing.T) { //nolint:paralleltest
	pool := postgrestest.New(t)
	store := openStore(t, pool, postgres.Config{MaxConns: 4, KeepKeys: 1000 * time.Hour})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	deeds := map[string]func(ctx context.Context, c eventstore.Claim, id eventstore.StreamID) error{
		"append": func(ctx context.Context, c eventstore.Claim, id eventstore.StreamID) error {
			_, err := store.AppendOnce(ctx, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, manyEvents(3)...))
			return err
		},
		"locked": func(ctx context.Context, c eventstore.Claim, id eventstore.StreamID) error {
			return store.WithStreamsLocked(ctx, &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
				_, err := s.AppendOnce(ctx, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, manyEvents(3)...))
				return err
			})
		},
		"held": func(ctx context.Context, c eventstore.Claim, id eventstore.StreamID) error {
			release, err := store.HoldKey(ctx, c)
			if err != nil {
				return err
			}
			defer release()
			_, err = store.AppendOnce(ctx, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, manyEvents(3)...))
			return err
		},
	}
	usual := map[string]time.Duration{}
	for name, deed := range deeds {
		usual[name] = time.Hour
		for range 10 {
			start := time.Now()
			if err := deed(context.Background(), newKey(), newStream("warm")); err != nil {
				t.Fatal(err)
			}
			usual[name] = min(usual[name], time.Since(start))
		}
	}
	before := runtime.NumGoroutine()
	cancelled := 0
	for range max(testscale.N(200), 60) {
		for name, deed := range deeds {
			c, id := newKey(), newStream("s")
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(usual[name])*3/2)))
			err := deed(ctx, c, id)
			cancel()
			if err != nil {
				cancelled++
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, eventstore.ErrUnconfirmed) {
					t.Errorf("%s: %v", name, err)
				}
			}
			// Both or none; what is in doubt may be on its way still.
			await(t, "events and outcome to agree", func() bool {
				_, found, firstErr := store.FirstOutcome(context.Background(), c)
				n := len(streamEvents(t, store, id))
				return firstErr == nil && (n == 3 && found || n == 0 && !found && err != nil)
			})
		}
	}
	if cancelled < 50 {
		t.Errorf("%d were cancelled: the test shows little", cancelled)
	}
	await(t, "all connections back", func() bool { return store.Pool().Stat().AcquiredConns() == 0 })
	await(t, "locks gone", func() bool {
		return value[int](t, pool, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() WHERE locktype = 'advisory'`) == 0
	})
	await(t, fmt.Sprintf("no more than the %d goroutines of before", before), func() bool { return runtime.NumGoroutine() <= before })
}

// What the store sets for its own statements is not there for hooks, whatever was read before in the transaction.
func TestSettingsInsideAHookOfLockedStreams(t *testing.T) {
	t.Parallel()
	direct := postgrestest.New(t)
	for name, pool := range map[string]*pgxpool.Pool{
		"direct": direct,
		"pooler": pooled(t, direct, 2, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }),
	} {
		var seen string
		store := openStore(t, pool, postgres.Config{TransactionPooler: name == "pooler", Hooks: []postgres.Hook{
			func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
				return tx.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('enable_seqscan'), current_setting('jit'), current_setting('transaction_isolation'))`).Scan(&seen)
			},
		}})
		id, c := newStream("s"), newKey()
		if err := store.WithStreamsLocked(t.Context(), &c, []eventstore.StreamID{id}, func(ctx context.Context, s eventstore.LockedStreams) error {
			if _, _, err := store.Snapshots().Load(ctx, id, "f", 0); err != nil {
				return err
			}
			_, err := s.AppendOnce(ctx, c, eventstore.Outcome{}, eventstore.To(id, eventstore.NoStream, newEvent("1")))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want := "on " + value[string](t, pool, `SHOW jit`) + " read committed"; seen != want {
			t.Errorf("%s: inside the hook: %s", name, seen)
		}
		if got := value[string](t, pool, `SELECT current_setting('enable_seqscan')`); got != "on" {
			t.Errorf("%s: afterwards: %s", name, got)
		}
	}
}
