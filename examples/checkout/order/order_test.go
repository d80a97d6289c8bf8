package order_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/checkout/order"
)

var kettle = order.Placed{Account: "ann", SKU: "kettle", Quantity: 2, Cents: 9000, Card: "visa", Country: "DE"}

func TestPlace(t *testing.T) {
	t.Parallel()
	other := order.Place(kettle)
	other.Quantity = 3
	aggregatetest.For(t, order.Type).
		When(order.Place(kettle).Decide).Then(kettle).
		When(order.Place(kettle).Decide).Then().
		When(other.Decide).ThenError(order.ErrPlaced)
}

func TestPlaceIsComplete(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*order.Place){
		"account":  func(p *order.Place) { p.Account = "" },
		"item":     func(p *order.Place) { p.SKU = "" },
		"quantity": func(p *order.Place) { p.Quantity = 0 },
		"price":    func(p *order.Place) { p.Cents = 0 },
	} {
		c := order.Place(kettle)
		spoil(&c)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aggregatetest.For(t, order.Type).When(c.Decide).ThenError(order.ErrInvalid)
		})
	}
}

func TestConfirmed(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, order.Type).Given(kettle).
		When(order.Confirm{Order: "7"}.Decide).ThenError(order.ErrNotSent).
		When(order.Send{}.Decide).Then(order.Sent{}).
		When(order.Send{}.Decide).ThenError(order.ErrSent).
		When(order.Cancel{Order: "7", Reason: "late"}.Decide).ThenError(order.ErrSent).
		When(order.Confirm{Order: "7"}.Decide).Then(order.Confirmed{}).
		When(order.Confirm{Order: "7"}.Decide).Then().
		When(order.Send{}.Decide).ThenError(order.ErrSent).
		When(order.Cancel{Order: "7", Reason: "late"}.Decide).ThenError(order.ErrSent)
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, order.Type).Given(kettle).
		When(order.Cancel{Order: "7", Reason: "declined"}.Decide).Then(order.Cancelled{Reason: "declined"}).
		When(order.Cancel{Order: "7", Reason: "not paid"}.Decide).Then().
		ThenState(order.Order{Placed: kettle, Status: order.StatusCancelled, Reason: "declined"}).
		When(order.Send{}.Decide).ThenError(order.ErrCancelled).
		When(order.Confirm{Order: "7"}.Decide).ThenError(order.ErrCancelled)
}

func TestToldOnce(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, order.Type).Given(kettle).
		When(order.Invoice{Order: "7"}.Decide).Then(order.Invoiced{Number: "R-7"}).
		When(order.Invoice{Order: "7"}.Decide).Then().
		When(order.TellCustomer{Order: "7"}.Decide).Then(order.CustomerTold{Account: "ann"}).
		When(order.TellCustomer{Order: "7"}.Decide).Then().
		ThenState(order.Order{Placed: kettle, Status: order.StatusOpen, Invoices: 1, Mails: 1})
}

func TestNothingWithoutAnOrder(t *testing.T) {
	t.Parallel()
	none := aggregatetest.For(t, order.Type)
	none.When(order.Send{}.Decide).ThenError(order.ErrNotPlaced)
	none.When(order.Confirm{}.Decide).ThenError(order.ErrNotPlaced)
	none.When(order.Cancel{}.Decide).ThenError(order.ErrNotPlaced)
	none.When(order.Invoice{}.Decide).ThenError(order.ErrNotPlaced)
	none.When(order.TellCustomer{}.Decide).ThenError(order.ErrNotPlaced)
}
