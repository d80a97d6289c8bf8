// Package shipping is the parcel of an order: a carrier takes it, or does not.
//
//	shipments := aggregate.NewRepository(store, shipping.Type)
//	_, err := shipments.Handle(ctx, "812", shipping.HandOver{Order: "812", SKU: "kettle", Quantity: 2, Country: "DE"}.Decide)
//
// # Guarantees
//
//   - A parcel is handed over at most once.
//   - That no carrier goes to a country is the event [Refused], an answer and no error.
//
// # Errors
//
//	ErrHandedOver    the parcel is on its way already
package shipping
