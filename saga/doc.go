// Package saga lets what several aggregates do together always come to an end: completed, compensated, or stuck with a
// sentence that says where and why. A saga follows events, sends commands, and remembers how far it is.
//
//	var Definition = saga.Define(saga.Process[State]{
//		Name: "checkout", Version: 1, Events: events,
//		Start: saga.StartOn(begin),
//		Steps: []saga.Step[State]{
//			{
//				Name: "take-payment", Send: saga.Send(State.pay), Undo: saga.Send(State.refund),
//				Succeeded: []saga.Answer[State]{saga.On(State.paid)},
//				Refused:   []saga.Answer[State]{saga.On(State.declined)},
//				Deadline:  15 * time.Minute,
//			},
//			{Name: "hand-over", Send: saga.Send(State.handOver), Pivot: true},
//		},
//		Completed: saga.Send(State.confirm), Compensated: saga.Send(State.cancel),
//	})
//
//	err := saga.Install(ctx, pool, checkout.Definition)                                   // where you migrate
//	sender := commands.ForSagas(b, store.Outbox())                                        // b is the program's bus
//	manager, err := saga.NewManager(pool, store.Log(), sender, saga.Config{}, checkout.Definition) // in every process
//	err = manager.Run(ctx)
//	why, err := saga.Explain(ctx, pool, "checkout", "812")
//
// There are four kinds of definitions. A [Process] is a list of steps with what undoes them. A [Flow] is the layer below, for
// what is not a list: pure reactions that record what is to be sent; both run on the same recorder of effects. [After] is a
// delayed command, which can be cancelled. [NewReactor] is choreography: event in, commands out, and nothing remembered. Package
// sagatest tests all of them without a database.
//
// # Guarantees
//
//   - Atomicity: the state, the history, the commands that are sent, the timers and the place in the log commit together. A
//     command leaves if and only if the reaction that wants it is committed.
//   - Once: an event takes effect once in an instance, however often it is delivered and whoever crashes. The same event never
//     begins a second run.
//   - One instance of a key is under way. What begins it meanwhile is noted; after its end another run begins, with a state of its
//     own, and the history of the one before stays.
//   - Order: the events of one partition key reach an instance in the order of the log, one reaction at a time.
//   - Ids by intent: the id of a command derives from saga, key, run, step, direction and intent. What is sent again are the
//     stored bytes under the same id, so a receiver that keeps outcomes by id never does it twice. The intent rises only when the
//     one before is definitely not done, or was undone.
//   - Compensation: in reverse of the order in which steps were done, one at a time, each after the one before is confirmed. A
//     step whose outcome is unknown is undone too.
//   - Late answers: the success of a step that was given up is taken into the state, and the step is undone once more, also after
//     the end.
//   - A command whose step is over is not carried out any more, nor when it is redriven from a dead letter: dispatchers ask.
//   - An instance keeps the version of the definition that it began with. Where no program has it, what comes for it waits.
//   - Events are taken by programs that have the newest version that was installed or has run. Others stand by, also when none
//     of those runs: then events wait, health says so, and after a rollback [Operator.Withdraw] lets the older ones go on.
//   - Nothing is replayed: resetting a consumer sends nothing again.
//
// # What receivers owe
//
// A handler on a bus with Idempotent keeps all of this by itself, for what it appends. For effects outside it passes on the id of
// the command as the key of the provider. The handler of an undo finds the id that it undoes in bus.CommandFrom(ctx).Undoes,
// and uses that as its key, so that several undos of one command have one effect; it must be right when nothing was done. By the
// time it runs, the command that it undoes can no longer take effect in the store.
//
// The store may forget keys (postgres.Config.KeepKeys) before a saga ends, and deadlines and delays may be longer: dispatchers ask
// the saga's rows, which hold the ends of its commands until Config.KeepEnded after its own, and carry out nothing that has an
// end there, is closed, or has no row. What is left is a command that took effect and whose end was not told yet, because the
// dispatcher died in between or no manager took the end: should it come again when its key is forgotten, it takes effect twice.
// Let KeepKeys be longer than all dispatchers, or all managers, may be away; a manager cannot see it, and does not check it.
// Receivers elsewhere keep outcomes by the command's id for as long as a step may send again.
//
// # Caveats
//
//   - Functions of a definition are pure: they run again when a transaction is repeated, and must not look at clocks or the
//     world. Effects.Now is the time of a reaction. Package sagatest finds most of what is not.
//   - A deadline means that the outcome is unknown, not that nothing happened.
//   - An answer by key ([OnKey]) does not say which attempt it answers, and is taken for the last one.
//   - An answer by key to an instance that has not begun yet is lost, also when what begins it was set aside as a letter and is
//     taken later: answer it by hand then (Operator.Answer, or `daybook saga answer`). Over a broker, moreover, events of several
//     partition keys may pass each other. What is in the log before the event that began a run, or was seen by an earlier run
//     of its key, is no answer by key to it.
//   - What only a new version reads is lost where it is appended before that version is installed or runs. [After] and
//     [NewReactor] have no versions: let one that reads other types run everywhere before anything appends them. An instance
//     that has kept an event that its version does not read passes it by.
//   - Raise Version when steps are added, removed, renamed or moved, or when answers change. Functions may be corrected in place.
//   - Members of a group that are being undone in order to be tried again, when the saga turns around, are undone side by side.
//   - The pivot without an Undo whose command was given up leaves the instance stuck: people must find out what became of it,
//     unless one of its answers comes after all, which decides.
//   - A success of an attempt that another has replaced is undone by one command, which is tried as often as the dispatcher tries
//     it, and then is a dead letter.
//   - State and steps are written whole at each reaction; keep the state small, and ids in it instead of documents.
//
// # Errors
//
//	error                          meaning                                                the caller should
//	*DefinitionError               a fault of a definition, joined with the others        change the program
//	*ActionError                   an operator's action does not fit the instance         look at Explain, act otherwise
//	*NotInstalledError             tables or registration are missing                     call Install, or migrate the store
//	ErrNoInstance, ErrNoPlan       there is no such instance, or plan                      look for another one
//	ErrOperatorRefused             what was asked for is against the state by now         look again
//	*eventstore.InvalidError       a key that cannot be stored                            let keys be ids
//	*eventstore.HistoryError       the log is not the one that was read: in Health        read its Remedy
package saga
