package commands_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

var _ saga.Sender = (*commands.SagaSender)(nil)

// Bonus is a deposit into the account that it is addressed to.
type Bonus struct{ Cents int64 }

// Decide lets it in.
func (b Bonus) Decide(Account) ([]Deposited, error) { return []Deposited{{b.Cents}}, nil }

// TakeBack undoes a Bonus.
type TakeBack struct{ Cents int64 }

// The sender of a saga manager makes the stored form of a command by the bus.
func ExampleForSagas() {
	withStore(func(ctx context.Context, _ *pgxpool.Pool, store *postgres.Store, b *bus.Bus) error {
		bus.HandleAddressed(b, bus.TypeOf[Bonus]("account.bonus"), aggregate.NewRepository(store, accounts), Bonus.Decide)
		sender := commands.ForSagas(b, store.Outbox()) // for saga.NewManager

		c, err := sender.Prepare(ctx, "42", Bonus{500})
		if err != nil {
			return err
		}
		fmt.Println(c.Type, "for", c.Target)
		fmt.Println("answers come on", saga.ReplyTopic("welcome"), "of schema", sender.Schema())
		return nil
	})
	// Output:
	// account.bonus for account-42
	// answers come on saga-welcome-replies of schema daybook
}

// The handler of a saga's undo need not do what can only be undone when something was done. Here nothing is known, as no
// dispatcher carries the command out.
func ExampleWasCarriedOut() {
	b := bus.New(bus.Config{})
	bus.Handle(b, bus.TypeOf[TakeBack]("account.take-back"), func(ctx context.Context, t TakeBack) (bus.Reply, error) {
		switch done, known := commands.WasCarriedOut(ctx); {
		case known && !done:
			fmt.Println("there is nothing to take back, and never will be")
		default:
			fmt.Println("take back", t.Cents, "if the bonus is there")
		}
		return bus.Reply{}, nil
	})
	if _, err := b.Send(context.Background(), TakeBack{500}); err != nil {
		fmt.Println(err)
	}
	// Output: take back 500 if the bonus is there
}
