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
// once. Package aggregatetest tests decisions as given / when / then.
//
// # Guarantees
//
//   - A decision is stored only if nothing that it was made on has changed: the version of each aggregate that was read
//     is checked in the append, that of the aggregates which are only read by a [Work] included. Two decisions that
//     each read what the other writes cannot both succeed.
//   - The events of one Handle or Transact are stored whole or not at all.
//   - After a conflict everything is loaded and decided again, a bounded number of times. Nothing pending outlives a
//     run, so a failed command leaves nothing behind that a later one could see.
//   - The state after a command is folded from the stored form of its events: it equals what the next load finds. An
//     event that could be written but not read back is refused before it is stored.
//   - An append whose answer was lost is sent again under the same event ids; it is never stored twice.
//   - [Type] and [Repository] are safe for concurrent use. [Work] and [Member] are for one goroutine.
//
// # Caveats
//
//   - A decision may run more than once. It must not do anything but decide, and not change maps or slices of the
//     state; time, actor and random numbers are fields of the command. Evolve may change the state that it is given.
//   - Every retry loads from the start (or from the snapshot). Going on with the state of the failed run would save a
//     read but trust every decision never to have touched a map inside it.
//   - A decision without events is not checked: what it was made on may have changed meanwhile.
//   - An aggregate's stream is read whole for each command. Above some hundred events use snapshots; see
//     [WithSnapshots].
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
package aggregate
