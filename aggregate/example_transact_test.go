package aggregate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A transfer: both accounts move, or neither.
func ExampleTransact() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	accounts := aggregate.NewRepository(store, Type)
	if _, err := accounts.Handle(ctx, "ada", Deposit{Cents: 100}.Decide); err != nil {
		fmt.Println(err)
	}

	transfer := func(from, to string, cents int64) error {
		_, err := aggregate.Transact(ctx, store, func(w *aggregate.Work) error {
			if err := accounts.In(w, from).Decide(Withdraw{Cents: cents}.Decide); err != nil {
				return err
			}
			return accounts.In(w, to).Decide(Deposit{Cents: cents}.Decide)
		})
		return err
	}
	fmt.Println(transfer("ada", "bob", 70))
	fmt.Println(transfer("ada", "bob", 70))

	for _, id := range []string{"ada", "bob"} {
		account, err := accounts.Load(ctx, id)
		fmt.Println(id, account.State.Balance, account.Version, err)
	}
	// Output:
	// <nil>
	// account: not enough money
	// ada 30 2 <nil>
	// bob 70 1 <nil>
}

// PostingEvent is what can happen to a posting: once it is made, nothing.
type PostingEvent interface{ isPosting() }

// Posted is the one event of a posting, which is a stream of its own so that it is made at most once.
type Posted struct {
	Account string
	Cents   int64
}

func (Posted) isPosting() {}

var Postings = aggregate.Define("posting", func(struct{}, PostingEvent) struct{} { return struct{}{} },
	eventstore.NewCatalog(eventstore.TypeOf[Posted]("posting.posted")))

// Importing a file again: each line becomes an aggregate that can be created only once, in the same append as the
// deposit.
func ExampleMember_Create() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	accounts := aggregate.NewRepository(store, Type)
	postings := aggregate.NewRepository(store, Postings)

	post := func(key string, line Posted) error {
		_, err := aggregate.Transact(ctx, store, func(w *aggregate.Work) error {
			if err := accounts.In(w, line.Account).Decide(Deposit{Cents: line.Cents}.Decide); err != nil {
				return err
			}
			return postings.In(w, key).Create(func(struct{}) ([]PostingEvent, error) { return []PostingEvent{line}, nil })
		})
		return err
	}
	for _, key := range []string{"line-1", "line-2", "line-1"} {
		err := post(key, Posted{Account: "ada", Cents: 10})
		fmt.Println(key, "known:", errors.Is(err, aggregate.ErrExists))
	}
	ada, err := accounts.Load(ctx, "ada")
	fmt.Println(ada.State.Balance, err)
	// Output:
	// line-1 known: false
	// line-2 known: false
	// line-1 known: true
	// 20 <nil>
}

// The state as it was, for a history or an audit.
func ExampleAtVersion() {
	ctx := context.Background()
	accounts := aggregate.NewRepository(memory.New(memory.Config{}), Type)
	for _, cents := range []int64{1, 2, 4} {
		if _, err := accounts.Handle(ctx, "ada", Deposit{Cents: cents}.Decide); err != nil {
			fmt.Println(err)
		}
	}
	then, err := accounts.Load(ctx, "ada", aggregate.AtVersion(2))
	fmt.Println(then.State.Balance, err)
	_, err = accounts.Load(ctx, "ada", aggregate.AtVersion(9))
	fmt.Println(err)
	// Output:
	// 3 <nil>
	// aggregate: load account-ada: eventstore: AtVersion "9" is later than the last version, 3: ask for a version that the stream has
}
