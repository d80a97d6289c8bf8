// Package aggregate decides and remembers: an aggregate is a state, a function that folds events into it, and decisions
// that turn a command into further events. There is no base type; state, events and commands are plain values, and
// everything in the domain can be tested by calling it.
//
//	type Account struct{ Balance int64 }
//
//	func (a Account) Evolve(e Event) Account { … }
//
//	func (c Withdraw) Decide(a Account) ([]Event, error) { … }
//
//	var Type = aggregate.Define("account", Account.Evolve, eventstore.NewCatalog(deposited, withdrawn))
//
//	accounts := aggregate.NewRepository(store, Type)
//	result, err := accounts.Handle(ctx, "42", Withdraw{Cents: 40}.Decide)
//
// The example of the package is a whole account. [Repository.Handle] lets one aggregate decide, [Transact] several at
// once. [WithIdempotencyKey] makes a command one that may be sent again, [IfVersion] one that means a version,
// [Unaffected] spares it being decided again, and [Exclusive] lets it decide while nobody else writes. Package
// aggregatetest tests decisions as given / when / then.
//
// # Guarantees
//
//   - A decision is stored only if nothing that it was made on has changed: the version of each aggregate that was read
//     is checked in the append, that of the aggregates which are only read by a [Work] included. Two decisions that
//     each read what the other writes cannot both succeed.
//   - The events of one Handle or Transact are stored whole or not at all.
//   - After a conflict what is missing is loaded and everything is decided again, a bounded number of times. Nothing
//     pending outlives a run, so a failed command leaves nothing behind that a later one could see. What came in between
//     may leave a decision right, by the type's own word ([Unaffected]); then its events are put behind, under the same
//     ids.
//   - A command with a key takes effect once, over all processes and for as long as the store keeps keys: its outcome is
//     stored with its events in one transaction, and found by every later call with the key, before and after each
//     decision, whatever the state and the rules are by then. Refusals are outcomes; faults of the store are none.
//   - Commands of one repository on one aggregate follow each other in the order in which they came. That saves work and
//     guards nothing: what has lasted a second no longer keeps the next one waiting.
//   - The last try locks the streams before it loads, if the store can, so commands of other processes cannot starve it.
//   - The state after a command is folded from the stored form of its events: it equals what the next load finds. An
//     event that could be written but not read back is refused before it is stored.
//   - An append whose answer was lost is sent again under the same event ids; it is never stored twice.
//   - [Type] and [Repository] are safe for concurrent use. [Work] and [Member] are for one goroutine.
//
// # Caveats
//
//   - A decision may run more than once. It must not do anything but decide, and not change maps or slices of the
//     state; time, actor and random numbers are fields of the command. Evolve may change the state that it is given.
//   - What a retry goes on from was set aside before a decision had the state in its hands. A state that cannot be set
//     aside, since no codec is sure to bring back all of it, is loaded anew.
//   - A wrong [Unaffected] breaks a rule of the domain without an error. Test it as the property test of this package
//     does.
//   - A key covers what is in the store. A decision with effects elsewhere, which it must not have, has them again.
//   - While a command decides, no lock is held: two processes may decide the same command, and one finds the other's
//     outcome. [TellIfRunning] is a courtesy.
//   - A command from within a decision on the same aggregate waits a second for its lane, and under [Exclusive] until
//     its context ends.
//   - A store that is bound to a caller's transaction keeps no keys and locks no streams.
//   - A decision without events is not checked: what it was made on may have changed meanwhile.
//   - An aggregate's stream is read whole for each command. Above some hundred events use snapshots; see
//     [WithSnapshots]. Where the same aggregates are commanded again and again, [WithCache] spares that too.
//   - Metadata comes from the context alone; see [eventstore.WithMetadata].
//
// # Errors
//
//	error                           meaning                                    the caller should
//	the domain's own                the decision refused                       answer the user
//	*eventstore.ConflictError       others were faster, all retries used up    report busy, or try later
//	eventstore.ErrBusy              the database was busy throughout           the same
//	*ExistsError                    Create found events                        treat it as a rule of the domain
//	eventstore.ErrUnconfirmed       no answer, also when sent again            look at the stream before trying again
//	*eventstore.InvalidError        an id or event that cannot be stored       correct the field it names
//	*eventstore.UnknownTypeError    the stream has an event this code lacks    deploy the code that knows it
//	*eventstore.DecodeError         an event that this code cannot read        mend the code
//	ErrMisuse                       a Work was used wrongly                    mend the code
//	*VersionError                   IfVersion does not hold                    show the caller what changed
//	*RefusedError                   a repeat of a command that was refused     answer as the first time
//	*ExpiredError                   the command ended unexecuted               send a new one, if it is still wanted
//	*eventstore.ReusedKeyError      the key is that of another request         give each request a key of its own
//	*eventstore.InProgressError     TellIfRunning: it is being executed        ask again in a moment
//	eventstore.ErrStreamClosed      the aggregate takes no more events         treat it as a rule of the domain
package aggregate
