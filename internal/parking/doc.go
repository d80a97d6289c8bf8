// Package parking keeps what is set aside so that others go on: sequences that wait, letters of messages that failed, what
// is queued behind them, and plans to try letters again. It reads rows and queues statements. When something is tried
// again, how often, and by whom is decided by its callers.
//
//	set, err := parking.Load(ctx, db, owner, 0, 63)    // after the lease is taken
//	changes := set.Change()
//	changes.Park(parking.Failure{Message: event, Kind: eventstore.Permanent, Err: err, Handler: "orders", At: now})
//	…                                                  // commit_batch(…, changes.Raises())
//	changes.Queue(batch)                               // in the transaction of the checkpoint
//	…
//	changes.Committed()
//
// # Guarantees
//
//   - A sequence is set aside, tried again, and released in the transaction of the checkpoint, or not at all.
//   - Whoever adds or removes a sequence raises the segment's parked_rev, so that nobody commits who does not know.
//   - A message is one letter for ever, however often it fails and is tried again: its first failure, its last one, and the
//     number of attempts.
//   - Looking whether a sequence is set aside asks no database.
//
// # Caveats
//
//   - A [Set] belongs to the goroutine of the owner. It is right as long as the owner can commit; the fence decides that.
//   - The texts of errors are stored as they are.
//
// # Errors
//
//	ErrNotOpen      the sequence has no open letter (any more): the set is old, take the lease again
//	all others      of the database, wrapped
package parking
