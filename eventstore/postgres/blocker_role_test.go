package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Without pg_read_all_stats the server hides what other roles do. The holder must not pass for a prepared transaction,
// and its age must still grow.
func TestAHolderOfAnotherRoleIsNotTakenForPrepared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	owner := postgrestest.New(t)
	role := "daybook_blocker_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))[:8]
	grants, err := postgres.GrantsScript("", role)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(ctx, "DROP ROLE IF EXISTS "+role+"; CREATE ROLE "+role+" LOGIN PASSWORD 'x'; "+grants); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := owner.Exec(t.Context(), "SELECT 1"); err == nil {
			_, _ = owner.Exec(t.Context(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		}
	})
	cfg := owner.Config()
	cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "x"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	tx, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	stream := eventstore.NewStreamID("account", "1")
	if _, err := store.WithTx(tx).Append(ctx, eventstore.To(stream, eventstore.NoStream, eventstore.EventData{Type: "account.opened"})); err != nil {
		t.Fatal(err)
	}
	first, held, err := store.Blocker(ctx)
	if err != nil || !held {
		t.Fatalf("no holder found: %v", err)
	}
	if first.PID == 0 || strings.Contains(first.String(), "prepared transaction") || !strings.Contains(first.State, "pg_read_all_stats") {
		t.Errorf("the holder is described as %q", first)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		again, held, err := store.Blocker(ctx)
		if err != nil || !held {
			t.Fatalf("the holder vanished: %v", err)
		}
		if again.Age > first.Age {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the age of the holder stays at %s", again.Age)
		}
	}
}
