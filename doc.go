// Package daybook is the front page of Daybook: event sourcing and CQRS for Go on PostgreSQL. It holds no code.
//
// In bookkeeping a daybook is the book of first entry: everything is written there in order, nothing is torn out, and
// the ledgers are posted from it. Here one append-only log is the truth, and every table that people query is made from
// it.
//
//	command ──► aggregate ──► event store ──► projection ──► table
//	            decides       one append      one transaction   can be waited for by token
//	                              │
//	                              └────► outbox ──► relay ──► broker, which projections can follow too
//
// # Packages
//
//   - [github.com/daybook-go/daybook/eventstore]: events, streams, versions, positions, tokens, catalogs. No database.
//   - [github.com/daybook-go/daybook/eventstore/postgres]: the log on PostgreSQL 15 or later.
//   - [github.com/daybook-go/daybook/eventstore/memory]: the same behaviour in memory, for tests and examples.
//   - [github.com/daybook-go/daybook/aggregate]: state, decisions, commands over one or several aggregates.
//   - [github.com/daybook-go/daybook/snapshot]: cached states of long streams.
//   - [github.com/daybook-go/daybook/projection]: read models that follow the log, and waiting for them.
//   - [github.com/daybook-go/daybook/outbox]: publishing what was stored, to any broker, and following what is published.
//   - …test packages: aggregatetest, projectiontest, postgrestest and, for engines, eventstoretest and snapshottest.
//   - cmd/daybook: migrate, grants, status, epoch, check.
//
// A domain package needs eventstore and aggregate only, and compiles without a database driver.
//
// # Guarantees
//
//   - An append to one or several streams is stored whole or not at all, at the versions that were expected.
//   - Readers of the log see every event once, in order, whatever other transactions do meanwhile.
//   - What is stored never changes: the database refuses it.
//   - What is to be published is written by the append itself, and published in order per key, at least once.
//   - A projection's rows and its place in the log commit together, so every event takes effect once.
//   - A command returns a token; a read that is given it sees what the command wrote.
//
// The file docs/guarantees.md lists each with the tests that prove it, and docs/when-not.md says what Daybook is not for.
package daybook
