// Package outbox publishes what a store has committed, and lets consumers follow it so that they can prove that they
// missed nothing. Events are written to the outbox by the append itself, where a route says so; what is no event by
// [Enqueue], in the transaction of the caller. Broker clients are those of Watermill.
//
//	store, err := postgres.New(ctx, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "ledger"}}})
//
//	relay, err := outbox.NewRelay(pool, store.Outbox(), publisher, outbox.Config{}) // in every process, or one of its own
//	err = relay.Run(ctx)
//
//	stream, err := outbox.NewSubscription(store.Outbox(), subscriber, outbox.SubscriptionConfig{Topic: "ledger", Group: "search"})
//	runner, err := projection.NewRunner(pool, stream, projection.Config{}, Balances) // instead of store.Log()
//
// # Guarantees
//
//   - Atomicity: a message is published if and only if the transaction that wrote it has committed.
//   - Delivery is at least once; the effect in PostgreSQL is once.
//   - Order: messages of one partition and topic are published in the order of the log, never two of a partition at once,
//     and one that the broker refused before those that follow it. A stream, and all streams of one partition key, are in
//     one partition.
//   - A message that the broker refuses for its own sake holds nobody but its own topic and partition key: these are set aside,
//     tried again, and published in order, in the transaction of the cursor. A broker that is away uses up nobody's attempts.
//   - Whoever publishes a message again, publishes the same: id, headers, partition key and bytes.
//   - Each message carries its position and that of the message before it in its partition on its topic. Whatever a broker
//     loses, repeats or shuffles shows in them, and a [Subscription] reads what is missing from the outbox. Head messages,
//     which have no payload, say how far a partition is complete when nothing was published on it.
//   - Relays share the partitions, in four ranges. Of each range one relay publishes at a time, by a lease; one that was
//     replaced cannot move its cursor, and publishes no further page.
//   - No transaction is open while a broker is spoken to.
//   - A message is removed when it is sent and every subscriber of its topic has passed it; when nobody follows, after an
//     hour, or after Config.Retention if that is shorter. A subscriber that stays behind for longer than Config.Retention
//     is declared lost by name, and holds nothing back any more, unless it comes up again.
//     Where no relay has ever run, nothing is removed but what a dispatcher of package commands has carried out.
//
// # Caveats
//
//   - Nothing can stop a frozen relay from publishing what it had in hand. The chain makes it harmless for a
//     [Subscription], which drops it; a plain subscriber may see an old message late.
//   - A message is taken for sent when Publish returns nil, which means only as much as the publisher makes it mean.
//     What a broker loses after that is filled in by a [Subscription], which has the store; anybody else never gets it.
//     For those, let the publisher confirm. As of Watermill 1.5: the Kafka publisher waits for the broker, and keeps what
//     it confirmed through the loss of a broker with Producer.RequiredAcks = sarama.WaitForAll (its default waits for
//     one); AMQP with Publish.ConfirmDelivery, which is off by default; NATS with JetStream, core NATS never; the Go
//     channel with BlockPublishUntilSubscriberAck, otherwise also its order is not kept. A subscriber that does not
//     acknowledge then holds the relay: a slow handler of [Live] on the same channel stops publishing.
//   - A broker must keep each partition in order for its consumers to need no filling in: give [PartitionKey] to its
//     marshaler, and with Kafka set Producer.Idempotent, so that its own retries do not overtake each other, and
//     Net.MaxOpenRequests = 1, which that asks for.
//   - An event that is published on two topics has one UUID. A broker that removes repeats by it (NATS with TrackMsgId)
//     must not keep both topics in one stream.
//   - What was set aside comes later than in its place. A [Subscription] does not wait for it: it reads it from the outbox. A
//     plain subscriber gets it marked with [HeaderRedriven], behind messages of other keys with higher positions, and gets
//     nothing of what an operator has discarded. Without Config.Classify a message that is refused twice, with something
//     harmless taken in between, is set aside: a broker that comes and goes may cause it, and the retry mends it.
//   - A publisher that never returns stops the publishing, which Health says after five seconds, and keeps Run from ending
//     in order: give it a time-out of its own, or let it watch msg.Context(), which ends with the relay.
//   - A transaction that writes only a message tells nobody: it is published when the relay looks next, within a second.
//     Call Wake of the store after the commit, and it is at once.
//   - Routes added later affect new appends only. Head messages are sent for topics that a [Subscription] follows, also
//     for one that is no longer written.
//   - [Live] has no store behind it, and is lossy on purpose.
//
// # Errors
//
//	error                     meaning                                           the caller should
//	*PublishError             the broker did not take a message: in Health,     mend the broker; the relay tries without end
//	                          and told to observers
//	*NotInstalledError        tables of the outbox are missing                  migrate the store
//	*ShutdownError            a publisher did not return in time                give it a time-out
//	*LostError                a consumer was behind for too long                install a new version; see its text
//	*HeaderError              a message is not a relay's, or was changed        give other publishers another topic
//	ErrSubscriberClosed       the subscriber of Live was closed                 subscribe again
//	*eventstore.HistoryError  the log is not the one that was published         read its Remedy: in Health
//	*eventstore.InvalidError  a message or query cannot be accepted             correct the field that it names
package outbox
