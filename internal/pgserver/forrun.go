package pgserver

import (
	"context"
	"fmt"
	"io"
	"os"
)

// The environment variables that name a server. Tests never look at RunVariable:
// it may name a database that somebody needs.
const (
	RunVariable  = "DAYBOOK_DATABASE_URL"
	TestVariable = "DAYBOOK_TEST_DATABASE_URL"
)

// AnnouncedVariable is set to 1 for a program whose caller has found the server
// and said so: it does not print a line of its own.
const AnnouncedVariable = "DAYBOOK_SERVER_ANNOUNCED"

// RunSources is where programs look for a server: the URL in
// DAYBOOK_DATABASE_URL, the user's kept server, a container that is kept.
func RunSources() []Source {
	return []Source{FromEnv(RunVariable), Kept(KeptOptions{}), KeptContainer(KeptOptions{})}
}

// ForRun finds the database of a program that runs for a user: the one that
// DAYBOOK_DATABASE_URL names, else the database "daybook" of the kept server,
// which is started where needed and stays, else a kept container. It prints one
// line to out that says which was taken and why the earlier ones were not.
//
// The URL contains the password: do not print it. Call release when the program
// is done; it never stops a kept server, so that the next command finds its data.
// A *NoServerError names the remedies; the caller prints it and exits with 1.
func ForRun(ctx context.Context, out io.Writer) (url string, release func(), err error) {
	found, err := Find(ctx, RunSources()...)
	if err != nil {
		return "", nil, err
	}
	if os.Getenv(AnnouncedVariable) != "1" {
		fmt.Fprintln(out, found)
	}
	// Nothing of a kept server is released, so nothing can fail.
	return found.URL(), func() { _ = found.Close() }, nil
}
