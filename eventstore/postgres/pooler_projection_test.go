package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/projection"
)

type poolerDeposited struct{ Cents int64 }

// Read models are made, waited for and read through the pooler too: a worker keeps nothing on a connection between two
// transactions, its lease least of all.
func TestProjectionsBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	catalog := eventstore.NewCatalog(eventstore.TypeOf[poolerDeposited]("account.deposited"))
	view := projection.View[string, int64]{
		Name: "pooled_balances", Version: 1, Events: catalog,
		Folds: []projection.Fold[string, int64]{
			projection.On(projection.ByStream, func(sum int64, e projection.Event[poolerDeposited]) int64 { return sum + e.Payload.Cents }),
		},
	}
	pool := pooled(t, postgrestest.New(t), 6, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	store, err := postgres.New(t.Context(), pool, postgres.Config{TransactionPooler: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := projection.Install(t.Context(), pool, view); err != nil {
		t.Fatal(err)
	}
	// Short, so that it is renewed several times, each time on another backend.
	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{Lease: 300 * time.Millisecond, BatchSize: 3}, view)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()

	const appends = 60
	var token eventstore.Token
	for i := range appends {
		data, err := catalog.Encode(poolerDeposited{Cents: 1})
		if err != nil {
			t.Fatal(err)
		}
		stream := eventstore.NewStreamID("account", []string{"a", "b"}[i%2])
		r, err := store.Append(t.Context(), eventstore.To(stream, eventstore.AnyVersion, data))
		if err != nil {
			t.Fatal(err)
		}
		if token, err = token.Merge(r.Token); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 { // sees its own write, each time
			if _, err := view.Get(t.Context(), pool, stream.ID, projection.AtLeast(r.Token), projection.Within(30*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range []string{"a", "b"} {
		sum, err := view.Get(t.Context(), pool, id, projection.AtLeast(token), projection.Within(30*time.Second))
		if err != nil || sum != appends/2 {
			t.Errorf("balance of %q: %d (%v), want %d", id, sum, err, appends/2)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
