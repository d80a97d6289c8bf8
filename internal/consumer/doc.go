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
//   - No event is passed by: a failing event is applied by itself until it succeeds or the consumer stops just before it.
//   - A database that is away is waited for without end, and uses up nobody's attempts.
//   - When Run returns nil, every commit is decided and no goroutine is left.
//
// # Caveats
//
//   - A batch may run several times before it commits, so an [Applier] must touch nothing outside the transaction.
//   - A transaction that rests longer than the lease is ended by the server.
package consumer
