package outbox_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
)

// Every process that appends has the routes. The relay may run in each of them, or in one of its own.
func ExampleRelay() {
	publish := func(ctx context.Context, pool *pgxpool.Pool, broker message.Publisher) error {
		store, err := postgres.New(ctx, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "orders"}}})
		if err != nil {
			return err
		}
		defer store.Close()
		relay, err := outbox.NewRelay(pool, store.Outbox(), broker, outbox.Config{})
		if err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return store.Run(ctx) })
		g.Go(func() error { return relay.Run(ctx) })
		return g.Wait()
	}
	_ = publish
}
