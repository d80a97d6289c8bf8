package shop

import (
	"context"
	"log/slog"
	"slices"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/snapshot"
)

// Store is what a shop needs of an event store; *postgres.Store has it.
type Store interface {
	aggregate.Store
	eventstore.OnceAppender
}

// snapshotsEvery is for items, whose streams have an event or two of each order.
const snapshotsEvery = 100

// Shop is safe for concurrent use. It has nothing to close.
type Shop struct {
	store     Store
	provider  *provider.Client
	Orders    *aggregate.Repository[order.Order, order.Event]
	Items     *aggregate.Repository[stock.Item, stock.Event]
	Payments  *aggregate.Repository[payment.Payment, payment.Event]
	Shipments *aggregate.Repository[shipping.Parcel, shipping.Event]
}

// New returns a shop on a store, with the store's own snapshots.
func New(store Store, snapshots snapshot.Store, client *provider.Client) *Shop {
	return &Shop{
		store: store, provider: client,
		Orders:    aggregate.NewRepository(store, order.Type),
		Items:     aggregate.NewRepository(store, stock.Type, aggregate.WithSnapshots(snapshots, snapshot.Every(snapshotsEvery))),
		Payments:  aggregate.NewRepository(store, payment.Type),
		Shipments: aggregate.NewRepository(store, shipping.Type),
	}
}

// region bus

// Bus returns a bus that carries out the commands of a checkout, each once. The outer middleware, if there is any, goes
// around all else.
func (s *Shop) Bus(logger *slog.Logger, outer ...bus.Middleware) *bus.Bus {
	middleware := slices.Concat(outer, []bus.Middleware{bus.Retry(aggregate.Retry{}), bus.Idempotent(s.store)})
	b := bus.New(bus.Config{Logger: logger}, middleware...)

	bus.HandleAggregate(b, order.ConfirmType, s.Orders, func(c order.Confirm) string { return c.Order }, order.Confirm.Decide)
	bus.HandleAggregate(b, order.CancelType, s.Orders, func(c order.Cancel) string { return c.Order }, order.Cancel.Decide)
	bus.HandleAggregate(b, order.InvoiceType, s.Orders, func(c order.Invoice) string { return c.Order }, order.Invoice.Decide)
	bus.HandleAggregate(b, order.TellCustomerType, s.Orders, func(c order.TellCustomer) string { return c.Order }, order.TellCustomer.Decide)

	bus.HandleAggregate(b, stock.ReserveType, s.Items, func(c stock.Reserve) string { return c.SKU }, stock.Reserve.Decide)
	bus.HandleAggregate(b, stock.ReleaseType, s.Items, func(c stock.Release) string { return c.SKU }, stock.Release.Decide)
	bus.HandleAggregate(b, stock.TakeOutType, s.Items, func(c stock.TakeOut) string { return c.SKU }, stock.TakeOut.Decide)

	bus.Handle(b, shipping.HandOverType, s.handOver) // it changes the order too
	bus.Handle(b, payment.TakeType, s.take)          // they ask the provider
	bus.Handle(b, payment.RefundType, s.refund)
	return b
}

// endregion

// handOver gives the parcel to the carrier, and the order can no longer be cancelled; or it does neither.
func (s *Shop) handOver(ctx context.Context, c shipping.HandOver) (bus.Reply, error) {
	receipt, err := aggregate.Transact(ctx, s.store, func(w *aggregate.Work) error {
		shipment := s.Shipments.In(w, c.Order)
		if err := shipment.Decide(c.Decide); err != nil {
			return err
		}
		parcel, err := shipment.State()
		if err != nil || parcel.HandedOver == nil {
			return err
		}
		return s.Orders.In(w, c.Order).Decide(order.Send{}.Decide)
	})
	return bus.Reply{
		Stream: shipping.Type.Stream(c.Order), Version: receipt.Versions[shipping.Type.Stream(c.Order)], Token: receipt.Token,
		Repeated: receipt.Repeated, Attempts: receipt.Attempts,
	}, err
}

// Drain waits for snapshots that are due; they can do without.
func (s *Shop) Drain(ctx context.Context) { _ = s.Items.Snapshots().Drain(ctx) }
