package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// hookStores runs a test on the store's own transactions and on a caller's.
func hookStores(t *testing.T, hook postgres.Hook, test func(t *testing.T, store *postgres.Store, pool *pgxpool.Pool, do func(...eventstore.Write) error)) {
	t.Helper()
	for _, own := range []bool{true, false} {
		name := map[bool]string{true: "Append", false: "WithTx"}[own]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, pool := freshStore(t, postgres.Config{Hooks: []postgres.Hook{hook}})
			test(t, store, pool, func(writes ...eventstore.Write) error {
				if own {
					_, err := store.Append(context.Background(), writes...)
					return err
				}
				return pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
					_, err := store.WithTx(tx).Append(context.Background(), writes...)
					return err
				})
			})
		})
	}
}

func TestHookGetsTheEventsAsStored(t *testing.T) {
	t.Parallel()
	got := make(chan []eventstore.RecordedEvent, 10)
	hook := func(_ context.Context, _ pgx.Tx, events []eventstore.RecordedEvent) error {
		got <- events
		return nil
	}
	hookStores(t, func(ctx context.Context, tx pgx.Tx, events []eventstore.RecordedEvent) error {
		return hook(ctx, tx, events)
	}, func(t *testing.T, store *postgres.Store, _ *pgxpool.Pool, do func(...eventstore.Write) error) {
		mine := make(chan []eventstore.RecordedEvent, 10)
		a, b := newStream("a"), newStream("b")
		full := newEvent("full")
		full.Metadata = eventstore.Metadata{Tenant: "t", CorrelationID: "c", CausationID: "d", Actor: "e", Headers: map[string]string{"h": "1"}}
		full.SchemaVersion, full.ContentType, full.Flags = 3, "application/json", 5
		for _, writes := range [][]eventstore.Write{
			{eventstore.To(a, eventstore.NoStream, full, newEvent("2"))},
			{eventstore.To(a, eventstore.Exactly(2), newEvent("3"))},
			{eventstore.To(b, eventstore.AnyVersion, full, newEvent("2")), eventstore.To(a, eventstore.StreamExists, newEvent("4"))},
			{eventstore.Check(a, eventstore.Exactly(4))},
		} {
			before := logEvents(t, store, eventstore.Position{})
			if err := do(writes...); err != nil {
				t.Fatal(err)
			}
			want := logEvents(t, store, eventstore.Position{})[len(before):]
			if len(want) == 0 {
				continue // a check runs no hook
			}
			// The other subtest's events come through the same channel.
			for len(mine) == 0 {
				events := <-got
				if events[0].Stream == a || events[0].Stream == b {
					mine <- events
				} else {
					got <- events
				}
			}
			if diff := cmp.Diff(want, <-mine, cmp.AllowUnexported(eventstore.Position{})); diff != "" {
				t.Errorf("the hook got other events than were stored:\n%s", diff)
			}
		}
	})
}

func TestErrorOfAHookRollsBackAndComesBackUntouched(t *testing.T) {
	t.Parallel()
	refusal := errors.New("the hook says no")
	hookStores(t, func(ctx context.Context, tx pgx.Tx, events []eventstore.RecordedEvent) error {
		if string(events[0].Data) == "ok" {
			return nil
		}
		if _, err := tx.Exec(ctx, `CREATE TABLE hook_was_here ()`); err != nil {
			return err
		}
		return refusal
	}, func(t *testing.T, store *postgres.Store, pool *pgxpool.Pool, do func(...eventstore.Write) error) {
		id := newStream("refused")
		if err := do(eventstore.To(id, eventstore.NoStream, newEvent("bad"))); err != refusal { //nolint:errorlint // untouched means identical
			t.Errorf("got %v, want the error of the hook itself", err)
		}
		if n := value[int](t, pool, `SELECT count(*) FROM pg_class WHERE relname = 'hook_was_here'`); n != 0 {
			t.Error("what the hook did was kept")
		}
		if err := do(eventstore.To(id, eventstore.NoStream, newEvent("ok"))); err != nil {
			t.Errorf("append after a refusal: %v", err)
		}
		if got := streamEvents(t, store, id); len(got) != 1 {
			t.Errorf("%d events", len(got))
		}
	})
}

// The settings of the store's own connections must not change the plans of a handler.
func TestSettingsInsideAHookAreTheUsers(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 4)
	hookStores(t, func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
		var settings string
		err := tx.QueryRow(ctx, `SELECT concat_ws(' ', current_setting('enable_seqscan'), current_setting('jit'), current_setting('transaction_isolation'))`).Scan(&settings)
		seen <- settings
		return err
	}, func(t *testing.T, store *postgres.Store, pool *pgxpool.Pool, do func(...eventstore.Write) error) {
		if err := do(eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1"))); err != nil {
			t.Fatal(err)
		}
		if got, want := <-seen, "on "+value[string](t, pool, `SHOW jit`)+" read committed"; got != want {
			t.Errorf("inside the hook: %s", got)
		}
	})
}

func TestUsersOwnDefaultsHoldInsideAHook(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["enable_seqscan"], c.ConnConfig.RuntimeParams["jit"] = "off", "off"
	}))
	var seen string
	store := openStore(t, pool, postgres.Config{Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			return tx.QueryRow(ctx, `SELECT current_setting('enable_seqscan') || ' ' || current_setting('jit')`).Scan(&seen)
		},
	}})
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	if seen != "off off" {
		t.Errorf("enable_seqscan and jit are %s inside the hook", seen)
	}
}

// A hook that swallows the error of a statement makes the commit a rollback. That is known, not unconfirmed.
func TestHookThatSwallowsAFailure(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		},
	}})
	id := newStream("s")
	_, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, newEvent("1")))
	if err == nil || errors.Is(err, eventstore.ErrUnconfirmed) || !strings.HasPrefix(err.Error(), "postgres: append: ") {
		t.Errorf("got %v, want a plain error", err)
	}
	if got := streamEvents(t, store, id); len(got) != 0 {
		t.Errorf("%d events stored", len(got))
	}
}
