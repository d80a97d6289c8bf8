package commands_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
)

// Deposited says that money has come.
type Deposited struct{ Cents int64 }

// Account is a balance.
type Account struct{ Cents int64 }

// Evolve adds what has come.
func (a Account) Evolve(e Deposited) Account { a.Cents += e.Cents; return a }

// Deposit is the command.
type Deposit struct {
	Account string
	Cents   int64
}

// Decide lets money in.
func (d Deposit) Decide(Account) ([]Deposited, error) { return []Deposited{{d.Cents}}, nil }

var (
	accounts = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(eventstore.TypeOf[Deposited]("account.deposited")))
	deposit  = bus.TypeOf[Deposit]("account.deposit")
)

// withStore runs an example on a PostgreSQL of its own.
func withStore(f func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, b *bus.Bus) error) {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
		b := bus.New(bus.Config{}, bus.Idempotent(store))
		bus.HandleAggregate(b, deposit, aggregate.NewRepository(store, accounts), func(d Deposit) string { return d.Account }, Deposit.Decide)
		return f(ctx, pool, store, b)
	})
}

// A command is stored, carried out by a dispatcher, and watched until its end. Sent again under its key, it is the same
// operation, and takes no second effect.
func ExampleQueue() {
	withStore(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, b *bus.Bus) error {
		queue, err := commands.NewQueue(pool, commands.QueueConfig{Wake: store.Wake})
		if err != nil {
			return err
		}
		dispatcher, err := commands.NewDispatcher(pool, commands.Local(store.Outbox()), b, commands.Config{})
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- dispatcher.Run(running) }() // in every process

		for range 2 {
			command, err := b.Prepare(ctx, Deposit{"42", 100}, bus.WithKey("order 7"), bus.InScope("shop"))
			if err != nil {
				return err
			}
			id, err := queue.Enqueue(ctx, command)
			if err != nil {
				return err
			}
			var last bus.Operation
			for operation, err := range queue.Watch(ctx, "shop", id) {
				if err != nil {
					return err
				}
				last = operation
			}
			fmt.Println(last.Type, last.State, last.Stream, last.Version)
		}
		stop()
		return <-ended
	})
	// Output:
	// account.deposit done account-42 1
	// account.deposit done account-42 1
}

// A command that goes with a transaction of the program's own, and tells its end on a topic.
func ExampleEnqueue() {
	withStore(func(ctx context.Context, pool *pgxpool.Pool, _ *postgres.Store, b *bus.Bus) error {
		command, err := b.Prepare(ctx, Deposit{"42", 100}, bus.ReplyTo("deposits"))
		if err != nil {
			return err
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// … statements of the program's own …
			return commands.Enqueue(ctx, tx, command) // the last before the commit
		})
		fmt.Println(err)
		return err
	})
	// Output: <nil>
}

// A handler says how far it is; whoever watches the operation sees it.
func ExampleProgress() {
	b := bus.New(bus.Config{})
	bus.Handle(b, deposit, func(ctx context.Context, d Deposit) (bus.Reply, error) {
		commands.Progress(ctx, 0.5, "half of it is counted")
		return bus.Reply{}, nil
	})
	fmt.Println(b.Types())
	// Output: [account.deposit]
}
