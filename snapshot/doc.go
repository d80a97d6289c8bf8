// Package snapshot keeps the state of long streams, so that a command on a stream of ten thousand events reads the last
// hundred. A snapshot is a cache: it may be deleted at any time, and whatever is wrong with one costs a full replay
// and never a wrong state.
//
//	accounts := aggregate.NewRepository(store, account.Type,
//		aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(100)))
//
// # Guarantees
//
//   - A snapshot is taken after its events were committed, and never fails the command that caused it, nor makes it wait
//     for the database: the state is encoded with the command, and stored by a queue of the repository, which is bounded
//     in length and in time. What does not fit is dropped, told to the observer, and due again with the next command.
//   - With [Every](n), and when the queue is drained, a load folds fewer than n events, however long the stream is. What
//     it folds beyond that is told to the observer as overshoot.
//   - What goes wrong is logged as a warning with the aggregate, the version and, where it is known, the field: once by
//     each repository, until it works again, which is logged as well.
//   - A snapshot says which event was the last one in it, by version and by position. It is used only when the stream
//     has just that event at that version, so a snapshot of a state that was never committed, of a history that was
//     lost in a restore, or from the future of a replica is ignored.
//   - The newest [Policy].Keep snapshots stay. When one cannot be used, the one before it is tried, and then the events.
//   - A snapshot is used only by code whose state has the same shape; see [Fingerprint].
//   - A newer snapshot is never replaced by an older one.
//
// # Caveats
//
//   - Nothing can notice that Evolve means something else than before. Whoever changes what it does without changing
//     the state's fields raises [Policy].Revision; the old snapshots are then ignored. When it was a mistake that is
//     mended, aggregate.SnapshotKeeper rebuilds or drops what was taken.
//   - A snapshot holds what the codec stores. Two pointers to one value come back as two values, and what the tag "-"
//     or a method of its own leaves out is gone.
//   - A snapshot store must read the same events as the repository's store. A repository on a store that is bound to
//     a caller's transaction must not have aggregate.WithSnapshots: its own events are not visible from outside the
//     transaction, which snapshots would use beside the caller.
//   - Snapshots of earlier shapes and revisions stay until [Store].Delete, because releases run side by side.
//   - A program that ends loses what its queues hold, unless it waits for them; they are due again later.
//
// # Errors
//
// A [Store] returns whatever its engine reports; a repository logs it and replays the stream.
package snapshot
