package checkout

import (
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/saga"
)

// Events are those of all aggregates that take part.
var Events = eventstore.Join(order.Events, stock.Events, payment.Events, shipping.Events)

// The events that say of themselves which order they are about. Where they also say which command brought them about, as
// the shop sees to for payments, that counts: a late answer to a charge that was undone is not taken for the next one's.
var (
	paid      = saga.KeyOf(func(e saga.Event[payment.Taken]) string { return e.Payload.Order })
	cancelled = saga.KeyOf(func(e saga.Event[order.Cancelled]) string { return e.Stream.ID })
)

// region definition

type (
	steps   = []saga.Step[State]
	answers = []saga.Answer[State]
)

// Definition is the saga of an order.
var Definition = saga.Define(saga.Process[State]{
	Name: "checkout", Version: 1, Events: Events,
	Start: saga.StartOn(begin),
	Steps: steps{
		{
			Name:      "reserve-stock",
			Send:      saga.Send(State.reserve),
			Undo:      saga.Send(State.release),
			Succeeded: answers{saga.On(State.reserved)},
			Refused:   answers{saga.On(State.rejected)},
			Deadline:  5 * time.Minute,
		},
		{
			Name:      "take-payment",
			Send:      saga.Send(State.pay),
			Undo:      saga.Send(State.refund),
			Succeeded: answers{saga.OnKey(paid, State.paid)}, // arrives by webhook
			Refused:   answers{saga.On(State.declined)},
			Failed:    answers{saga.On(State.postponed)}, // may work next time
			Deadline:  8 * time.Minute,
			Retry:     saga.Retry{Attempts: 3, Base: time.Second, Cap: time.Minute},
		},
		{
			Name:      "hand-over",
			Send:      saga.Send(State.handOver),
			Succeeded: answers{saga.On(State.handedOver)},
			Refused:   answers{saga.On(State.noCarrier)}, // refunds, releases, cancels
			Retry:     saga.Retry{Attempts: 5},
			Pivot:     true,
		},
		{
			Name: "tell",
			Together: steps{
				{Name: "invoice", Send: saga.Send(State.invoice), Succeeded: answers{saga.On(State.invoiced)}, Retry: saga.Retry{Forever: true}},
				{Name: "mail", Send: saga.Send(State.mail), Succeeded: answers{saga.On(State.mailed)}, Retry: saga.Retry{Forever: true}},
			},
		},
	},
	Completed:   saga.Send(State.confirm),
	Compensated: saga.Send(State.cancel),
})

// endregion

// CancelUnpaid cancels what is not paid in time. The deadlines of the saga have passed by then, so what it meets is an order
// that nobody works on.
var CancelUnpaid = saga.After("cancel-unpaid", 15*time.Minute, Events,
	saga.When(func(e saga.Event[order.Placed]) (string, order.Cancel) {
		return e.Stream.ID, order.Cancel{Order: e.Stream.ID, Reason: NotPaid}
	}),
	saga.Unless(paid, cancelled))

// TakeOut lets what was handed over leave the warehouse. Nobody waits for it, so it is no step.
var TakeOut = saga.NewReactor("take-out", Events,
	saga.When(func(e saga.Event[shipping.HandedOver]) (string, stock.TakeOut) {
		return e.Payload.SKU, stock.TakeOut{SKU: e.Payload.SKU, Order: e.Payload.Order}
	}))

// All are the definitions that a manager runs.
func All() []saga.Definition { return []saga.Definition{Definition, CancelUnpaid, TakeOut} }
