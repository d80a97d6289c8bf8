package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
)

// ErrStandby: the server is a standby. It has no locks of writers, so the head of the log cannot be known there and a
// reader would lose events. Connect to the primary.
var ErrStandby = errors.New("postgres: the server is a standby: connect to the primary")

// ErrPooler: the connection goes through a pooler. Set [Config.TransactionPooler], or connect directly.
var ErrPooler = errors.New("postgres: the connection goes through a pooler: set Config.TransactionPooler, or connect directly")

// ErrNoRange: the log has come to a position that no range of the tables holds, and Append could not add one. Nothing
// was written. Call the function ensure_ranges of the store's schema, and keep [Store.Run] running, which does so in
// time. In a transaction of the caller's ([Store.WithTx]) it only means: run the transaction again.
var ErrNoRange = errors.New("postgres: no range for the next position: run ensure_ranges")

// SchemaError: the schema is older than this release needs (or newer than it knows). Run `daybook migrate`. Have is 0 when
// there is no store at all, which may also mean the wrong database.
type SchemaError struct {
	Schema     string
	Have, Want int
}

// Error names both versions and the command that helps.
func (e *SchemaError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("postgres: no Daybook store in schema %q of this database: run `daybook migrate` or call postgres.Migrate, or check the URL", e.Schema)
	}
	if e.Have > e.Want {
		return fmt.Sprintf("postgres: schema %q is at version %d, newer than the %d of this release: deploy a newer release", e.Schema, e.Have, e.Want)
	}
	return fmt.Sprintf("postgres: schema %q is at version %d, this release needs %d: run `daybook migrate`", e.Schema, e.Have, e.Want)
}

// mapError turns what PostgreSQL says about an append into the errors of package eventstore. It is the only place that
// knows SQLSTATE codes.
func mapError(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case "0A000":
		if stalePlan(err) { // of a connection of the caller's; it prepares anew when the transaction runs again
			return fmt.Errorf("%w: %w", eventstore.ErrBusy, err)
		}
	case "40P01", "40001", "55P03", idleInTransaction: // deadlock_detected, serialization_failure, lock_not_available
		return fmt.Errorf("%w: %w", eventstore.ErrBusy, err)
	case "DB005": // refuse_known_key
		return fmt.Errorf("%w: %w", errKnownKey, err)
	case "23514": // check_violation: also raised when no partition takes the row
		if pgErr.ConstraintName == "" && (pgErr.TableName == "events" || pgErr.TableName == "outbox") {
			return fmt.Errorf("%w: %w", ErrNoRange, err)
		}
	}
	return err
}

// stalePlan reports whether a statement that was prepared earlier no longer fits, because a migration has changed the
// type of a column meanwhile.
func stalePlan(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "0A000" && pgErr.Routine == "RevalidateCachedQuery"
}

// aborted reports whether a statement met a transaction that one before had broken.
func aborted(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "25P02"
}

// renewed reports whether err comes from a stale plan; then the connections have been replaced, and what failed, and
// wrote nothing, can be run again.
func (s *Store) renewed(err error) bool {
	if !stalePlan(err) {
		return false
	}
	s.pool.Reset()
	return true
}

// idleInTransaction: the server has ended a transaction that waited for its client, before any COMMIT.
const idleInTransaction = "25P03"

// unconfirmed reports whether the connection was lost at a point at which a commit may have happened.
func unconfirmed(err error) bool {
	if err == nil || pgconn.SafeToRetry(err) {
		return false
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == idleInTransaction {
		return false
	}
	if errors.As(err, &pgErr) {
		return pgErr.Severity == "FATAL" || pgErr.Severity == "PANIC"
	}
	var connectErr *pgconn.ConnectError
	return !errors.As(err, &connectErr)
}

// appendError wraps the failure of an append that ran in a transaction of its own.
func appendError(err error) error {
	if err == nil {
		return nil
	}
	if unconfirmed(err) {
		return fmt.Errorf("%w: %w", eventstore.ErrUnconfirmed, err)
	}
	return wrapAppend(err)
}

// wrapAppend wraps the failure of an append that certainly wrote nothing.
func wrapAppend(err error) error { return fmt.Errorf("postgres: append: %w", mapError(err)) }
