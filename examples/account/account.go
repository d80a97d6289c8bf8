package main

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/projection"
)

// Event is what can happen to an account: one of the types below.
//
//sumtype:decl
type Event interface{ accountEvent() }

// Deposited and Withdrawn are the facts that are stored.
type (
	Deposited struct{ Amount int64 }
	Withdrawn struct{ Amount int64 }
)

func (Deposited) accountEvent() {}
func (Withdrawn) accountEvent() {}

// Account is the state that decisions are made on. It is never stored: it is folded from the events.
type Account struct{ Balance int64 }

// region readme-domain

// Evolve folds what happened into the state.
func (a Account) Evolve(e Event) Account {
	switch e := e.(type) {
	case Deposited:
		a.Balance += e.Amount
	case Withdrawn:
		a.Balance -= e.Amount
	}
	return a
}

// Withdraw takes money, if there is enough.
func Withdraw(amount int64) func(Account) ([]Event, error) {
	return func(a Account) ([]Event, error) {
		if amount > a.Balance {
			return nil, fmt.Errorf("%w, balance %d", ErrRejected, a.Balance)
		}
		return []Event{Withdrawn{amount}}, nil
	}
}

// Type names the category of streams and the events in them.
var Type = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(
	eventstore.TypeOf[Deposited]("account.deposited"), eventstore.TypeOf[Withdrawn]("account.withdrawn")))

// endregion

// ErrRejected is the domain's own error. It comes back from Handle as it is.
var ErrRejected = errors.New("rejected")

// Deposit adds money to an account.
func Deposit(amount int64) func(Account) ([]Event, error) {
	return func(Account) ([]Event, error) { return []Event{Deposited{amount}}, nil }
}

// Balances is a read model: a table with a row per account.
var Balances = projection.View[string, int64]{
	Name: "account_balances", Version: 1, Events: Type.Catalog(),
	Folds: []projection.Fold[string, int64]{
		projection.On(projection.ByStream, func(b int64, e projection.Event[Deposited]) int64 { return b + e.Payload.Amount }),
		projection.On(projection.ByStream, func(b int64, e projection.Event[Withdrawn]) int64 { return b - e.Payload.Amount }),
	},
}

// Line is the key of a row in Withdrawals.
type Line struct {
	Account string
	Version int64
}

// Withdrawals is a read model that somebody wished for later: it is built from the log as if it had always been there.
var Withdrawals = projection.View[Line, int64]{
	Name: "account_withdrawals", Version: 1, Events: Type.Catalog(),
	Folds: []projection.Fold[Line, int64]{
		projection.On(
			func(e projection.Event[Withdrawn]) Line { return Line{e.Stream.ID, int64(e.Version)} },
			func(_ int64, e projection.Event[Withdrawn]) int64 { return e.Payload.Amount }),
	},
}
