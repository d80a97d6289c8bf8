// Package eventstore has the words of the log: events, streams, versions, positions, tokens, and the [Store] that
// keeps them. It knows no database. Engines are in packages of their own: memory for tests and examples, postgres for
// the real thing; eventstoretest is the suite that holds both to the same behaviour.
//
//	deposited := eventstore.TypeOf[Deposited]("account.deposited")
//	catalog := eventstore.NewCatalog(deposited)
//
//	data, err := catalog.Encode(Deposited{Cents: 100})
//	result, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, data))
//	for event, err := range store.ReadStream(ctx, stream, eventstore.Range{}) { … }
//
// # Guarantees
//
//   - An append is stored whole or not at all, over all its streams.
//   - Versions of a stream start at 1 and have no gaps. Positions of a stream rise with its versions.
//   - A reader of the log never sees an event appear at or below a position that it has passed.
//   - What is stored never changes.
//
// # Caveats
//
//   - Positions of two concurrent appends interleave, so the events of one append need not be neighbours in the log.
//   - RecordedAt is for people. Two appends may carry times in the opposite order of their positions.
//   - Metadata is readable by everybody who can read the log.
//
// # Errors
//
//	error                       meaning                                      the caller should
//	*ConflictError              a stream moved on                            load and decide again
//	*ClosedError                the stream takes no more events              treat it as a rule of the domain
//	*InvalidError               input that cannot be stored                  correct the field it names
//	*UnknownTypeError           a wire name in no catalog                    deploy the code that knows it; never skip
//	*DecodeError                a payload today's code cannot read           stop or set aside; mend the code
//	*HistoryError               another history, or lost commits             stop and follow the remedy
//	ErrBusy                     lock time-out, deadlock, serialization       run the transaction again
//	ErrUnconfirmed              connection lost during commit                send the same ids again, or look first
//	ErrReusedID                 same event ids, other content                mend the caller
//	*ReusedKeyError             same key, another request                    give each request a key of its own
//	*InProgressError            the command with the key is running          ask again in a moment
package eventstore
