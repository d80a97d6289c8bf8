package stock

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// The rules of an item.
var (
	ErrQuantity    = errors.New("stock: a quantity must be at least 1")
	ErrReserved    = errors.New("stock: reserved already")
	ErrNotReserved = errors.New("stock: not reserved")
)

// Event is what can happen to an item.
//
//sumtype:decl
type Event interface{ stockEvent() }

// Received: a delivery came in.
type Received struct{ Quantity int64 }

// Reserved: some are put aside for an order.
type Reserved struct {
	Order    string
	Quantity int64
}

// Rejected: there are not enough for an order.
type Rejected struct {
	Order               string
	Quantity, Available int64
}

// Released: what was put aside is available again.
type Released struct {
	Order    string
	Quantity int64
}

// Shipped: what was put aside has left the warehouse.
type Shipped struct {
	Order    string
	Quantity int64
}

func (Received) stockEvent() {}
func (Reserved) stockEvent() {}
func (Rejected) stockEvent() {}
func (Released) stockEvent() {}
func (Shipped) stockEvent()  {}

// Events are the events of an item and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Received]("stock.received"),
	eventstore.TypeOf[Reserved]("stock.reserved"),
	eventstore.TypeOf[Rejected]("stock.rejected"),
	eventstore.TypeOf[Released]("stock.released"),
	eventstore.TypeOf[Shipped]("stock.shipped"))

// Type is the kind of aggregate; an item's id is its SKU.
var Type = aggregate.Define("stock", Item.Evolve, Events,
	aggregate.Refuses("quantity", ErrQuantity),
	aggregate.Refuses("reserved", ErrReserved),
	aggregate.Refuses("not-reserved", ErrNotReserved))

// Item is the state that decisions are made on.
type Item struct {
	Received  int64 // of all times
	Available int64
	Shipped   int64 // of all times
	// Reserved is by order.
	Reserved map[string]int64
}

// Evolve folds an event into the state.
func (i Item) Evolve(e Event) Item {
	switch e := e.(type) {
	case Received:
		i.Received += e.Quantity
		i.Available += e.Quantity
	case Reserved:
		if i.Reserved == nil {
			i.Reserved = make(map[string]int64)
		}
		i.Reserved[e.Order] = e.Quantity
		i.Available -= e.Quantity
	case Rejected:
	case Released:
		delete(i.Reserved, e.Order)
		i.Available += e.Quantity
	case Shipped:
		delete(i.Reserved, e.Order)
		i.Shipped += e.Quantity
	}
	return i
}

// Receive takes a delivery in.
type Receive struct{ Quantity int64 }

// Reserve puts some aside for an order.
type Reserve struct {
	SKU, Order string
	Quantity   int64
}

// Release makes available again what is put aside for an order, if anything is.
type Release struct{ SKU, Order string }

// TakeOut lets what is put aside leave the warehouse.
type TakeOut struct{ SKU, Order string }

// The commands that are sent, and the names under which they are.
var (
	ReserveType = bus.TypeOf[Reserve]("stock.reserve")
	ReleaseType = bus.TypeOf[Release]("stock.release")
	TakeOutType = bus.TypeOf[TakeOut]("stock.take-out")
)

// Decide takes the delivery in.
func (c Receive) Decide(Item) ([]Event, error) {
	if c.Quantity < 1 {
		return nil, fmt.Errorf("%w, not %d", ErrQuantity, c.Quantity)
	}
	return []Event{Received(c)}, nil
}

// Decide reserves, or says that there are not enough.
func (c Reserve) Decide(i Item) ([]Event, error) {
	switch {
	case c.Quantity < 1:
		return nil, fmt.Errorf("%w, not %d", ErrQuantity, c.Quantity)
	case i.Reserved[c.Order] > 0:
		return nil, fmt.Errorf("%w: %d for order %s", ErrReserved, i.Reserved[c.Order], c.Order)
	case c.Quantity > i.Available:
		return []Event{Rejected{Order: c.Order, Quantity: c.Quantity, Available: i.Available}}, nil
	}
	return []Event{Reserved{Order: c.Order, Quantity: c.Quantity}}, nil
}

// Decide releases. Nothing reserved is a success without an event.
func (c Release) Decide(i Item) ([]Event, error) {
	quantity, reserved := i.Reserved[c.Order]
	if !reserved {
		return nil, nil
	}
	return []Event{Released{Order: c.Order, Quantity: quantity}}, nil
}

// Decide takes out what is reserved.
func (c TakeOut) Decide(i Item) ([]Event, error) {
	quantity, reserved := i.Reserved[c.Order]
	if !reserved {
		return nil, fmt.Errorf("%w for order %s", ErrNotReserved, c.Order)
	}
	return []Event{Shipped{Order: c.Order, Quantity: quantity}}, nil
}
