package order

import (
	"fmt"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// Confirm says that the order is paid and on its way.
type Confirm struct{ Order string }

// Cancel ends an order that was not confirmed.
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

// Decide confirms the order. Again is a success without an event.
func (c Confirm) Decide(o Order) ([]Event, error) {
	switch o.Status {
	case StatusOpen:
		return []Event{Confirmed{}}, nil
	case StatusConfirmed:
		return nil, nil
	case StatusCancelled:
		return nil, fmt.Errorf("%w: %s", ErrCancelled, o.Reason)
	}
	return nil, ErrNotPlaced
}

// Decide cancels the order. Again is a success without an event: the first reason stays.
func (c Cancel) Decide(o Order) ([]Event, error) {
	switch o.Status {
	case StatusOpen:
		return []Event{Cancelled{Reason: c.Reason}}, nil
	case StatusConfirmed:
		return nil, ErrConfirmed
	case StatusCancelled:
		return nil, nil
	}
	return nil, ErrNotPlaced
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
