// Package brokertest is a torture test for message brokers: relays, consumer and broker are killed again and again, and
// the read models must come out exact.
//
//	var clients = brokertest.Clients{Publisher: …, Subscriber: …, Witness: …}
//
//	func TestMain(m *testing.M) { brokertest.Main(m, clients) }
//
//	func TestTorture(t *testing.T) { brokertest.Torture(t, clients, brokertest.Serve(t)) }
//
// Relays, the consumer, and brokers that are written in Go run in processes of their own: this test binary, started
// again. They are ended by SIGKILL. Each ends by itself when the test's process has ended, however that came.
//
// # What is checked
//
//   - Two read models, one that falls back on the log (CatchUp) and one that has the outbox only, have applied every
//     event exactly once: the count of each stream is right.
//   - Each stream was applied in order: every event is the successor of the one before it. What is not is recorded.
//   - A plain subscriber of the broker has got every message: the broker lost nothing that it had confirmed. This is not
//     what the read models depend on.
//   - After the broker's last restart, the consumer gets its messages from the broker again, and not from the store only.
//
// It reports how long events took from their append until they were applied, and how often the broker repeated or
// shuffled.
//
// # Caveats
//
// It needs a unix-like system. That processes are killed does not prove what happens when a machine loses power: what
// the kernel had taken from a broker that was killed is still written.
//
// # Errors
//
// Every failure is one of the test, by Errorf or Fatalf. Output of processes is in files of the test's folder, and the
// end of each is logged when the test has failed.
package brokertest
