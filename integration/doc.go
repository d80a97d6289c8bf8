// Package integration is the module of Daybook's tests with real message brokers. It is a module of its own, so that
// who uses Daybook does not depend on the clients of six brokers.
//
// Each folder is a broker: how it is set up with Daybook, a classifier of its errors for [outbox.Config], and a test in
// which everything that can be killed is killed:
//
//	jetstream    NATS JetStream, also as three nodes of which one is lost
//	rabbitmq     RabbitMQ with quorum queues
//	kafka        the Kafka protocol, spoken by a fake
//	redisstream  Redis streams
//	sqlqueue     tables of another PostgreSQL, by watermill-sql
//	gochannel    Watermill's channel within one process
//
// Package brokertest is what they have in common. docs/brokers.md says what each broker can and cannot promise.
//
//	go run ./cmd/dev integration           a tenth of the size
//	FULL=1 go run ./cmd/dev integration    all of it
//
// [outbox.Config]: https://pkg.go.dev/github.com/daybook-go/daybook/outbox#Config
package integration
