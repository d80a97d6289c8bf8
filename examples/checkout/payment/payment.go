package payment

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// The rules of a payment.
var (
	ErrAmount = errors.New("payment: another amount than before")
	ErrVoid   = errors.New("payment: refunded before it was taken")
)

// Event is what can happen to a payment.
//
//sumtype:decl
type Event interface{ paymentEvent() }

// Requested: the provider has accepted to try. Whether it works is told by webhook.
type Requested struct {
	Charge string
	Cents  int64
}

// Taken: the provider has the money.
type Taken struct {
	Order, Charge, Receipt string
	Cents                  int64
}

// Declined: the provider will not take the money from this card.
type Declined struct{ Charge, Reason string }

// Postponed: the provider has not tried, and may be asked again.
type Postponed struct{ Charge, Reason string }

// Refunded: the customer has the money back.
type Refunded struct {
	Charge string
	Cents  int64
}

func (Requested) paymentEvent() {}
func (Taken) paymentEvent()     {}
func (Declined) paymentEvent()  {}
func (Postponed) paymentEvent() {}
func (Refunded) paymentEvent()  {}

// Events are the events of a payment and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Requested]("payment.requested"),
	eventstore.TypeOf[Taken]("payment.taken"),
	eventstore.TypeOf[Declined]("payment.declined"),
	eventstore.TypeOf[Postponed]("payment.postponed"),
	eventstore.TypeOf[Refunded]("payment.refunded"))

// Type is the kind of aggregate; a payment's id is the number of its order.
var Type = aggregate.Define("payment", Payment.Evolve, Events,
	aggregate.Refuses("amount", ErrAmount),
	aggregate.Refuses("void", ErrVoid))

// Payment is the state that decisions are made on.
type Payment struct {
	// Charges are by the id of the command that asked for them.
	Charges map[string]Charge
}

// Charge is one try to take the money.
type Charge struct {
	Taken, Refunded int64 // cents; the order in which one hears of them is open
}

// Held is what the provider holds for the order, in cents.
func (p Payment) Held() (cents int64) {
	for _, c := range p.Charges {
		cents += c.Taken - c.Refunded
	}
	return cents
}

// Evolve folds an event into the state.
func (p Payment) Evolve(e Event) Payment {
	switch e := e.(type) {
	case Requested:
	case Taken:
		p = p.with(e.Charge, func(c *Charge) { c.Taken = e.Cents })
	case Declined:
	case Postponed:
	case Refunded:
		p = p.with(e.Charge, func(c *Charge) { c.Refunded = e.Cents })
	}
	return p
}

func (p Payment) with(id string, change func(*Charge)) Payment {
	if p.Charges == nil {
		p.Charges = make(map[string]Charge)
	}
	c := p.Charges[id]
	change(&c)
	p.Charges[id] = c
	return p
}

// Take asks the provider for the money.
type Take struct {
	Order, Account, Card string
	Cents                int64
}

// Refund gives back what the command took that it undoes, whether or not it took anything.
type Refund struct{ Order string }

// The commands that are sent, and the names under which they are. Their handlers speak to the provider.
var (
	TakeType   = bus.TypeOf[Take]("payment.take")
	RefundType = bus.TypeOf[Refund]("payment.refund")
)

// Request notes that the provider has accepted to try.
type Request Requested

// Decline notes that the provider will not.
type Decline Declined

// Postpone notes that the provider has not tried.
type Postpone Postponed

// Settle notes that the provider has the money.
type Settle Taken

// GiveBack notes that the customer has the money back. Zero cents: there was nothing to give back.
type GiveBack Refunded

// Abandon notes nothing: the provider refuses to take what was refunded before.
type Abandon struct{}

// Decide notes it.
func (c Request) Decide(Payment) ([]Event, error) { return []Event{Requested(c)}, nil }

// Decide notes it.
func (c Decline) Decide(Payment) ([]Event, error) { return []Event{Declined(c)}, nil }

// Decide notes it.
func (c Postpone) Decide(Payment) ([]Event, error) { return []Event{Postponed(c)}, nil }

// Decide notes it once.
func (c Settle) Decide(p Payment) ([]Event, error) {
	return once(p.Charges[c.Charge].Taken, c.Cents, Taken(c))
}

// Decide notes it once.
func (c GiveBack) Decide(p Payment) ([]Event, error) {
	if c.Cents == 0 {
		return nil, nil
	}
	return once(p.Charges[c.Charge].Refunded, c.Cents, Refunded(c))
}

// Decide refuses.
func (Abandon) Decide(Payment) ([]Event, error) { return nil, ErrVoid }

func once(before, cents int64, e Event) ([]Event, error) {
	switch before {
	case 0:
		return []Event{e}, nil
	case cents:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %d cents, then %d", ErrAmount, before, cents)
}
