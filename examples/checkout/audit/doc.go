// Package audit adds up everything that a shop has ever done: it folds every aggregate from the log, and compares them with
// one another and with the books of the payment provider.
//
//	books, err := audit.Read(ctx, store)
//	bookings, err := provider.Bookings(ctx)
//	faults := books.Faults(bookings) // none: nothing is missing, nothing is there twice
//
// # Guarantees
//
// One cent, one item, one parcel, one invoice or one mail too many or too few is a fault.
//
// # Caveats
//
// It is for when nothing is under way: an order that is still open, and what is reserved for it, are faults too.
//
// # Errors
//
// Read returns those of the store, and of an event that cannot be read.
package audit
