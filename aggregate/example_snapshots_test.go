package aggregate_test

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// A command on a long stream reads the snapshot and the few events behind it.
func ExampleWithSnapshots() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	accounts := aggregate.NewRepository(store, Type, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(100)))

	for range 250 {
		if _, err := accounts.Handle(ctx, "ada", Deposit{Cents: 1}.Decide); err != nil {
			fmt.Println(err)
		}
	}
	// Snapshots are stored beside the commands; a program that ends may wait for those that are on their way.
	if err := accounts.Snapshots().Drain(ctx); err != nil {
		fmt.Println(err)
	}
	account, err := accounts.Load(ctx, "ada")
	fmt.Println(account.State.Balance, account.Version, err)

	// The events are the truth; a snapshot only saves reading them.
	replayed, err := accounts.Load(ctx, "ada", aggregate.FromEvents())
	fmt.Println(replayed == account, err)
	// Output:
	// 250 250 <nil>
	// true <nil>
}

// A cached state is used only after the store has confirmed it.
func ExampleWithCache() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	accounts := aggregate.NewRepository(store, Type, aggregate.WithCache(64<<20), aggregate.WithObserver(loads{}))
	elsewhere := aggregate.NewRepository(store, Type) // another process

	for range 3 {
		for _, deposits := range []*aggregate.Repository[Account, Event]{accounts, elsewhere} {
			if _, err := deposits.Handle(ctx, "ada", Deposit{Cents: 1}.Decide); err != nil {
				fmt.Println(err)
			}
		}
	}
	account, err := accounts.Load(ctx, "ada")
	fmt.Println(account.State.Balance, account.Version, err)
	// Output:
	// cached: false, events folded: 0
	// cached: true, events folded: 1
	// cached: true, events folded: 1
	// cached: true, events folded: 1
	// 6 6 <nil>
}

// loads prints what loads took.
type loads struct{ eventstore.NopObserver }

func (loads) ObserveLoad(l eventstore.LoadObservation) {
	fmt.Printf("cached: %v, events folded: %d\n", l.Cached, l.Events)
}

// A mistake in Evolve was mended: what it left in snapshots is made anew.
func ExampleSnapshotKeeper_Rebuild() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	repository := func(evolve func(Account, Event) Account) *aggregate.Repository[Account, Event] {
		return aggregate.NewRepository(store, aggregate.Define("account", evolve, Type.Catalog()),
			aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(2)))
	}
	wrong := repository(func(a Account, e Event) Account { return Account{Owner: "everybody", Balance: a.Evolve(e).Balance} })
	if _, err := wrong.Handle(ctx, "ada", Deposit{Cents: 1}.Decide); err != nil {
		fmt.Println(err)
	}
	if _, err := wrong.Handle(ctx, "ada", Deposit{Cents: 1}.Decide); err != nil {
		fmt.Println(err)
	}
	if err := wrong.Snapshots().Drain(ctx); err != nil {
		fmt.Println(err)
	}

	right := repository(Account.Evolve)
	before, err := right.Load(ctx, "ada")
	fmt.Printf("%+v %v\n", before.State, err)
	fmt.Println(right.Snapshots().Rebuild(ctx, "ada"))
	after, err := right.Load(ctx, "ada")
	fmt.Printf("%+v %v\n", after.State, err)
	// Output:
	// {Owner:everybody Balance:2} <nil>
	// <nil>
	// {Owner: Balance:2} <nil>
}
