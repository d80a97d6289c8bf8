package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Whoever begins to follow a topic while the outbox is being cleaned finds what was kept for him.
func TestWhoBeginsToFollowWhileItIsCleaned(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	store := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	for range 10 {
		mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
	}
	end := safeHead(t, store).Ordinal()
	subscribe(t, pool, "outbox-relay", "", end)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := tx.Exec(ctx, "LOCK TABLE daybook.outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	type cleaning struct {
		report eventstore.CleanReport
		err    error
	}
	done := make(chan cleaning, 1)
	go func() {
		report, err := store.Outbox().Clean(ctx, time.Hour)
		done <- cleaning{report, err}
	}()
	const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for hung := false; !hung; <-look.C {
		if err := pool.QueryRow(ctx, waiting).Scan(&hung); err != nil {
			t.Fatalf("the cleaning does not wait: %v", err)
		}
	}
	subscribe(t, pool, "view", "all", 0)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if c := <-done; c.err != nil || !c.report.Cleaned.IsZero() {
		t.Errorf("cleaned up to %v of %d, and somebody who has passed nothing follows: %v", c.report.Cleaned, end, c.err)
	}
}
