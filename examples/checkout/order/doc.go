// Package order is what a customer has ordered: placed once, then sent and confirmed, or cancelled.
//
//	orders := aggregate.NewRepository(store, order.Type)
//	_, err := orders.Handle(ctx, "812", order.Place{Account: "ann", SKU: "kettle", Quantity: 1, Cents: 4500}.Decide)
//
// # Guarantees
//
//   - An order that was sent is never cancelled, and the other way round. Only one that was sent is confirmed.
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
//	ErrNotSent      it cannot be confirmed before it is sent
//	ErrSent         it can no longer be cancelled
//	ErrCancelled    it is cancelled, and can no longer be sent or confirmed
package order
