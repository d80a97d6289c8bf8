package aggregate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

var ErrFunds = errors.New("account: not enough money")

// Event is what can happen to an account.
//
//sumtype:decl
type Event interface{ isAccountEvent() }

type (
	Opened    struct{ Owner string }
	Deposited struct{ Cents int64 }
	Withdrawn struct{ Cents int64 }
)

func (Opened) isAccountEvent()    {}
func (Deposited) isAccountEvent() {}
func (Withdrawn) isAccountEvent() {}

// Account is what decisions need to know.
type Account struct {
	Owner   string
	Balance int64
}

func (a Account) Evolve(e Event) Account {
	switch e := e.(type) {
	case Opened:
		a.Owner = e.Owner
	case Deposited:
		a.Balance += e.Cents
	case Withdrawn:
		a.Balance -= e.Cents
	}
	return a
}

type (
	Open     struct{ Owner string }
	Deposit  struct{ Cents int64 }
	Withdraw struct{ Cents int64 }
)

func (c Open) Decide(a Account) ([]Event, error) {
	if a.Owner == c.Owner {
		return nil, nil // done already
	}
	return []Event{Opened{c.Owner}}, nil
}

func (c Deposit) Decide(Account) ([]Event, error) { return []Event{Deposited{c.Cents}}, nil }

func (c Withdraw) Decide(a Account) ([]Event, error) {
	if c.Cents > a.Balance {
		return nil, ErrFunds
	}
	return []Event{Withdrawn{c.Cents}}, nil
}

var Type = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(
	eventstore.TypeOf[Opened]("account.opened"), eventstore.TypeOf[Deposited]("account.deposited"),
	eventstore.TypeOf[Withdrawn]("account.withdrawn")))

// An account from its events to its commands. In a program, everything up to Type is a package of its own.
func Example() {
	ctx := context.Background()
	accounts := aggregate.NewRepository(memory.New(memory.Config{}), Type)

	for _, decide := range []func(Account) ([]Event, error){
		Open{Owner: "ada"}.Decide,
		Deposit{Cents: 100}.Decide,
		Withdraw{Cents: 40}.Decide,
		Withdraw{Cents: 500}.Decide,
		Open{Owner: "ada"}.Decide,
	} {
		result, err := accounts.Handle(ctx, "42", decide)
		fmt.Printf("version %d, %d written, balance %d, error: %v\n", result.Version, result.Written, result.State.Balance, err)
	}
	// Output:
	// version 1, 1 written, balance 0, error: <nil>
	// version 2, 1 written, balance 100, error: <nil>
	// version 3, 1 written, balance 60, error: <nil>
	// version 3, 0 written, balance 60, error: account: not enough money
	// version 3, 0 written, balance 60, error: <nil>
}
