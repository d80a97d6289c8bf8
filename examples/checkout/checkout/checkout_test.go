package checkout_test

import (
	"errors"
	"testing"
	"time"

	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

const id = "1-0007"

var (
	placed  = order.Placed{Account: "ann", SKU: "kettle", Quantity: 2, Cents: 9000, Card: "visa", Country: "DE"}
	reserve = stock.Reserve{SKU: "kettle", Order: id, Quantity: 2}
	take    = payment.Take{Order: id, Account: "ann", Card: "visa", Cents: 9000}
	parcel  = shipping.HandOver{Order: id, SKU: "kettle", Quantity: 2, Country: "DE"}

	reserved = stock.Reserved{Order: id, Quantity: 2}
	taken    = payment.Taken{Order: id, Charge: "c1", Receipt: "r1", Cents: 9000}
)

// given is an order that was placed, and for which some things have happened since.
func given(t *testing.T, events ...any) *sagatest.Scenario {
	t.Helper()
	return sagatest.For(t, checkout.Definition).In("order-" + id).Given(append([]any{placed}, events...)...)
}

func TestDefinitionsAreValid(t *testing.T) {
	t.Parallel()
	var faults []error
	for _, d := range checkout.All() {
		faults = append(faults, d.Validate())
	}
	if err := errors.Join(faults...); err != nil {
		t.Error(err)
	}
}

func TestEverythingWorks(t *testing.T) {
	t.Parallel()
	sagatest.For(t, checkout.Definition).In("order-"+id).
		When(placed).ThenSendsTo("kettle", reserve).
		When(reserved).ThenSendsTo(id, take).
		WhenKeyed(taken).ThenSendsTo(id, parcel).
		When(shipping.HandedOver(parcel)).ThenSends(order.Invoice{Order: id}, order.TellCustomer{Order: id}).
		When(order.Invoiced{Number: "R-1"}).ThenNothing().
		When(order.CustomerTold{Account: "ann"}).ThenSends(order.Confirm{Order: id}).
		ThenCompleted().
		ThenState(checkout.State{Order: id, Wanted: placed, Receipt: "r1"})
}

func cancel(why string) order.Cancel { return order.Cancel{Order: id, Reason: why} }

func TestOutOfStock(t *testing.T) {
	t.Parallel()
	given(t).
		When(stock.Rejected{Order: id, Quantity: 2, Available: 1}).ThenSends(cancel(checkout.OutOfStock)).
		ThenCompensated()
}

func TestDeclined(t *testing.T) {
	t.Parallel()
	given(t, reserved).
		When(payment.Declined{Charge: "c1", Reason: "no money"}).ThenCompensates("reserve-stock").
		ThenSends(cancel(checkout.Declined)).
		ThenCompensated()
}

func TestNoCarrier(t *testing.T) {
	t.Parallel()
	given(t, reserved, taken).
		When(shipping.Refused{Order: id, Reason: "too far"}).ThenCompensates("take-payment", "reserve-stock").
		ThenSends(cancel(checkout.NoCarrier)).
		ThenCompensated()
}

// What is sent to undo, and to whom.
func TestUndo(t *testing.T) {
	t.Parallel()
	given(t, reserved, taken).
		When(shipping.Refused{Order: id, Reason: "too far"}).ThenSendsTo(id, payment.Refund{Order: id}).
		WhenReply("take-payment", saga.ReplyDone).ThenSendsTo("kettle", stock.Release{SKU: "kettle", Order: id}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenSends(cancel(checkout.NoCarrier)).
		WhenReply("compensated", saga.ReplyDone).ThenCompensated()
}

// The order was cancelled by somebody before the parcel was handed over.
func TestCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	given(t, reserved, taken).
		WhenReply("hand-over", saga.ReplyRefused, "order: cancelled already").ThenCompensates("take-payment", "reserve-stock").
		ThenSends(cancel(checkout.NoAnswer)).
		ThenCompensated()
}

// The provider is busy, which means that nothing was taken; it is asked again in its own time.
func TestBusyThenTaken(t *testing.T) {
	t.Parallel()
	given(t, reserved).
		When(payment.Postponed{Charge: "c1", Reason: "busy"}).ThenNothing().
		After(2 * time.Second).ThenSends(take).
		WhenKeyed(taken).ThenSends(parcel)
}

func TestBusyTooOften(t *testing.T) {
	t.Parallel()
	busy := payment.Postponed{Charge: "c1", Reason: "busy"}
	given(t, reserved).
		When(busy).ThenNothing().After(time.Minute).ThenSends(take).
		When(busy).ThenNothing().After(time.Minute).ThenSends(take).
		When(busy).ThenCompensates("reserve-stock").ThenSends(cancel(checkout.NoAnswer)).
		ThenCompensated()
}

// region no answer

// The provider does not answer: whatever it did is undone, before it is asked again.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	refund := payment.Refund{Order: id}
	s := given(t, reserved)
	for range 2 {
		s.WhenReply("take-payment", saga.ReplyFailed, "no answer").ThenSends(refund).
			WhenReply("take-payment", saga.ReplyDone).ThenNothing().
			After(time.Minute).ThenSends(take)
	}
	s.WhenReply("take-payment", saga.ReplyFailed, "no answer").ThenCompensates("take-payment", "reserve-stock").
		ThenSends(cancel(checkout.NoAnswer)).
		ThenCompensated()
}

// endregion

// The webhook of a charge that was undone is not taken for that of the next one: it is undone once more.
func TestLateWebhook(t *testing.T) {
	t.Parallel()
	given(t, reserved).
		WhenReply("take-payment", saga.ReplyFailed, "no answer").ThenSends(payment.Refund{Order: id}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		After(time.Minute).ThenSends(take).
		WhenCausedByAttempt("take-payment", 1, taken).ThenSends(payment.Refund{Order: id}).ThenRunning()
}

// The webhook that never comes.
func TestPaymentIsLate(t *testing.T) {
	t.Parallel()
	given(t, reserved).
		WhenDeadline("take-payment").ThenCompensates("take-payment", "reserve-stock").
		ThenSends(cancel(checkout.NoAnswer)).
		ThenCompensated().
		WhenKeyed(taken).ThenCompensates("take-payment").
		ThenCompensated()
}

// Behind the hand-over nothing goes back.
func TestTellsForEver(t *testing.T) {
	t.Parallel()
	s := given(t, reserved, taken, shipping.HandedOver(parcel))
	for range 20 {
		s.WhenReply("mail", saga.ReplyFailed, "the mail server is away").ThenNothing().
			After(time.Minute).ThenSends(order.TellCustomer{Order: id})
	}
	s.ThenRunning()
}

func TestCancelUnpaid(t *testing.T) {
	t.Parallel()
	after := func() *sagatest.Scenario {
		return sagatest.For(t, checkout.CancelUnpaid).In("order-" + id).Given(placed)
	}
	after().After(15*time.Minute-time.Second).ThenNothing().
		After(time.Second).ThenSendsTo(id, cancel(checkout.NotPaid))
	after().WhenKeyed(taken).ThenNothing().After(time.Hour).ThenNothing().ThenCompleted()
	after().WhenKeyed(order.Cancelled{Reason: "other"}).ThenNothing().After(time.Hour).ThenNothing().ThenCompleted()
}

func TestTakeOut(t *testing.T) {
	t.Parallel()
	sagatest.For(t, checkout.TakeOut).
		When(shipping.HandedOver(parcel)).ThenSendsTo("kettle", stock.TakeOut{SKU: "kettle", Order: id})
}
