package outbox_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projection"
)

// Placed says that a customer has placed an order.
type Placed struct{ Customer string }

// Orders is a row: how many orders a customer has placed.
type Orders struct{ Placed int64 }

func customer(e projection.Event[Placed]) string { return e.Payload.Customer }

func (o Orders) placed(projection.Event[Placed]) Orders { o.Placed++; return o }

// Customers has a row for each customer.
var Customers = projection.View[string, Orders]{
	Name: "customers", Version: 1, Events: eventstore.NewCatalog(eventstore.TypeOf[Placed]("order.placed")),
	Folds: []projection.Fold[string, Orders]{projection.On(customer, Orders.placed)},
}

// A view that follows a topic instead of the log. The topic carries every event unchanged, so CatchUp may be set.
func ExampleNewSubscription() {
	follow := func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, broker message.Subscriber) error {
		stream, err := outbox.NewSubscription(store.Outbox(), broker, outbox.SubscriptionConfig{
			Topic: "orders", Group: "reports", CatchUp: store.Log(),
		})
		if err != nil {
			return err
		}
		runner, err := projection.NewRunner(pool, stream, projection.Config{}, Customers) // instead of store.Log()
		if err != nil {
			return err
		}
		return runner.Run(ctx)
	}
	_ = follow
}

// A consumer of a topic that does not carry all of the log, and that wants only what comes from now on.
func ExampleNewSubscription_selection() {
	follow := func(store *postgres.Store, broker message.Subscriber) (*outbox.Subscription, error) {
		return outbox.NewSubscription(store.Outbox(), broker, outbox.SubscriptionConfig{
			Topic: "orders.large", Group: "alarms", StartAt: outbox.AtHead,
		})
	}
	_ = follow
}
