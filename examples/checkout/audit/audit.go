package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/checkout/basket"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/payment"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
	"github.com/daybook-go/daybook/examples/checkout/stock"
)

// Books are all aggregates, by id.
type Books struct {
	Orders    map[string]order.Order
	Items     map[string]stock.Item
	Payments  map[string]payment.Payment
	Shipments map[string]shipping.Parcel
	// Sent is what has left the warehouse, by order.
	Sent map[string]int64
}

// Read folds every aggregate from the log.
func Read(ctx context.Context, log eventstore.AllReader) (*Books, error) {
	b := &Books{
		Orders: map[string]order.Order{}, Items: map[string]stock.Item{}, Payments: map[string]payment.Payment{},
		Shipments: map[string]shipping.Parcel{}, Sent: map[string]int64{},
	}
	for recorded, err := range log.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{Types: checkout.Events.Types()}) {
		if err != nil {
			return nil, fmt.Errorf("audit: read: %w", err)
		}
		event, err := checkout.Events.Decode(recorded)
		if err != nil {
			return nil, fmt.Errorf("audit: read: %w", err)
		}
		switch id := recorded.Stream.ID; e := event.(type) {
		case order.Event:
			b.Orders[id] = b.Orders[id].Evolve(e)
		case stock.Event:
			b.Items[id] = b.Items[id].Evolve(e)
			if shipped, ok := e.(stock.Shipped); ok {
				b.Sent[shipped.Order] += shipped.Quantity
			}
		case payment.Event:
			b.Payments[id] = b.Payments[id].Evolve(e)
		case shipping.Event:
			b.Shipments[id] = b.Shipments[id].Evolve(e)
		}
	}
	return b, nil
}

// Open is how many orders are neither confirmed nor cancelled.
func (b *Books) Open() (n int) {
	for _, o := range b.Orders {
		if o.Status == order.StatusOpen || o.Status == order.StatusSent {
			n++
		}
	}
	return n
}

// Surprises are orders whose ids begin with a prefix, and that ended otherwise than what is in them says; none when all
// ended as they must.
func (b *Books) Surprises(prefix string) []string {
	f := &faults{}
	for _, id := range slices.Sorted(maps.Keys(b.Orders)) {
		if o := b.Orders[id]; strings.HasPrefix(id, prefix) && o.Reason != basket.Expect(o.Placed) {
			f.add("order %s is %s %q, and must be cancelled %q", id, o.Status, o.Reason, basket.Expect(o.Placed))
		}
	}
	return f.texts
}

// Reserved is how many items are put aside.
func (b *Books) Reserved() (n int64) {
	for _, i := range b.Items {
		for _, quantity := range i.Reserved {
			n += quantity
		}
	}
	return n
}

// Faults are what does not add up, in words; none when all does.
func (b *Books) Faults(bookings []provider.Booking) []string {
	f := &faults{}
	b.items(f)
	for _, id := range slices.Sorted(maps.Keys(b.Orders)) {
		b.order(f, id, b.Orders[id])
	}
	b.money(f, bookings)
	b.strangers(f)
	return f.texts
}

type faults struct{ texts []string }

func (f *faults) add(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func (f *faults) same(what string, have, want int64) {
	if have != want {
		f.add("%s is %d, and must be %d", what, have, want)
	}
}

func (b *Books) items(f *faults) {
	for _, sku := range slices.Sorted(maps.Keys(b.Items)) {
		i := b.Items[sku]
		var reserved int64
		for _, quantity := range i.Reserved {
			reserved += quantity
		}
		f.same("item "+sku+": available, reserved and shipped", i.Available+reserved+i.Shipped, i.Received)
		f.same("item "+sku+": reserved", reserved, 0)
		if i.Available < 0 {
			f.add("item %s: available is %d", sku, i.Available)
		}
	}
}

// order checks that everything was done for a confirmed order, and nothing is left of a cancelled one.
func (b *Books) order(f *faults, id string, o order.Order) {
	name := "order " + id
	if o.Status != order.StatusConfirmed && o.Status != order.StatusCancelled {
		f.add("%s is %s", name, o.Status)
		return
	}
	var one, cents, quantity int64
	if o.Status == order.StatusConfirmed {
		one, cents, quantity = 1, o.Cents, o.Quantity
	}
	parcel := b.Shipments[id].HandedOver
	var parcels int64
	if parcel != nil {
		parcels = 1
		if parcel.SKU != o.SKU || parcel.Quantity != o.Quantity {
			f.add("%s: the parcel has %d %s, and must have %d %s", name, parcel.Quantity, parcel.SKU, o.Quantity, o.SKU)
		}
	}
	f.same(name+": parcels", parcels, one)
	f.same(name+": items shipped", b.Sent[id], quantity)
	f.same(name+": invoices", int64(o.Invoices), one)
	f.same(name+": mails", int64(o.Mails), one)
	f.same(name+": cents held", b.Payments[id].Held(), cents)
}

// money compares what the shop knows of each charge with the provider's books.
func (b *Books) money(f *faults, bookings []provider.Booking) {
	known := map[string]bool{}
	for _, booking := range bookings {
		known[booking.Charge] = true
		c := b.Payments[booking.Order].Charges[booking.Charge]
		name := fmt.Sprintf("order %s: charge %s", booking.Order, booking.Charge)
		f.same(name+": cents taken, as the shop knows it,", c.Taken, booking.Cents)
		f.same(name+": cents refunded, as the shop knows it,", c.Refunded, booking.Refunded)
	}
	for _, id := range slices.Sorted(maps.Keys(b.Payments)) {
		for _, charge := range slices.Sorted(maps.Keys(b.Payments[id].Charges)) {
			if !known[charge] {
				f.add("order %s: the provider does not know charge %s", id, charge)
			}
		}
	}
}

// strangers are payments, parcels and items of orders that nobody has placed.
func (b *Books) strangers(f *faults) {
	placed := func(what string, ids []string) {
		slices.Sort(ids)
		for _, id := range ids {
			if b.Orders[id].Status == "" {
				f.add("order %s was never placed, and has %s", id, what)
			}
		}
	}
	placed("a payment", slices.Collect(maps.Keys(b.Payments)))
	placed("a parcel", slices.Collect(maps.Keys(b.Shipments)))
	placed("items", slices.Collect(maps.Keys(b.Sent)))
}
