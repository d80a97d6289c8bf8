// Package deadletter is for people who look after what failed: it lists the dead letters of all consumers of a store,
// the relay's and the inboxes' included, tries them again, discards them, and takes that back. The command
// `daybook deadletter` does the same from a terminal.
//
//	letters, err := deadletter.New(pool, deadletter.Config{})
//	groups, err := letters.Groups(ctx, deadletter.Filter{Consumer: "orders"})
//	plan, err := letters.Redrive(ctx, deadletter.OfGroup(groups[0].Fingerprint), deadletter.Options{
//		Actor: "ann", Reason: "fixed in 1.4.2", Rate: 50, Canary: 3,
//	})
//	…
//	plan, err = letters.Plan(ctx, plan.ID) // how far it is
//
// A message that fails becomes a letter, and its sequence, which is everything with its partition key, is set aside: what
// comes later of it is queued. A letter is retried in its own time, or parked until somebody acts. Nothing here applies a
// message. A plan is carried out by the process that owns the partition; a discard changes the rows under the lock of the
// segment, and the owner reads them anew before it can commit again.
//
// # Guarantees
//
//   - Order: of a sequence nothing takes effect before what was earlier, but for what was discarded. A plan has each
//     sequence once, in the order of the positions, and a sequence is in one running plan at most.
//   - No checkpoint is changed by anything here.
//   - A plan is frozen when it is made, and what it has done is committed with the effects: it goes on after any crash.
//   - Each change is guarded by the state that was read; of two people who do the same at once, one is refused.
//   - Who did what, when and why is kept, for ever, also when the letter is gone.
//   - Open letters are never removed. Closed ones are kept for Config.Retention.
//   - Reading is bounded: by an index, or by how much one page looks at, and by Config.Timeout.
//
// # Caveats
//
//   - A message that was discarded has no effect, and what was queued behind it is applied as if it had not been there.
//   - When a relay's letter is discarded, consumers with access to the store read the message from the outbox all the same,
//     and all others are told that it never comes. That cannot be taken back.
//   - [Letters.Undo] is for mistakes that are noticed soon: once something later of the sequence has taken effect, it is
//     refused.
//   - After an undo the owner takes its lease anew, which may need a third of the lease.
//   - [Letters.Show] returns payloads, which may be secret. Nothing else does, but the texts of errors are what handlers
//     wrote.
//   - Numbers of plans and of what is queued are of the moment.
//
// # Errors
//
//	ErrNotFound      no such letter or plan, or nothing open is selected
//	ErrRefused       against the order or the state by now; [RefusedError] says why and what to do; nothing was changed
//	ErrInvalid       (of eventstore) a field cannot be accepted; it names field, value and remedy
//	all others       of the database
package deadletter
