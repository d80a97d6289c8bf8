// Package order is what a customer has ordered: placed once, then confirmed or cancelled, never both.
//
//	orders := aggregate.NewRepository(store, order.Type)
//	_, err := orders.Handle(ctx, "812", order.Place{Account: "ann", SKU: "kettle", Quantity: 1, Cents: 4500}.Decide)
//
// # Guarantees
//
//   - An order that was confirmed is never cancelled, and the other way round.
//   - It has at most one invoice, and its customer is told at most once.
//
// # Caveats
//
// An order does not know what became of stock and payment: that it is confirmed in time, and only then, is the work of
// package checkout.
//
// # Errors
//
//	ErrInvalid      what is ordered is incomplete
//	ErrPlaced       the number belongs to an order that says something else
//	ErrNotPlaced    there is no such order
//	ErrConfirmed    it is confirmed, and can no longer be cancelled
//	ErrCancelled    it is cancelled, and can no longer be confirmed
package order
