// Package projection makes the tables that people query from the log: read models that follow it, exactly once, and can
// be waited for.
//
//	var Balances = projection.View[string, Balance]{
//		Name: "balances", Version: 1, Events: account.Events,
//		Folds: []projection.Fold[string, Balance]{
//			projection.On(projection.ByStream, Balance.deposited),
//			projection.On(projection.ByStream, Balance.withdrawn),
//		},
//	}
//
//	err := projection.Install(ctx, pool, Balances)                                       // where you migrate
//	runner, err := projection.NewRunner(pool, store.Log(), projection.Config{}, Balances) // in every process
//	err = runner.Run(ctx)
//	row, err := Balances.Get(ctx, pool, "ada", projection.AtLeast(result.Token))          // reads your own write
//
// A [View] is a pure fold per key, kept as rows. A [Projection] has handlers with a transaction, for everything else.
// Both run in a [Runner] after the append, or with Inline set within the append's own transaction.
//
// # Guarantees
//
//   - Order: events are applied in the order of the log, or, when a topic is followed, in that order for each partition
//     key; never two at once per projection, in however many processes. When an event fails, its partition key falls behind,
//     and is applied in its own order later.
//   - Atomicity: the rows of a batch and the projection's place in the log commit together.
//   - Once: no event takes effect twice, after whatever crash; a process that stood still while another took over
//     cannot commit what it had in hand.
//   - No event is lost: one that fails sets its partition key aside, and nothing of that key takes effect before it does. It
//     is tried again after pauses, and then waits for people as a dead letter; see [Park] and package outbox/deadletter. With
//     [Stop] it stops its projection just before it instead. A letter that people discard is left out.
//   - A read with a token is never older than the token, also when something is set aside: it says so.
//   - The place in the log moves also over events that a projection does not handle, so waiting for it always ends.
//   - A view's rows do not depend on how the log was cut into batches, and not on what failed meanwhile, when each row is
//     of one partition key; a row of several keys sees them in the order in which they were applied.
//
// # Caveats
//
//   - Folds and handlers run again when a batch is repeated. They must touch nothing but their state or transaction.
//   - A batch of views commits with synchronous_commit off. A crash of the server may take back the last rows together
//     with the place in the log, and they are made again; the log itself is never affected. Handlers commit as usual.
//   - Changing a fold without raising Version leaves the rows of old events as they are.
//   - A token must be waited for on the primary.
//   - A handler that rests longer than the lease between statements loses its transaction.
//
// # Errors
//
//	error                       meaning                                       the caller should
//	*NotInstalledError          tables or registration are missing            call Install with a role that may, or migrate the store
//	*ShapeError                 this version has other columns                raise Version and Install
//	*StoppedError               the projection stands still                   read its Reason; deploy a fix
//	*HandlerError               the event that stopped it, as Reason          deploy a fix
//	*ParkedError                what the token stands for is set aside        answer 503 with RetryAfter, or read without the token
//	*StaleError                 the wait was too long, the write is stored    serve the old row, or wait again
//	ErrNotFound                 no row for the key                            treat it as empty
//	ErrInsideHandler            a handler waited for itself                   read through its transaction
//	*eventstore.HistoryError    the token is of another history               drop the token
//	*ShutdownError              a handler ignored the end of its context      let it watch ctx
package projection
