package pgserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Source is one place where a server may be found.
type Source struct {
	// Name is how the source is called in printed lines.
	Name string
	// Open gives a server. A *NotHereError lets the search go on with the next
	// source, every other error ends it.
	Open func(ctx context.Context) (Handle, error)
}

// Handle is the server that a source gives.
type Handle struct {
	// URL is the connection URL, password included.
	URL string
	// Detail says what was taken, for people, without the password.
	Detail string
	// Close gives the server back; nil means there is nothing to do.
	Close func() error
}

// NotHereError says why a source has no server.
type NotHereError struct{ Reason string }

// Error returns the reason.
func (e *NotHereError) Error() string { return e.Reason }

func notHere(format string, args ...any) error {
	return &NotHereError{Reason: fmt.Sprintf(format, args...)}
}

// Refusal is a source that had no server, and its reason.
type Refusal struct{ Source, Reason string }

// Found is the outcome of a search. It is safe for concurrent use, except Close.
type Found struct {
	// Source is the name of the source that was taken.
	Source string
	// Refused lists the sources before it, in order.
	Refused []Refusal

	handle Handle
}

// URL returns the connection URL, password included.
func (f *Found) URL() string { return f.handle.URL }

// String is one line for printing: what was taken, and why the earlier sources
// were not. It contains no password.
func (f *Found) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "PostgreSQL: %s, %s", f.Source, f.handle.Detail)
	for _, r := range f.Refused {
		fmt.Fprintf(&b, "; not %s: %s", r.Source, r.Reason)
	}
	return b.String()
}

// Close gives the server back. A second call does nothing.
func (f *Found) Close() error {
	closer := f.handle.Close
	f.handle.Close = nil
	if closer == nil {
		return nil
	}
	return closer()
}

// NoServerError says that no source has a server, with the reason of each and
// the remedies.
type NoServerError struct{ Refused []Refusal }

// Error is a text of several lines, ready for printing.
func (e *NoServerError) Error() string {
	var b strings.Builder
	b.WriteString("pgserver: no PostgreSQL server was found")
	variable := "DAYBOOK_DATABASE_URL"
	for _, r := range e.Refused {
		fmt.Fprintf(&b, "\n  %s: %s", r.Source, r.Reason)
		if strings.HasPrefix(r.Source, "DAYBOOK_") {
			variable = r.Source
		}
	}
	role, database := "a role that may create schemas", "daybook"
	if variable == TestVariable { // each test gets a database of its own
		role, database = "a role that may create databases", "postgres"
	}
	fmt.Fprintf(&b, `
Any one of these helps:
  - install PostgreSQL %d or newer; its binaries are enough, no server needs to run:
      Debian, Ubuntu  apt-get install postgresql
      Fedora          dnf install postgresql-server
      Alpine          apk add postgresql
      macOS           brew install postgresql@17
  - start a container engine (Docker or Podman)
  - set %s to a server that may be used, as %s:
      %s=postgres://user:password@127.0.0.1:5432/%s`, minMajor, variable, role, variable, database)
	return b.String()
}

// Find asks the sources in order and returns the first server. It returns a
// *NoServerError when none has one.
func Find(ctx context.Context, sources ...Source) (*Found, error) {
	var refused []Refusal
	for _, s := range sources {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("pgserver: find: %w", err)
		}
		h, err := s.Open(ctx)
		if err == nil {
			return &Found{Source: s.Name, Refused: refused, handle: h}, nil
		}
		var no *NotHereError
		if !errors.As(err, &no) {
			return nil, fmt.Errorf("pgserver: %s: %w", s.Name, err)
		}
		refused = append(refused, Refusal{Source: s.Name, Reason: no.Reason})
	}
	return nil, &NoServerError{Refused: refused}
}
