// Package postgres keeps the log in PostgreSQL 15 or later. It is the engine that the rest of Daybook is built on.
//
//	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil { … } // or `daybook migrate`
//	store, err := postgres.New(ctx, pool, postgres.Config{})
//	defer store.Close()
//	go store.Run(ctx)
//
//	result, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, events...))
//
// # Guarantees
//
//   - Append is one transaction and one round trip. When it returns without an error the events are on disk.
//   - A row per stream is the arbiter of versions. It is locked before a position is drawn, so concurrent appends cannot
//     both succeed at one version, and an append that waits for a stream does not hold the head of the log back.
//   - A stream that is only checked is locked too: no write skew.
//   - Readers of the log stop at the safe head, below which nothing can appear any more, whatever other transactions do:
//     long ones, rolled back ones, prepared ones, other programs that insert by hand.
//   - Events cannot be updated or deleted, not even by hand: the database refuses.
//   - A command with a key takes effect once, over all processes, while its outcome is kept ([Config.KeepKeys]): outcome and
//     events are one transaction, and callers with one key follow each other. Requests are kept as keyed hashes only.
//   - Keys cost the log nothing: their rows are dropped a whole part at a time, and a look-up reads the same few pages
//     whatever the number of keys.
//   - A dump that is restored elsewhere is noticed; see [SetEpoch].
//
// # Caveats
//
//   - An append inside a transaction of the caller's ([Store.WithTx]) holds the head of the whole log from its first
//     position until the commit: append last. [Store.Blocker] and [Store.Health] name the holder.
//   - Readers need the primary. A standby has no locks of writers, and the store refuses it.
//   - The sequence log_position must never be restarted, and its cache must stay 1.
//   - An insert into events by hand must write the row in streams as well.
//   - Time is the database's, or [Config.Clock]'s; a clock that goes back lets keys stay longer, one that leaps ahead lets
//     the older half of them go early. Whoever reads the tables of outcomes for hours keeps old keys from going.
//   - f of [Store.WithStreamsLocked] holds a connection, and so does everybody who waits for its streams.
//   - A copy of a database has the secret of its original.
//   - Behind a pooler in transaction mode set [Config.TransactionPooler]; other processes' events are then seen by polling.
//
// # Errors
//
// Those of package eventstore, and:
//
//	error            meaning                                     the caller should
//	*SchemaError     the schema is older or newer than the code  run `daybook migrate`, or deploy newer code
//	ErrStandby       connected to a standby                      connect to the primary
//	ErrPooler        a pooler that was not announced             set Config.TransactionPooler, or connect directly
//	ErrNoRange       positions ran out of ranges                 call ensure_ranges; keep Store.Run running
package postgres
