package aggregate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A client that got no answer sends its command again under the same key. It takes effect once; the refusal that it had
// had stands, though there is money by now.
func ExampleWithIdempotencyKey() {
	ctx := context.Background()
	accounts := aggregate.NewRepository(memory.New(memory.Config{}), Type)

	send := func(key string, decide func(Account) ([]Event, error)) {
		result, err := accounts.Handle(ctx, "ada", decide,
			aggregate.WithIdempotencyKey(key), aggregate.Refuses("insufficient_funds", ErrFunds))
		fmt.Printf("%s: balance %d at version %d, repeated: %v, error: %v\n", key, result.State.Balance, result.Version, result.Repeated, err)
		var refused *aggregate.RefusedError
		if errors.As(err, &refused) {
			fmt.Println("  known as", refused.Code, errors.Is(err, ErrFunds))
		}
	}
	send("too-early", Withdraw{Cents: 40}.Decide)
	send("salary", Deposit{Cents: 100}.Decide)
	send("rent", Withdraw{Cents: 70}.Decide)
	send("salary", Deposit{Cents: 100}.Decide)
	send("too-early", Withdraw{Cents: 40}.Decide)
	// Output:
	// too-early: balance 0 at version 0, repeated: false, error: account: not enough money
	// salary: balance 100 at version 1, repeated: false, error: <nil>
	// rent: balance 30 at version 2, repeated: false, error: <nil>
	// salary: balance 100 at version 1, repeated: true, error: <nil>
	// too-early: balance 0 at version 0, repeated: true, error: account: not enough money
	//   known as insufficient_funds true
}

// A deposit meets a withdrawal of another process. It is not decided again, since no withdrawal can make it wrong; its
// event is put behind the other's.
func ExampleUnaffected() {
	ctx := context.Background()
	var (
		deposited = eventstore.TypeOf[Deposited]("account.deposited")
		withdrawn = eventstore.TypeOf[Withdrawn]("account.withdrawn")
		typ       = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(deposited, withdrawn),
			aggregate.Unaffected(deposited, deposited, withdrawn), // a deposit is always right
			aggregate.Unaffected(withdrawn, deposited))            // more money does no harm; less may
	)
	store := memory.New(memory.Config{})
	here := aggregate.NewRepository(store, typ)
	elsewhere := aggregate.NewRepository(store, typ, aggregate.WithoutLanes()) // does not wait for commands of this process
	if _, err := here.Handle(ctx, "ada", Deposit{Cents: 100}.Decide); err != nil {
		fmt.Println(err)
	}
	result, err := here.Handle(ctx, "ada", func(a Account) ([]Event, error) {
		fmt.Println("decided at", a.Balance)
		if _, err := elsewhere.Handle(ctx, "ada", Withdraw{Cents: 60}.Decide); err != nil {
			fmt.Println(err)
		}
		return Deposit{Cents: 5}.Decide(a)
	})
	fmt.Println(result.State.Balance, result.Version, "attempts:", result.Attempts, "merged:", result.Merged, err)
	// Output:
	// decided at 100
	// 45 3 attempts: 1 merged: 1 <nil>
}

// The caller has seen version 1 and means that one, as a request with If-Match does.
func ExampleIfVersion() {
	ctx := context.Background()
	accounts := aggregate.NewRepository(memory.New(memory.Config{}), Type)
	seen := eventstore.Exactly(1)
	for _, claim := range []eventstore.ExpectedVersion{eventstore.NoStream, seen, seen} {
		result, err := accounts.Handle(ctx, "ada", Deposit{Cents: 10}.Decide, aggregate.IfVersion(claim))
		fmt.Println(result.Version, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 2 aggregate: account-ada is at version 2, not at version 1
}
