package aggregate_test

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
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
	account, err := accounts.Load(ctx, "ada")
	fmt.Println(account.State.Balance, account.Version, err)

	// The events are the truth; a snapshot only saves reading them.
	replayed, err := accounts.Load(ctx, "ada", aggregate.FromEvents())
	fmt.Println(replayed == account, err)
	// Output:
	// 250 250 <nil>
	// true <nil>
}
