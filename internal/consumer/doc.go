// Package consumer reads a log once per consumer and applies it exactly once: the effects of a batch and the consumer's
// place in the log commit in one transaction. Projections, and whatever else follows the log, are built on it.
//
//	worker := consumer.New(spec, source, consumer.Config{})
//	err := consumer.Run(ctx, pool, worker) // until ctx ends
//
// # Guarantees
//
//   - Order: events are applied in the order of their positions, one batch after the other, by one worker at a time.
//   - Once: a batch commits with the move of the floor, or not at all. A worker that lost its lease, or that stood
//     still while another took over, cannot commit: commit_batch raises in the round trip of the COMMIT.
//   - No event is passed by unseen: one that fails is set aside with its whole sequence (the events with its partition
//     key), in the transaction of the checkpoint. What comes later of the sequence waits behind it, and is applied in
//     order once it has taken effect or an operator has discarded it. With StopConsumer the consumer stops just before it.
//   - Other keys never wait for a sequence that is set aside: between two batches its owner does one step, or what takes
//     10 ms of them.
//   - What is away, be it the database or what Config.Classify says is, is waited for without end and uses up nobody's
//     attempts. Afterwards one event alone finds out whether it is back.
//   - With Config.Timeout no handler holds its segment: one that ignores the end of its context is left, with its transaction,
//     which cannot commit. Its event is found, set aside, and not tried again by this process while the handler still runs.
//   - Only the worker's own context means shutdown. A handler's is a failure like any other.
//   - When Run returns nil, every commit is decided and no goroutine is left.
//
// # Caveats
//
//   - A batch may run several times before it commits, so an [Applier] must touch nothing outside the transaction.
//   - Behind a failure events are applied one by one, each in a savepoint, for a while: two round trips more for each.
//   - Where events of one batch hang everything waits twice for Config.Timeout, and two goroutines stay until they end. Beyond
//     64 in a process the consumer that adds to them stops.
//   - Without Config.Timeout an Applier that hangs holds its segment.
//   - A consumer whose source is not the whole log keeps the messages that are queued, with their bytes, in the store.
//   - A transaction that rests longer than the lease is ended by the server.
package consumer
