// Package commands are the ledger's commands as values that can be sent: over HTTP, or through the outbox to another
// process.
//
//	b := commands.NewBus(store, ledger, commands.Config{})
//	reply, err := b.Send(ctx, commands.OpenAccount{Name: "assets:cash", NeverBelowZero: true}, bus.WithKey("k1"))
//
// # Guarantees
//
//   - A command that is sent again with its key is carried out once, and answered as it was the first time; a refusal too.
//   - An entry is named after its command when the caller gives it no name. So it is there once also when it is sent again
//     after the store has forgotten the first outcome.
//
// # Caveats
//
// A name that the caller gives an entry counts for itself: the same entry under the same name in another command is a
// success that writes nothing ([Receipt].Already), and another entry is refused with entry.ErrKeyUsed.
//
// # Errors
//
//	*journal.RuleError     the command breaks a rule by itself, in an *bus.InvalidCommandError; never stored as an outcome
//	*book.RejectedError    the state of the ledger is against it
//	anything else          see packages bus and aggregate
package commands
