package outbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
)

// An event and the mail that tells of it, in one transaction.
func ExampleEnqueue_append() {
	place := func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, order eventstore.StreamID, placed eventstore.EventData) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := store.WithTx(tx).Append(ctx, eventstore.To(order, eventstore.NoStream, placed)); err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Message{ // behind the event, since it has its stream as key
				Topic: "mail", Key: order.String(), Type: "mail.order-placed", Data: []byte(order.ID),
			})
		})
		if err == nil {
			store.Wake() // seen and published at once
		}
		return err
	}
	_ = place
}
