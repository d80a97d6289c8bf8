package shipping

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// ErrHandedOver is the rule of a parcel.
var ErrHandedOver = errors.New("shipping: handed over already")

// NoCarrier is a country that no carrier goes to.
const NoCarrier = "AQ"

// Event is what can happen to a parcel.
//
//sumtype:decl
type Event interface{ shippingEvent() }

// HandedOver: the carrier has the parcel.
type HandedOver struct {
	Order, SKU string
	Quantity   int64
	Country    string
}

// Refused: no carrier takes it.
type Refused struct{ Order, Reason string }

func (HandedOver) shippingEvent() {}
func (Refused) shippingEvent()    {}

// Events are the events of a parcel and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[HandedOver]("shipping.handed-over"),
	eventstore.TypeOf[Refused]("shipping.refused"))

// Type is the kind of aggregate; a parcel's id is the number of its order.
var Type = aggregate.Define("shipping", Parcel.Evolve, Events, aggregate.Refuses("handed-over", ErrHandedOver))

// Parcel is the state that decisions are made on.
type Parcel struct {
	HandedOver *HandedOver // nil until it is
	Refusals   int
}

// Evolve folds an event into the state.
func (p Parcel) Evolve(e Event) Parcel {
	switch e := e.(type) {
	case HandedOver:
		p.HandedOver = &e
	case Refused:
		p.Refusals++
	}
	return p
}

// HandOver gives a parcel to the carrier.
type HandOver HandedOver

// HandOverType is the name under which the command is sent.
var HandOverType = bus.TypeOf[HandOver]("shipping.hand-over")

// Decide hands the parcel over, or says that no carrier takes it.
func (c HandOver) Decide(p Parcel) ([]Event, error) {
	switch {
	case p.HandedOver != nil:
		return nil, fmt.Errorf("%w: order %s", ErrHandedOver, c.Order)
	case c.Country == NoCarrier:
		return []Event{Refused{Order: c.Order, Reason: "no carrier goes to " + c.Country}}, nil
	}
	return []Event{HandedOver(c)}, nil
}
