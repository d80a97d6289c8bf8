package postgres_test

import (
	"errors"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// A caller that goes on after a lock time-out must still learn that running the transaction again helps, not that "the
// current transaction is aborted".
func TestABrokenTransactionKeepsItsFirstError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := postgrestest.New(t)
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	stream := eventstore.NewStreamID("account", "1")
	event := eventstore.EventData{Type: "account.opened"}
	if _, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, event)); err != nil {
		t.Fatal(err)
	}
	holder, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(ctx) }()
	if _, err := store.WithTx(holder).Append(ctx, eventstore.To(stream, eventstore.Exactly(1), event)); err != nil {
		t.Fatal(err)
	}

	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '10ms'"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SAVEPOINT before"); err != nil {
		t.Fatal(err)
	}
	in := store.WithTx(tx)
	for range 2 {
		if _, err := in.Append(ctx, eventstore.To(stream, eventstore.Exactly(1), event)); !errors.Is(err, eventstore.ErrBusy) {
			t.Fatalf("append behind a lock: %v, want ErrBusy", err)
		}
	}
	for _, err := range in.ReadStream(ctx, stream, eventstore.Range{}) {
		if !errors.Is(err, eventstore.ErrBusy) {
			t.Fatalf("read in the broken transaction: %v, want ErrBusy", err)
		}
	}

	if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT before"); err != nil {
		t.Fatal(err)
	}
	if err := holder.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Append(ctx, eventstore.To(stream, eventstore.Exactly(1), event)); err != nil {
		t.Errorf("append after the savepoint was rolled back: %v", err)
	}
}
