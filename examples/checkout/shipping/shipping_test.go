package shipping_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/checkout/shipping"
)

func TestHandOver(t *testing.T) {
	t.Parallel()
	parcel := shipping.HandOver{Order: "7", SKU: "kettle", Quantity: 2, Country: "DE"}
	aggregatetest.For(t, shipping.Type).
		When(parcel.Decide).Then(shipping.HandedOver(parcel)).
		When(parcel.Decide).ThenError(shipping.ErrHandedOver)
}

func TestNoCarrier(t *testing.T) {
	t.Parallel()
	parcel := shipping.HandOver{Order: "7", SKU: "kettle", Quantity: 2, Country: shipping.NoCarrier}
	aggregatetest.For(t, shipping.Type).
		When(parcel.Decide).Then(shipping.Refused{Order: "7", Reason: "no carrier goes to AQ"}).
		ThenState(shipping.Parcel{Refusals: 1})
}
