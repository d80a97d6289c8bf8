package bus_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

var ErrFunds = errors.New("account: not enough money")

type (
	Event     interface{ isAccountEvent() }
	Deposited struct{ Cents int64 }
	Withdrawn struct{ Cents int64 }
	Frozen    struct{}
)

func (Deposited) isAccountEvent() {}
func (Withdrawn) isAccountEvent() {}
func (Frozen) isAccountEvent()    {}

// Account is what decisions need to know.
type Account struct{ Balance int64 }

func (a Account) Evolve(e Event) Account {
	switch e := e.(type) {
	case Deposited:
		a.Balance += e.Cents
	case Withdrawn:
		a.Balance -= e.Cents
	}
	return a
}

type (
	Deposit struct {
		Account string
		Cents   int64
	}
	Withdraw struct {
		Account string
		Cents   int64
	}
)

func (c Deposit) Decide(Account) ([]Event, error) { return []Event{Deposited{c.Cents}}, nil }

func (c Withdraw) Decide(a Account) ([]Event, error) {
	if c.Cents > a.Balance {
		return nil, ErrFunds
	}
	return []Event{Withdrawn{c.Cents}}, nil
}

func (c Withdraw) Validate() error {
	if c.Cents <= 0 {
		return errors.New("cents must be positive")
	}
	return nil
}

var (
	AccountType = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(
		eventstore.TypeOf[Deposited]("account.deposited"), eventstore.TypeOf[Withdrawn]("account.withdrawn"),
		eventstore.TypeOf[Frozen]("account.frozen")),
		aggregate.Refuses("insufficient_funds", ErrFunds))

	DepositType  = bus.TypeOf[Deposit]("account.deposit")
	WithdrawType = bus.TypeOf[Withdraw]("account.withdraw", bus.EncodedAs(eventstore.JSON))
)

func newAccounts(middleware func(eventstore.OnceAppender) []bus.Middleware) *bus.Bus {
	store := memory.New(memory.Config{})
	accounts := aggregate.NewRepository(store, AccountType)
	b := bus.New(bus.Config{}, middleware(store)...)
	bus.HandleAggregate(b, DepositType, accounts, func(c Deposit) string { return c.Account }, Deposit.Decide)
	bus.HandleAggregate(b, WithdrawType, accounts, func(c Withdraw) string { return c.Account }, Withdraw.Decide)
	return b
}

// A bus whose commands are decided by an aggregate. What is sent as a Go value may also come as bytes.
func Example() {
	ctx := context.Background()
	b := newAccounts(func(eventstore.OnceAppender) []bus.Middleware { return []bus.Middleware{bus.Validate()} })

	reply, err := b.Send(ctx, Deposit{Account: "42", Cents: 100})
	fmt.Println(reply.Stream, reply.Version, err)

	reply, err = b.Dispatch(ctx, bus.Command{
		Type: "account.withdraw", ContentType: "application/json", Data: []byte(`{"Account":"42","Cents":40}`),
	})
	fmt.Println(reply.Stream, reply.Version, err)

	reply, err = b.Send(ctx, Withdraw{Account: "42", Cents: 500})
	fmt.Println(reply.Stream, reply.Version, err)

	_, err = b.Send(ctx, Withdraw{Account: "42"})
	fmt.Println(errors.Is(err, bus.ErrInvalidCommand), errors.Unwrap(err))
	// Output:
	// account-42 1 <nil>
	// account-42 2 <nil>
	// account-42 2 account: not enough money
	// true cents must be positive
}

// A command with a key takes effect once. A repeat gets the first answer, refusals included.
func ExampleIdempotent() {
	ctx := context.Background()
	b := newAccounts(func(store eventstore.OnceAppender) []bus.Middleware { return []bus.Middleware{bus.Idempotent(store)} })

	show := func(reply bus.Reply, err error) {
		fmt.Printf("version %d, repeated %t, funds short %t, error: %v\n", reply.Version, reply.Repeated, errors.Is(err, ErrFunds), err)
	}
	show(b.Send(ctx, Withdraw{Account: "42", Cents: 60}, bus.WithKey("first")))
	show(b.Send(ctx, Deposit{Account: "42", Cents: 100}, bus.WithKey("second")))
	show(b.Send(ctx, Deposit{Account: "42", Cents: 100}, bus.WithKey("second")))
	show(b.Send(ctx, Withdraw{Account: "42", Cents: 60}, bus.WithKey("first")))

	_, err := b.Send(ctx, Withdraw{Account: "42", Cents: 70}, bus.WithKey("first"))
	fmt.Println("another request:", errors.Is(err, eventstore.ErrReusedKey))
	// Output:
	// version 0, repeated false, funds short true, error: account: not enough money
	// version 1, repeated false, funds short false, error: <nil>
	// version 1, repeated true, funds short false, error: <nil>
	// version 0, repeated true, funds short true, error: account: not enough money
	// another request: true
}

