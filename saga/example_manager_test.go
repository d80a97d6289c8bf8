package saga_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

type (
	// MemberJoined begins the saga.
	MemberJoined struct{ Name string }
	// CardPrinted is what the command does.
	CardPrinted struct{ Name string }
	// PrintCard is the command.
	PrintCard struct{ Member, Name string }
	// Membership is what the saga remembers.
	Membership struct{ Member, Name string }
)

func joined(e saga.Event[MemberJoined]) Membership {
	return Membership{Member: e.Stream.ID, Name: e.Payload.Name}
}

// The command says itself what it is about.
func (m Membership) print() (string, PrintCard) { return "", PrintCard(m) }

var (
	cardEvents   = eventstore.NewCatalog(eventstore.TypeOf[CardPrinted]("card.printed"))
	memberEvents = eventstore.Join(eventstore.NewCatalog(eventstore.TypeOf[MemberJoined]("member.joined")), cardEvents)
	cards        = aggregate.Define("card", func(n int, _ CardPrinted) int { return n + 1 }, cardEvents)
	printCard    = bus.TypeOf[PrintCard]("card.print")
)

// welcome is done when its one command is.
var welcome = saga.Define(saga.Process[Membership]{
	Name: "welcome", Version: 1, Events: memberEvents, Start: saga.StartOn(joined),
	Steps: []saga.Step[Membership]{{Name: "print-card", Send: saga.Send(Membership.print), NothingToUndo: "a card is no harm"}},
})

func memberBus(store *postgres.Store) *bus.Bus {
	b := bus.New(bus.Config{}, bus.Idempotent(store))
	bus.HandleAggregate(b, printCard, aggregate.NewRepository(store, cards), func(c PrintCard) string { return c.Member },
		func(c PrintCard, _ int) ([]CardPrinted, error) { return []CardPrinted{{c.Name}}, nil })
	return b
}

// A manager and a dispatcher, in one process here, bring a saga to its end.
func ExampleNewManager() {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
		// region running
		b := memberBus(store)
		if err := saga.Install(ctx, pool, welcome); err != nil { // where the program migrates
			return err
		}
		sender := commands.ForSagas(b, store.Outbox())
		manager, err := saga.NewManager(pool, store.Log(), sender, saga.Config{Wake: store.Wake}, welcome)
		if err != nil {
			return err
		}
		dispatcher, err := commands.NewDispatcher(pool, commands.Local(store.Outbox()), b, commands.Config{Wake: store.Wake})
		if err != nil {
			return err
		}
		stop := meanwhile(ctx, manager.Run, dispatcher.Run, store.Run) // in every process
		// endregion

		event, err := memberEvents.Encode(MemberJoined{"Ada"})
		if err != nil {
			return err
		}
		if _, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("member", "1"), eventstore.NoStream, event)); err != nil {
			return err
		}
		if err := ends(ctx, pool, "welcome", "1"); err != nil {
			return err
		}
		return stop()
	})
	// Output:
	// welcome 1 completed
}

// meanwhile runs things until the function that it returns is called.
func meanwhile(ctx context.Context, runs ...func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	return func() error {
		cancel()
		var all error
		for range runs {
			all = errors.Join(all, <-ended)
		}
		return all
	}
}

// ends waits until an instance has ended, and prints how.
func ends(ctx context.Context, pool *pgxpool.Pool, name, key string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		e, err := saga.Explain(ctx, pool, name, key)
		switch {
		case errors.Is(err, saga.ErrNoInstance): // not yet
		case err != nil:
			return err
		case !e.EndedAt.IsZero():
			fmt.Println(e.Saga, e.Key, e.State)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
