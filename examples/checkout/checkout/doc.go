// Package checkout is the saga of an order: stock is reserved, the payment taken, the parcel handed over, and the customer
// told; or what was done of it is undone. It is a value that knows no database; see package saga for what runs it.
//
//	manager, err := saga.NewManager(pool, source, sender, saga.Config{}, checkout.All()...)
//
// Beside it are two smaller ones: [CancelUnpaid], a command that is sent later, and [TakeOut], which has no memory at all.
//
// # Guarantees
//
//   - An order is confirmed when it is paid and handed over, and cancelled when it holds no stock and no money; or the saga
//     is stuck and says where.
//   - Behind the hand-over to the carrier nothing is undone any more.
//
// # Caveats
//
// Names of sagas and steps are stored with each instance. Whoever changes the steps raises the version.
//
// # Errors
//
// There are none of its own.
package checkout
