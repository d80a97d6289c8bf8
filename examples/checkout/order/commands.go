package order

import (
	"fmt"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// Send says that the carrier has the order. It is decided together with the parcel.
type Send struct{}

// Confirm says that everything was done.
type Confirm struct{ Order string }

// Cancel ends an order that was not sent.
type Cancel struct{ Order, Reason string }

// Invoice writes the invoice.
type Invoice struct{ Order string }

// TellCustomer sends the mail.
type TellCustomer struct{ Order string }

// The commands and the names under which they are sent.
var (
	ConfirmType      = bus.TypeOf[Confirm]("order.confirm")
	CancelType       = bus.TypeOf[Cancel]("order.cancel")
	InvoiceType      = bus.TypeOf[Invoice]("order.invoice")
	TellCustomerType = bus.TypeOf[TellCustomer]("order.tell-customer")
)

// Decide sends the order.
func (c Send) Decide(o Order) ([]Event, error) {
	switch o.Status {
	case StatusOpen:
		return []Event{Sent{}}, nil
	case StatusSent, StatusConfirmed:
		return nil, ErrSent
	}
	return nil, o.gone()
}

// Decide confirms the order. Again is a success without an event.
func (c Confirm) Decide(o Order) ([]Event, error) {
	switch o.Status {
	case StatusOpen:
		return nil, ErrNotSent
	case StatusSent:
		return []Event{Confirmed{}}, nil
	case StatusConfirmed:
		return nil, nil
	}
	return nil, o.gone()
}

// Decide cancels the order. Again is a success without an event: the first reason stays.
func (c Cancel) Decide(o Order) ([]Event, error) {
	switch o.Status {
	case StatusOpen:
		return []Event{Cancelled{Reason: c.Reason}}, nil
	case StatusSent, StatusConfirmed:
		return nil, ErrSent
	case StatusCancelled:
		return nil, nil
	}
	return nil, o.gone()
}

// gone is why nothing more is done with an order that is cancelled or was never there.
func (o Order) gone() error {
	if o.Status == StatusCancelled {
		return fmt.Errorf("%w: %s", ErrCancelled, o.Reason)
	}
	return ErrNotPlaced
}

// Decide writes the invoice once.
func (c Invoice) Decide(o Order) ([]Event, error) {
	switch {
	case o.Status == "":
		return nil, ErrNotPlaced
	case o.Invoices > 0:
		return nil, nil
	}
	return []Event{Invoiced{Number: "R-" + c.Order}}, nil
}

// Decide tells the customer once.
func (c TellCustomer) Decide(o Order) ([]Event, error) {
	switch {
	case o.Status == "":
		return nil, ErrNotPlaced
	case o.Mails > 0:
		return nil, nil
	}
	return []Event{CustomerTold{Account: o.Account}}, nil
}
