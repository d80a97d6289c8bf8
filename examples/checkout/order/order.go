package order

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// The rules of an order.
var (
	ErrInvalid   = errors.New("order: incomplete")
	ErrPlaced    = errors.New("order: placed before, with other contents")
	ErrNotPlaced = errors.New("order: not placed")
	ErrNotSent   = errors.New("order: not sent")
	ErrSent      = errors.New("order: sent already")
	ErrCancelled = errors.New("order: cancelled already")
)

// Event is what can happen to an order.
//
//sumtype:decl
type Event interface{ orderEvent() }

// Placed: the customer wants it.
type Placed struct {
	Account  string // of the customer
	SKU      string // what is ordered
	Quantity int64
	Cents    int64 // the price of all of it
	Card     string
	Country  string // where it goes
}

// Sent: the carrier has it, and it can no longer be cancelled.
type Sent struct{}

// Confirmed: everything was done.
type Confirmed struct{}

// Cancelled: nothing of it will happen.
type Cancelled struct{ Reason string }

// Invoiced: the invoice was written.
type Invoiced struct{ Number string }

// CustomerTold: the customer got a mail.
type CustomerTold struct{ Account string }

func (Placed) orderEvent()       {}
func (Sent) orderEvent()         {}
func (Confirmed) orderEvent()    {}
func (Cancelled) orderEvent()    {}
func (Invoiced) orderEvent()     {}
func (CustomerTold) orderEvent() {}

// Events are the events of an order and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Placed]("order.placed"),
	eventstore.TypeOf[Sent]("order.sent"),
	eventstore.TypeOf[Confirmed]("order.confirmed"),
	eventstore.TypeOf[Cancelled]("order.cancelled"),
	eventstore.TypeOf[Invoiced]("order.invoiced"),
	eventstore.TypeOf[CustomerTold]("order.customer-told"))

// Type is the kind of aggregate; an order's id is its number.
var Type = aggregate.Define("order", Order.Evolve, Events,
	aggregate.Refuses("incomplete", ErrInvalid),
	aggregate.Refuses("other-contents", ErrPlaced),
	aggregate.Refuses("not-placed", ErrNotPlaced),
	aggregate.Refuses("not-sent", ErrNotSent),
	aggregate.Refuses("sent", ErrSent),
	aggregate.Refuses("cancelled", ErrCancelled))

// Status is how far an order is.
type Status string

// The statuses. An order without events has the empty one.
const (
	StatusOpen      Status = "open"
	StatusSent      Status = "sent"
	StatusConfirmed Status = "confirmed"
	StatusCancelled Status = "cancelled"
)

// Order is the state that decisions are made on.
type Order struct {
	Placed
	Status   Status
	Reason   string // why it was cancelled
	Invoices int
	Mails    int
}

// Evolve folds an event into the state.
func (o Order) Evolve(e Event) Order {
	switch e := e.(type) {
	case Placed:
		o.Placed, o.Status = e, StatusOpen
	case Sent:
		o.Status = StatusSent
	case Confirmed:
		o.Status = StatusConfirmed
	case Cancelled:
		o.Status, o.Reason = StatusCancelled, e.Reason
	case Invoiced:
		o.Invoices++
	case CustomerTold:
		o.Mails++
	}
	return o
}

// Place orders something.
type Place Placed

// Decide places the order. Placing the same again is a success without an event.
func (c Place) Decide(o Order) ([]Event, error) {
	switch {
	case c.Account == "" || c.SKU == "" || c.Quantity < 1 || c.Cents < 1:
		return nil, fmt.Errorf("%w: account %q, item %q, quantity %d, price %d: the first two must not be empty, the others be at least 1",
			ErrInvalid, c.Account, c.SKU, c.Quantity, c.Cents)
	case o.Status == "":
		return []Event{Placed(c)}, nil
	case o.Placed != Placed(c):
		return nil, fmt.Errorf("%w: take another number", ErrPlaced)
	}
	return nil, nil
}