// Middleware is a function around a handler.
func ExampleMiddleware() {
	counting := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
			reply, err := next(ctx, c)
			fmt.Printf("%s ended as %s\n", c.Type, bus.StateOf(reply, err))
			return reply, err
		}
	}
	b := newAccounts(func(eventstore.OnceAppender) []bus.Middleware {
		return []bus.Middleware{counting, bus.Authorize(func(_ context.Context, c *bus.Command) error {
			if c.Metadata.Actor == "" {
				return errors.New("say who you are")
			}
			return nil
		})}
	})

	_, err := b.Send(context.Background(), Deposit{Account: "42", Cents: 100})
	fmt.Println(err != nil)
	ada := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Actor: "ada"})
	_, err = b.Send(ada, Deposit{Account: "42", Cents: 100})
	fmt.Println(err != nil)
	// Output:
	// account.deposit ended as refused
	// true
	// account.deposit ended as done
	// false
}

// A command that is sent apart from its sender travels as a value, and is dispatched where it arrives.
func ExampleBus_Prepare() {
	b := newAccounts(func(eventstore.OnceAppender) []bus.Middleware { return nil })
	ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{Tenant: "acme", Actor: "ada"})

	c, err := b.Prepare(ctx, Withdraw{Account: "42", Cents: 40}, bus.WithKey("k-1"))
	fmt.Println(c.Type, string(c.Data), err)
	fmt.Println("ordered by", c.Target, "in scope", c.Scope, "with key", c.Key)

	_, err = b.Dispatch(context.Background(), c)
	fmt.Println(err)
	// Output:
	// account.withdraw {"Account":"42","Cents":40} <nil>
	// ordered by account-42 in scope acme/ada with key k-1
	// account: not enough money
}

// Freeze says nothing about which account it is for: that is what it is addressed to.
type Freeze struct{ Reason string }

func (Freeze) Decide(Account) ([]Event, error) { return []Event{Frozen{}}, nil }

// A command that is addressed finds its aggregate by the address, also when it has been stored and sent meanwhile.
func ExampleHandleAddressed() {
	ctx := context.Background()
	b := bus.New(bus.Config{})
	accounts := aggregate.NewRepository(memory.New(memory.Config{}), AccountType)
	bus.HandleAddressed(b, bus.TypeOf[Freeze]("account.freeze"), accounts, Freeze.Decide)

	reply, err := b.Send(ctx, Freeze{"lost card"}, bus.To("42"))
	fmt.Println(reply.Stream, reply.Version, err)

	c, err := b.Prepare(ctx, Freeze{"lost card"}, bus.To("43"))
	fmt.Println(c.Target, err)
	reply, err = b.Dispatch(ctx, c)
	fmt.Println(reply.Stream, reply.Version, err)

	_, err = b.Send(ctx, Freeze{"lost card"})
	fmt.Println(errors.Unwrap(err))
	// Output:
	// account-42 1 <nil>
	// account-43 <nil>
	// account-43 1 <nil>
	// eventstore: Command.To "" names nobody: say with bus.To which aggregate the command is for
}

// Where the payload says whom a command is for, To may say the same, and nothing else.
func ExampleTo() {
	b := newAccounts(func(eventstore.OnceAppender) []bus.Middleware { return nil })
	for _, to := range []string{"", "42", "43"} {
		c, err := b.Encode(Deposit{Account: "42", Cents: 100}, bus.To(to))
		fmt.Println(c.Target, errors.Unwrap(err))
	}
	// Output:
	// account-42 <nil>
	// account-42 <nil>
	//  eventstore: Command.To "43" is not "42", which its payload says: leave bus.To out, or give what the payload says
}

// A handler of an undo finds what it undoes, and uses that as its key towards others: two undos of one command are one
// refund.
func ExampleUndoes() {
	type Refund struct{ Cents int64 }
	b := bus.New(bus.Config{})
	bus.Handle(b, bus.TypeOf[Refund]("payment.refund"), func(ctx context.Context, r Refund) (bus.Reply, error) {
		c, _ := bus.CommandFrom(ctx)
		fmt.Println("POST /refunds, Idempotency-Key:", c.Undoes)
		return bus.Reply{}, nil
	})
	payment := uuid.MustParse("7d444840-9dc0-11d1-b245-5ffdce74fad2")
	for range 2 {
		if _, err := b.Send(context.Background(), Refund{500}, bus.Undoes(payment)); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// POST /refunds, Idempotency-Key: 7d444840-9dc0-11d1-b245-5ffdce74fad2
	// POST /refunds, Idempotency-Key: 7d444840-9dc0-11d1-b245-5ffdce74fad2
}
