// Package book is the ledger's commands: those that touch several aggregates at once, an entry and every account it
// posts to, in one append.
//
//	ledger := book.New(store, store.Snapshots(), logger)
//	posted, err := ledger.Post(ctx, key, entry, book.OpeningAccounts())
//
// # Guarantees
//
//   - An entry and its postings are stored together or not at all, and a rule that any account or the entry itself has
//     to say no by leaves nothing behind.
//   - The same key is posted once, however often and from how many programs at once it is sent.
//
// # Caveats
//
// A command decides on what is committed. It says nothing of the read models, which follow; wait for the token of the
// result before reading them.
//
// # Errors
//
//	*RejectedError       a rule said no; it holds the line and the account, and unwraps the rule's own error
//	anything else        the store's: see package aggregate
package book
