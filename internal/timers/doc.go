// Package timers keeps what is due at a time as rows, and hands it to whoever has claimed it. It does not know what timers
// are for.
//
//	b := &pgx.Batch{}
//	timers.Set(b, "daybook", nil, []timers.Setting{{Queue: "reminders", Name: "42", After: 15 * time.Minute}})
//	…                                                     // sent and committed with whatever the timer belongs to
//
//	runner, err := timers.NewRunner(timers.Config{Queue: "reminders"}, func(ctx context.Context, due []timers.Timer) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			held, err := timers.Held(ctx, tx, "daybook", due) // without those that were cancelled meanwhile
//			…                                             // what the timers do
//			timers.Finish(b, "daybook", held)
//			…                                             // sent in tx
//		})
//	})
//	…
//	err = runner.Run(ctx, pool)
//
// # Guarantees
//
//   - A timer that is set is handled at least once, not before it is due by the database's clock, whatever dies. What its
//     handler does in the transaction of [Finish] happens once.
//   - A timer is claimed under a lease, with a token. Claiming, setting anew, cancelling, shifting and giving back all change
//     the token, or remove the row: [Finish] with an old one fails, and the transaction with it. Tokens of a name are not
//     mistaken for those of a timer that was set under it before.
//   - Claims wait for nobody, and read what is due and nothing behind it. Timers of other queues and of later times cost
//     them nothing.
//   - Times are compared by one clock: the database's, or the one that the statement is given. The clock of the process
//     is used for differences only.
//   - Cancelling, giving back and setting are harmless to repeat.
//
// # Caveats
//
//   - Functions that take a batch queue exactly one statement each, and the caller commits. Statements that write several
//     timers lock them in the order of queues and names.
//   - A handler must hold no row of timers locked for long while it waits for something else: nobody can take over before
//     its transaction ends. Set idle_in_transaction_session_timeout in it.
//   - A timer that sets the next of its name finishes first, and then sets, in one transaction: setting it replaces the row.
//   - Statements of others that want what is due write queue || ” = $1, and compare visible_at with a subquery when it is the
//     clock: see the index in the migration. Those that look by name write queue = $1.
//   - Two timers that are due at one moment have no order.
//   - A name must not begin with U+10FFFF.
//
// # Errors
//
//	Lost(err)   a timer is not the caller's any more; the transaction must be rolled back
//	all others  of the database or of the connection, wrapped
package timers
