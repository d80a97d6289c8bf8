// Package account is one account of the ledger: what may be posted to it, and what it holds.
//
//	accounts := aggregate.NewRepository(store, account.Type)
//	_, err := accounts.Handle(ctx, "assets:cash", account.Open{NeverBelowZero: true}.Decide)
//
// # Guarantees
//
//   - Amounts are exact. An account refuses a posting when all the amounts ever posted to it in that commodity, signs
//     left out, no longer fit 19 digits. So every sum that can be made of its postings, of a day or of all, is exact.
//   - An account is below zero, in no commodity and at no version, while its terms say that it never is.
//
// # Caveats
//
// An account knows its own postings only. That the postings of an entry sum to zero is the rule of package entry, and
// that they are stored together is the work of package book.
//
// # Errors
//
//	ErrNotOpen           open the account first
//	ErrBelowZero         the posting would make a balance negative that never may be, or the new terms find one
//	ErrTooManyDigits     the amounts of the account no longer fit 19 digits
//	ErrOtherTerms        the account is open already, on other terms than asked for
package account
