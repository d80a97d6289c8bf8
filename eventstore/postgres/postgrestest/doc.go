// Package postgrestest gives each test a PostgreSQL database of its own, ready
// for a Daybook store. It is for the tests of programs that use Daybook, and for
// Daybook's own.
//
//	func TestTransfer(t *testing.T) {
//		t.Parallel()
//		pool := postgrestest.New(t)
//		store, err := postgres.New(t.Context(), pool, postgres.Config{})
//		// …
//	}
//
// The server is looked for once per test process, in this order:
//
//  1. the one that DAYBOOK_TEST_DATABASE_URL names, as a role that may create
//     databases; set but unreachable is an error
//  2. installed binaries of version 15 or newer: a throw-away server on
//     127.0.0.1; as root it runs as user postgres or nobody
//  3. a container engine that answers within 3 seconds, by testcontainers
//
// With none of them the test fails and says what helps. Nothing is ever skipped.
// DAYBOOK_DATABASE_URL is never looked at, and a server that merely runs is
// never touched.
//
// # Guarantees
//
//   - Every call gives another database. Tests may run in parallel, in any
//     number of processes on one server.
//   - The migrations run once per server, release and schema: New copies a
//     template database (about 40 ms). The copy has an epoch of its own.
//   - At cleanup the pool is closed and the database dropped, with everything
//     that still uses it. A connection that the test did not give back within
//     ten seconds is an error of the test.
//   - A throw-away server and its data are gone when the test process has ended,
//     also when it was killed.
//
// # Caveats
//
// The throw-away server has fsync off: it is for tests of programs, not of power
// failures. Templates stay on a server of your own, one per release and schema,
// named daybook_template_…; databases of killed tests, named daybook_test_…, are
// dropped by a later test process when they are a day old. The URL of a database
// contains its password.
//
// # Errors
//
// Every failure ends the test by Fatal, with a text that names the remedy.
package postgrestest
