// Package inbox is for services that follow what another one publishes, and have access to the broker only, not to the
// store. Each message of the topic takes effect once, in order per partition key, whatever the broker repeats, shuffles,
// or brings late; and what it loses is noticed.
//
//	err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}) // in the service's own database
//
//	in, err := inbox.New(pool, subscriber, inbox.Config{Name: "stock", Topic: "orders"},
//		func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
//			_, err := tx.Exec(ctx, "UPDATE …", …) // commits together with the inbox's mark
//			return err
//		})
//	err = in.Run(ctx) // in any number of processes: one works, the others stand by
//
// An inbox is a consumer like a projection: its lease, its place, what failed and what waits are in the tables of Daybook,
// in a schema of the service's own, whose log may stay unused. Dead letters are looked after with package deadletter and
// `daybook deadletter`. examples/inbox is a service to copy.
//
// Each message says which one comes before it in its partition. One that is here already is dropped; the next one is
// applied; one that is early waits, in memory for Config.HoldFor and then in the table held, and the partition's later ones
// with it, until what is missing has come. After Config.GapAfter the inbox raises the alarm: nobody but the broker or the
// publisher can bring what is missing, and [AcceptGap] is for when they cannot. Other partitions go on.
//
// With [Latest] there is no order to keep: messages carry the whole state of what they are about, and the highest version
// counts.
//
// # Guarantees
//
//   - Once: what the handler writes through its transaction commits with the inbox's mark, or not at all. A message is
//     acknowledged after that. A process that was replaced cannot commit.
//   - Order: messages of one partition key take effect in the order of the publisher's log. None does while an earlier one
//     has not, unless an operator has discarded that one or accepted a gap.
//   - A message that fails sets its partition key aside, and no other: see package projection.
//   - What the publisher's relay has set aside holds its partition key, and no other, until it comes or is discarded there.
//   - What cannot be read, or is not of a relay, is kept as a letter of its own with its bytes and headers, and holds nobody.
//   - Memory is bounded by Config.BatchSize, Config.HoldAtMost and the number of partition keys that are set aside, however
//     much comes early. One process subscribes at a time, and only while it works.
//   - A message of an epoch that was known before is dropped; one of an unknown epoch stops the inbox, with instructions.
//   - A broker or a database that is away is waited for, and uses up nobody's attempts.
//
// # Caveats
//
//   - A handler runs again when its transaction is repeated: what it does outside of that transaction may happen twice.
//   - What is lost shows in what comes after it in its partition. If nothing comes any more, it does not show, unless heads
//     are published; see package outbox.
//   - A broker keeps what nobody has subscribed to only if it is set up to: give the inbox a durable queue, consumer or
//     group of its own, and let its processes share it. An inbox that was away for longer than the broker keeps messages has
//     a gap that nobody fills: fill its tables by other means and call [Rebase].
//   - Subscribers hand over one message of a subscription at a time, and wait for its acknowledgement, which comes after the
//     commit. Config.Subscriptions, or a subscriber with several partitions of the broker, make larger transactions.
//   - A message that is stored because of a gap is acknowledged: back up the service's database like any other truth.
//   - Whoever may publish on the topic can change what the service believes: grant that to the relay alone.
//   - The number of partitions is the publishing store's, and never changes. It is not in the messages: set Config.Partitions
//     when it is not 64.
//   - Positions are those of the publishing store. They mean nothing in the service's own log.
//
// # Errors
//
//	error                     meaning                                        the caller should
//	*NotInstalledError        the tables are not there, or old               migrate the service's own database
//	*ShapeError               the inbox had another configuration            give that back, or raise Config.Version
//	*ShutdownError            a handler ignores the end of its context       let it watch ctx
//	*GapError                 something has been missing for too long:       publish it again, or AcceptGap
//	                          in Health, and told to observers
//	*UnreadableError          a message became a letter of its own: told     find out who publishes it; deploy what can read it
//	                          to observers, and in the letter
//	*eventstore.HistoryError  a message is of another history: in Health     read its Remedy
//	ErrNoGap                  there is no gap to accept                      look at Health and Lag
package inbox
