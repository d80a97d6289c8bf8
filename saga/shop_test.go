package saga_test

import (
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/saga"
)

// The events of a small shop.
type (
	orderPlaced struct {
		Account string
		Cents   int64
	}
	orderAgain      struct{ Order string }
	stockReserved   struct{ Shelf string }
	stockRejected   struct{}
	paymentTaken    struct{ Order, Receipt string }
	paymentDeclined struct{}
	paymentBusy     struct{}
	shipped         struct{}
	noCarrier       struct{}
	invoiced        struct{}
	invoiceFailed   struct{}
	told            struct{}
)

// Its commands.
type (
	reserveStock struct{}
	releaseStock struct{ Shelf string }
	takePayment  struct {
		Order string
		Cents int64
	}
	refund      struct{ Receipt string }
	handOver    struct{}
	invoice     struct{}
	tell        struct{}
	confirm     struct{}
	cancelOrder struct{ Why string }
)

var shopEvents = eventstore.NewCatalog(
	eventstore.TypeOf[orderPlaced]("order.placed"), eventstore.TypeOf[orderAgain]("order.again"),
	eventstore.TypeOf[stockReserved]("stock.reserved"), eventstore.TypeOf[stockRejected]("stock.rejected"),
	eventstore.TypeOf[paymentTaken]("payment.taken"), eventstore.TypeOf[paymentDeclined]("payment.declined"),
	eventstore.TypeOf[paymentBusy]("payment.busy"), eventstore.TypeOf[shipped]("parcel.shipped"),
	eventstore.TypeOf[noCarrier]("parcel.refused"), eventstore.TypeOf[invoiced]("invoice.sent"),
	eventstore.TypeOf[invoiceFailed]("invoice.failed"), eventstore.TypeOf[told]("customer.told"),
)

// shop is the state of a checkout.
type shop struct {
	Order, Account, Shelf, Receipt string
	Cents                          int64
	Busy, Starts                   int
}

func begin(e saga.Event[orderPlaced]) shop {
	return shop{Order: e.Stream.ID, Account: e.Payload.Account, Cents: e.Payload.Cents, Starts: 1}
}

func (s shop) reserve() (string, reserveStock) { return s.Order, reserveStock{} }
func (s shop) release() (string, releaseStock) { return s.Order, releaseStock{s.Shelf} }
func (s shop) pay() (string, takePayment)      { return s.Account, takePayment{s.Order, s.Cents} }
func (s shop) refund() (string, refund)        { return s.Account, refund{s.Receipt} }
func (s shop) handOver() (string, handOver)    { return s.Order, handOver{} }
func (s shop) invoice() (string, invoice)      { return s.Account, invoice{} }
func (s shop) tell() (string, tell)            { return s.Account, tell{} }
func (s shop) confirm() (string, confirm)      { return s.Order, confirm{} }
func (s shop) cancel() (string, cancelOrder)   { return s.Order, cancelOrder{"compensated"} }

func (s shop) reserved(e saga.Event[stockReserved]) shop { s.Shelf = e.Payload.Shelf; return s }
func (s shop) paid(e saga.Event[paymentTaken]) shop      { s.Receipt = e.Payload.Receipt; return s }
func (s shop) busy(saga.Event[paymentBusy]) shop         { s.Busy++; return s }

func same[E any](s shop, _ saga.Event[E]) shop { return s }

var payment = saga.KeyOf(func(e saga.Event[paymentTaken]) string { return e.Payload.Order })

type (
	steps   = []saga.Step[shop]
	answers = []saga.Answer[shop]
)

// checkout is the whole process; tests change copies of it.
func checkout() saga.Process[shop] {
	return saga.Process[shop]{
		Name: "checkout", Version: 1, Events: shopEvents,
		Start: saga.StartOn(begin),
		Steps: steps{
			{
				Name: "reserve-stock", Send: saga.Send(shop.reserve), Undo: saga.Send(shop.release),
				Succeeded: answers{saga.On(shop.reserved)}, Refused: answers{saga.On(same[stockRejected])},
				Deadline: 30 * time.Second,
			},
			{
				Name: "take-payment", Send: saga.Send(shop.pay), Undo: saga.Send(shop.refund),
				Succeeded: answers{saga.OnKey(payment, shop.paid)}, Refused: answers{saga.On(same[paymentDeclined])},
				Failed: answers{saga.On(shop.busy)}, Deadline: 15 * time.Minute,
				Retry: saga.Retry{Attempts: 3, Base: time.Second, Cap: time.Minute},
			},
			{
				Name: "hand-over", Send: saga.Send(shop.handOver), Succeeded: answers{saga.On(same[shipped])},
				Refused: answers{saga.On(same[noCarrier])}, Pivot: true,
			},
			{Name: "tell", Together: steps{
				{
					Name: "invoice", Send: saga.Send(shop.invoice), Succeeded: answers{saga.On(same[invoiced])},
					Failed: answers{saga.On(same[invoiceFailed])}, Retry: saga.Retry{Forever: true},
				},
				{Name: "mail", Send: saga.Send(shop.tell), Succeeded: answers{saga.On(same[told])}, Retry: saga.Retry{Forever: true}},
			}},
		},
		Completed: saga.Send(shop.confirm), Compensated: saga.Send(shop.cancel),
	}
}

// changed is the checkout with something else about it.
func changed(change func(*saga.Process[shop])) saga.Definition {
	p := checkout()
	change(&p)
	return saga.Define(p)
}

var checkoutDefinition = saga.Define(checkout())
