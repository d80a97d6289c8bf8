// Package bus carries commands to their handlers: as Go values within a process, and as bytes from anywhere. A command
// type has a wire name and one handler; what all commands have in common is middleware around the handlers.
//
//	var WithdrawType = bus.TypeOf[account.Withdraw]("account.withdraw")
//
//	b := bus.New(bus.Config{},
//		bus.Log(logger), bus.Trace(begin), bus.Authorize(check), bus.Validate(), bus.Admit(gate),
//		bus.Retry(aggregate.Retry{}), bus.Idempotent(store))
//	bus.HandleAggregate(b, WithdrawType, accounts, func(c account.Withdraw) string { return c.Account }, account.Withdraw.Decide)
//
//	reply, err := b.Send(ctx, account.Withdraw{Account: "42", Cents: 40}, bus.WithKey(key))
//
// The examples of the package run. Use [HandleAggregate] where one aggregate decides, [HandleAddressed] when the command
// does not say which ([To] does), and [Handle] for anything else, such as an aggregate.Transact over several.
//
// A command may undo another one ([Undoes]), as those of sagas do: its handler finds the id in [CommandFrom], and uses it
// as its idempotency key towards others.
//
// # The order of middleware
//
// The first is the outermost. Each that is used belongs in this place:
//
//	Log         sees the end of every command, whatever stands behind it
//	Trace       the span covers what follows
//	Authorize   before anything that costs, or tells something
//	Validate    nothing that cannot be right waits for a place
//	Admit       what is sent away has taken no key; a retry keeps its place
//	Retry       outside of the key, so that an append without an answer may be tried again
//	Idempotent  what reaches it is carried out, refused or expired, and that is stored
//
// # Guarantees
//
// With the middleware in that order:
//
//   - A command that is not allowed, not valid, or sent away was not executed, and its key is free.
//   - A command takes effect once, however often and wherever it is sent under its key. Each time, the answer is the
//     first one; a repeat is marked. The same key with another request is an error.
//   - A command past its deadline does not begin. That is stored under its key, so that it never runs, not later and not
//     in a process whose clock is behind; if two come at once, one of which is late, either both get the answer of the
//     one that ran, or it takes no effect. A command that had an answer before its deadline keeps it.
//   - A panic of a handler, a middleware or a payload's own methods is a [*PanicError]. Its stack goes to
//     Config.Logger and nowhere else, and of its value no more than the type; the key stays free, unless the effect was
//     stored before; the bus goes on.
//   - A command reaches what it is addressed to, or is an error: an address that is not what its payload says, none where
//     one is needed, and one that cannot be an id.
//   - Sending a Go value and dispatching what [Bus.Prepare] made of it come to the same end.
//   - What a command appends carries its metadata, its id as the causation id, and its trace.
//   - Payload, key and scope are never logged, and neither is what was passed to panic, but for what the runtime says.
//   - Mistakes at set-up panic: two handlers for a name or a Go type, a nil handler, a payload of which the codec would
//     lose a part.
//   - [Bus] is safe for concurrent use, and starts no goroutine.
//
// # Caveats
//
//   - A handler may run more than once, and a key covers only what it appends through Repository.Handle or
//     aggregate.Transact under its own context, once. A letter that it sends besides may be sent twice. One that
//     succeeds without such an append gets a [*KeyUnusedError]; declare its type [WithoutKey] if that is meant.
//   - Without a key of its own, a command's key is its id. A sender that may have to repeat a command must name one of
//     the two; the bus makes a new id each time.
//   - What was asked is compared by type and data. A repeat in another form, JSON instead of msgpack, or encoded by code
//     with another field, is another request. Who repeats sends the stored bytes.
//   - The address is no part of that. A key that was used for one aggregate is another request for another, but a command
//     that expired under it is answered as expired, whomever it is addressed to.
//   - A deadline ends the handler's context, too; what a handler has begun may still be stored after it. Such a command
//     ends in an error of the context, and only a repeat tells its outcome.
//   - A command whose deadline passes before it reaches Idempotent, in a check or while it waits at the gate, ends with the
//     error of that place; then nothing is stored.
//   - That a command cannot be carried out here says nothing of its effect: it may have had one before, by another program
//     or under another rule. Who must know asks [Bus.End], which ends it if it had none.
//   - A command that has no handler or cannot be read reaches no middleware, so Log does not see it; its sender does.
//   - Repositories retry as well: Retry multiplies their attempts.
//   - What a command within a command appends is stored apart from it, under a key of its own. Derive that key from the
//     outer command's id ([CommandFrom]).
//   - Repeated, Refused and Code of a [Reply] are as complete as the handler tells, but for refusals that are stored under
//     a key, whose Code is that of aggregate.Refuses; Repeated and Refused of HandleAggregate are complete.
//
// # Errors
//
//	error                           meaning                                         the caller should
//	the domain's own                a rule refused the command                      answer the user
//	*aggregate.RefusedError         the same, when it is sent again                 the same; it matches the domain's error
//	*InvalidCommandError            it cannot be read or addressed, or is not valid correct it
//	*ForbiddenError                 its sender may not give it                      answer the user
//	*UnknownCommandError            it has no handler                               register one, or deploy the code
//	*ExpiredError, ErrExpired       it came too late, and never runs                decide anew, under a new key
//	*admission.OverloadedError      it was sent away, unexecuted                    come back after RetryAfter
//	*eventstore.ReusedKeyError      the key belongs to another request              give each request its own key
//	*eventstore.InProgressError     the same command is being executed              ask again in a moment
//	*aggregate.VersionError         the stream is not at the version asked for      look at it again
//	*PanicError                     a bug; the log has the stack                    mend the code
//	*KeyUnusedError                 a bug: its effects are not covered by the key   mend the handler
//	*NoOperationError               no such operation, or not this sender's         look for another one
//	eventstore.ErrUnconfirmed       it may or may not be stored                     send it again if it has a key
//	others                          those of package aggregate
//
// [StateOf] puts them into four words.
package bus
