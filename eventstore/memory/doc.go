// Package memory keeps a log in memory, for tests, examples and programs that need nothing to outlive them. It gives
// what the interfaces of package eventstore promise and is held to the suite that the PostgreSQL engine passes, so a
// test that runs on it tells the truth.
//
//	store := memory.New(memory.Config{})
//	result, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, data))
//
// # Guarantees
//
//   - One mutex makes each append atomic and orders all of them; a read sees a prefix of that order.
//   - Events are copied on the way in and on the way out: nobody can change what is stored.
//   - No lock is held while a reader's loop body runs, so it may append to the store that it reads.
//   - Outcomes of commands with a key are kept for Config.KeepKeys; then they go, without a goroutine, with the next call.
//
// # Caveats
//
//   - Nothing is kept on disk and nothing is ever removed: memory grows with the log.
//   - Positions have holes on purpose, as they have in PostgreSQL after a rollback. Code that counts on neighbours
//     fails here first.
//
// # Errors
//
// The table of package eventstore applies. This engine never gives ErrUnconfirmed, and ErrBusy only to an append inside
// WithStreamsLocked of streams or a key that were not named to it.
package memory
