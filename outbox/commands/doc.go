// Package commands carries out commands apart from their senders: a command is a message of the outbox, stored in the
// transaction of whoever sends it, and a [Dispatcher] gives it to a bus, once.
//
//	queue, err := commands.NewQueue(pool, commands.QueueConfig{Wake: store.Wake})
//	command, err := b.Prepare(ctx, Withdraw{Account: "42", Cents: 100})
//	id, err := queue.Enqueue(ctx, command)        // returns when it is stored
//	operation, err := queue.Operation(ctx, command.Scope, id)
//
//	d, err := commands.NewDispatcher(pool, commands.Local(store.Outbox()), b, commands.Config{}) // in every process
//	err = d.Run(ctx)
//
// Who has a transaction of his own sends commands in it by [Enqueue]. Handlers tell how far they are by [Progress].
//
// Sagas send theirs by [ForSagas], and hear how they ended from the outbox itself. A dispatcher asks the saga's rows before
// it carries such a command out, one query for a batch that has any. It ends an undo's command for good before the undo's
// handler runs, which [WasCarriedOut] tells what became of it.
//
// # Guarantees
//
//   - Atomicity: a command is carried out if and only if the transaction that sent it has committed.
//   - Once: exactly one dispatcher works over all processes, by a lease, whichever sources they have. What a crash makes it
//     run again is recognised by the command's idempotency key, its id if it has no other, and brings the first outcome.
//   - Order: commands of one target are carried out one after the other, in the order in which they were sent.
//   - Every command comes to an end that does not change any more: done, refused, expired or failed. The end, the reply to
//     its sender and the dispatcher's checkpoint are committed together; ends that are stored under their keys may be told
//     a moment before. A sender that asked for a reply (Command.ReplyTo) gets one message in the outbox, of which a
//     broker may deliver copies with the same id.
//   - A command past its deadline when it is about to run never runs, now or later.
//   - A command of a saga whose step is over is refused, with code [CodeSagaOver], without its handler being called: also
//     when it comes late, again, or out of a dead letter, and long after keys were forgotten. One whose end the saga knows
//     ends so again.
//   - Before the handler of a saga's undo runs, what it undoes is ended under its key: if that has had no effect in the store
//     it never has one, when it is delivered later, or in a process that stands still in its midst. A commit that is under way
//     either wins, and the undo's handler is told so, or is refused. The handler runs in any case, as something may have
//     happened outside of the store. If the store cannot be made to take that, the undo fails, and the saga sends another.
//   - A command that is given up, after Config.Attempts, Config.Timeout or a panic, is first ended under its key: should its handler
//     still be at work, its commit is refused. Had it taken effect before, that is its end. So it is for one that this program
//     cannot carry out, because it has no handler for it, cannot read it, or forbids it: another program may have done it.
//   - A database that is away is waited for without end, and uses up neither attempts nor time of a command.
//   - One source can be exchanged for the other: nothing is lost, nothing done twice, and the order is kept.
//   - No transaction of the dispatcher is open while a handler runs.
//
// # Caveats
//
//   - The bus must have [bus.Idempotent], with the store of the same database. Without it commands that succeed or are refused
//     still take effect once, and Health says what is missing. What a handler does beside its one
//     Repository.Handle or aggregate.Transact is covered by no key, and a crash may do it again; so it is for types that
//     are declared [bus.WithoutKey].
//   - Keys are kept for as long as the store keeps outcomes, by default 24 h. If no dispatcher runs for longer than that
//     after one died in the middle of a batch, the commands of that batch may take effect again.
//   - What a command of a saga does under the declaration [bus.WithoutKey] cannot be ended so: a handler of it that stands still
//     may go on after the undo.
//   - A saga's command whose row is gone, because the saga is over and was removed, is refused like one whose step is over.
//   - Commands are carried out in batches of what is there. A slow command keeps those of the next batch waiting.
//     When one has hung for Config.Timeout, those behind it for the same target share that much once more; what is not begun
//     by then fails, unexecuted. Commands that are slow without hanging each have their time.
//   - A handler that ignores the end of its context costs a goroutine until it ends. Beyond 64 of them nothing else runs;
//     Health says so.
//   - A type that no handler is registered for fails, and is not tried again: deploy handlers before senders.
//   - Operations are kept for Config.KeepOperations after their end; the same key enqueued after that is another
//     operation, of the same id, to which the first outcome is told while the store keeps it.
//   - A relay publishes commands too, also where nobody reads them from the broker, and so the replies to sagas. Without any
//     relay commands are removed when they are carried out, and replies to sagas when these have passed them, up to the first
//     message of the outbox that waits for a relay.
//   - A gate in the bus ([bus.Admit]) that sends commands away holds the batch until it lets them in: they were accepted, and
//     wait in the outbox.
//   - A middleware that keeps the reply back when there is an error makes a refusal look like a failure: the command goes
//     through the bus a second time, which tells that it is one.
//   - The class of a command says which targets of a batch come first; a batch is what is there, by position.
//
// # Errors
//
//	error                       meaning                                          the caller should
//	*eventstore.ReusedKeyError  key or id was enqueued for another request       give each request a key of its own
//	*eventstore.InvalidError    the command cannot be sent                       correct the field that it names
//	*bus.NoOperationError       no such operation in the scope, or removed       ask with the right scope, and in time
//	*NotInstalledError          tables are missing                               migrate the store
//	*ShutdownError              handlers have not returned                       let them watch their contexts
//	*eventstore.HistoryError    the log is not the one that was read: in Health  read its Remedy
//	*outbox.LostError           commands were cleaned away: in Health            see its text; keep a dispatcher running
package commands
