package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

var (
	// ErrNotFound: the view has no row for the key.
	ErrNotFound = errors.New("projection: no row for this key")
	// ErrInsideHandler: a handler waited for its own projection, which waits for the handler. Read your own writes
	// through the handler's transaction instead.
	ErrInsideHandler = errors.New("projection: a handler cannot wait for its own projection: read through its transaction")
)

// HandlerError names the event at which a projection failed, and why. It is the reason for which a projection stands
// still, as text in [StoppedError].Reason, in Health, in Lag and in the log. The payload is never part of its text. It
// unwraps its cause. Its fields are
//
//	Consumer string                   // the projection's name
//	Version  int                      // and version
//	Event    eventstore.RecordedEvent // the failing event, without its payload
//	Attempts int                      // how often it was tried
//	Err      error                    // why it failed the last time
type HandlerError = consumer.HandlerError

// ShutdownError names the projections whose handlers ignored the end of their context. What these do can no longer
// commit, and their leases are free. Its only field is
//
//	Consumers []string // names and versions
type ShutdownError = consumer.ShutdownError

// NotInstalledError says that a projection's tables or rows, or those of the store itself, are not there.
type NotInstalledError struct {
	Projection string
	Version    int
	// Missing says what was looked for.
	Missing string
}

// Error names the projection, what is missing and the remedy.
func (e *NotInstalledError) Error() string {
	if e.Missing == missingStore {
		return fmt.Sprintf("projection: %q version %d is not installed (%s): call postgres.Migrate or run `daybook migrate` first",
			e.Projection, e.Version, e.Missing)
	}
	return fmt.Sprintf("projection: %q version %d is not installed (%s): call projection.Install with a role that may create tables",
		e.Projection, e.Version, e.Missing)
}

// ShapeError says that a version is installed with other columns, or in another way, than the program has.
type ShapeError struct {
	Projection string
	Version    int
	Have, Want string
}

// Error names both shapes and the remedy.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("projection: %q version %d is installed as (%s), the program has (%s): raise Version, and call projection.Install",
		e.Projection, e.Version, e.Have, e.Want)
}

// StoppedError says that a projection does not move, so that waiting for it is in vain.
type StoppedError struct {
	Projection string
	Version    int
	State      string // "stopped" or "paused"
	Reason     string
	Since      time.Time
}

// Error names the projection, its state, since when, and why.
func (e *StoppedError) Error() string {
	text := fmt.Sprintf("projection: %q version %d is %s since %s", e.Projection, e.Version, e.State, e.Since.UTC().Format(time.RFC3339))
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// StaleError says that a projection had not reached a token when the context ended. It unwraps the context's error. The
// command that gave the token has succeeded nevertheless: read without waiting, or wait again, but do not repeat it.
type StaleError struct {
	Projection string
	Version    int
	// Want is the position waited for, Have the one reached when last seen.
	Want, Have eventstore.Position
	// Behind is the distance between them: at most so many events are missing.
	Behind int64
	// Idle: no process worked on the projection when it was last seen.
	Idle bool
	Err  error
}

// Error says how far behind the projection is, and that the write is stored.
func (e *StaleError) Error() string {
	hint := ""
	if e.Idle {
		hint = " (no process runs it: is Runner.Run running?)"
	}
	return fmt.Sprintf("projection: %q version %d is at position %s, at most %d events behind %s%s: the write is stored, but not yet visible here: %v",
		e.Projection, e.Version, e.Have, e.Behind, e.Want, hint, e.Err)
}

// Unwrap returns the context's error.
func (e *StaleError) Unwrap() error { return e.Err }

// missing reports whether PostgreSQL knows no such table or schema.
func missing(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
}
