// Package pgserver finds a PostgreSQL server for the programs and tests of
// this repository, and starts one of its own where none is named.
//
// A search is an ordered list of [Source] values. Each either gives a server or
// says why it has none; [Find] returns the first server together with the
// reasons of the sources before it:
//
//	found, err := pgserver.Find(ctx,
//		pgserver.FromEnv("DAYBOOK_TEST_DATABASE_URL"),
//		pgserver.Own(pgserver.Options{}))
//	if err != nil {
//		return err // a *NoServerError lists what was tried and what helps
//	}
//	defer found.Close()
//	fmt.Println(found) // "PostgreSQL: own server, …; not DAYBOOK_TEST_DATABASE_URL: not set"
//
// Programs that run for a user call [ForRun], which holds the whole order.
// Tests that kill the server and start it again call [Start].
//
// # Guarantees
//
//   - A server that already runs is never touched, unless its URL was given.
//   - Own servers listen on 127.0.0.1 only, on a free port, without a unix
//     socket, and ask for a random password. No text of this package contains
//     a password; only URLs do.
//   - A throw-away server ([Start], [Own]) and its data folder are gone soon
//     after [Server.Close] and also after the death of this process by whatever
//     signal: a detached watcher waits for the end of a pipe. Where the watcher
//     was ended too, the next start removes what is left.
//   - The kept server ([Kept]) is one per user. Commands share it through a
//     state file under a lock. It is detached and stays when the command ends;
//     [StopKept] stops it. Its data stays. It runs with fsync on.
//   - As root the server runs as user postgres, else nobody, with its data where
//     that user may go.
//
// # Caveats
//
// A throw-away server has fsync off unless [Options] asks for it: it survives
// the death of a process, not of the machine. Crash tests set Fsync.
// Own servers need a unix-like system; elsewhere a URL or a container is used.
//
// # Errors
//
//   - [*NoServerError]: no source has a server; its text names the remedies.
//   - [*NotHereError]: one source has none; the search goes on.
//   - any other error of a source ends the search, e.g. a URL that is set but
//     does not answer.
package pgserver
