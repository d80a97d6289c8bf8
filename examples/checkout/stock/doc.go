// Package stock is one item of the warehouse: how many are there, and for which orders some are put aside.
//
//	items := aggregate.NewRepository(store, stock.Type, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(100)))
//	_, err := items.Handle(ctx, "kettle", stock.Reserve{SKU: "kettle", Order: "812", Quantity: 2}.Decide)
//
// # Guarantees
//
//   - What was received is always the sum of what is available, reserved and shipped.
//   - Nothing is reserved that is not available: that there is not enough is the event [Rejected], an answer and no error.
//
// # Caveats
//
// An item sees all the orders for it, so its stream grows long: keep snapshots.
//
// # Errors
//
//	ErrQuantity       a quantity must be at least 1
//	ErrReserved       the order has a reservation already
//	ErrNotReserved    the order has none
package stock
