package checkout

import (
	"cmp"

	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/saga"
)

// The reasons why orders are cancelled.
const (
	OutOfStock = "out of stock"
	Declined   = "card declined"
	NoAnswer   = "no answer about the payment"
	NoCarrier  = "no carrier"
	NotPaid    = "not paid"
)

// State is what the saga of an order remembers.
type State struct {
	Order   string
	Wanted  order.Placed
	Receipt string
	Why     string // it is cancelled
}

func begin(e saga.Event[order.Placed]) State { return State{Order: e.Stream.ID, Wanted: e.Payload} }

// What it sends, and to whom.

func (s State) reserve() (string, stock.Reserve) {
	return s.Wanted.SKU, stock.Reserve{SKU: s.Wanted.SKU, Order: s.Order, Quantity: s.Wanted.Quantity}
}

func (s State) release() (string, stock.Release) {
	return s.Wanted.SKU, stock.Release{SKU: s.Wanted.SKU, Order: s.Order}
}

func (s State) pay() (string, payment.Take) {
	return s.Order, payment.Take{Order: s.Order, Account: s.Wanted.Account, Card: s.Wanted.Card, Cents: s.Wanted.Cents}
}

func (s State) refund() (string, payment.Refund) { return s.Order, payment.Refund{Order: s.Order} }

func (s State) handOver() (string, shipping.HandOver) {
	return s.Order, shipping.HandOver{Order: s.Order, SKU: s.Wanted.SKU, Quantity: s.Wanted.Quantity, Country: s.Wanted.Country}
}

func (s State) invoice() (string, order.Invoice) { return s.Order, order.Invoice{Order: s.Order} }
func (s State) mail() (string, order.TellCustomer) {
	return s.Order, order.TellCustomer{Order: s.Order}
}
func (s State) confirm() (string, order.Confirm) { return s.Order, order.Confirm{Order: s.Order} }

func (s State) cancel() (string, order.Cancel) {
	// Without any answer there is no reason from anybody.
	return s.Order, order.Cancel{Order: s.Order, Reason: cmp.Or(s.Why, NoAnswer)}
}

// What it is answered.

func (s State) reserved(saga.Event[stock.Reserved]) State { return s }

func (s State) rejected(saga.Event[stock.Rejected]) State {
	s.Why = OutOfStock
	return s
}

func (s State) paid(e saga.Event[payment.Taken]) State {
	s.Receipt = e.Payload.Receipt
	return s
}

func (s State) declined(saga.Event[payment.Declined]) State {
	s.Why = Declined
	return s
}

func (s State) postponed(saga.Event[payment.Postponed]) State { return s }

func (s State) handedOver(saga.Event[shipping.HandedOver]) State { return s }

func (s State) noCarrier(saga.Event[shipping.Refused]) State {
	s.Why = NoCarrier
	return s
}

func (s State) invoiced(saga.Event[order.Invoiced]) State   { return s }
func (s State) mailed(saga.Event[order.CustomerTold]) State { return s }
