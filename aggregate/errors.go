package aggregate

import (
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	// ErrExists: [Member.Create] found that the aggregate has events already. Details are in [*ExistsError].
	ErrExists = errors.New("aggregate: exists already")
	// ErrMisuse: a [Work] was used in a way that cannot be right. The text says how; mend the code. Nothing was written.
	ErrMisuse = errors.New("aggregate: misuse of a work")
	// ErrVersion: the aggregate is not at the version that [IfVersion] demands. Details are in [*VersionError].
	ErrVersion = errors.New("aggregate: another version")
	// ErrRefused: the command was refused when it was first executed. Details are in [*RefusedError].
	ErrRefused = errors.New("aggregate: refused before")
	// ErrExpired: the command's time was over before it could be executed. Details are in [*ExpiredError].
	ErrExpired = errors.New("aggregate: expired")
)

// ExistsError names the aggregate that was to be created. It matches [ErrExists]. Nothing was written.
type ExistsError struct {
	Stream eventstore.StreamID
	// Version is the version that the stream had.
	Version eventstore.Version
}

// Error names the aggregate and its version.
func (e *ExistsError) Error() string {
	return fmt.Sprintf("aggregate: %s exists already, at version %d", e.Stream, e.Version)
}

// Is matches [ErrExists].
func (e *ExistsError) Is(target error) bool { return target == ErrExists }

// VersionError says which version the caller demanded and which the aggregate has. It matches [ErrVersion]. Nothing was
// decided or written, and nothing is remembered under the command's key: the caller may send it again with another
// demand.
type VersionError struct {
	Stream eventstore.StreamID
	Want   eventstore.ExpectedVersion
	// Have is the version of the aggregate; 0 when it does not exist.
	Have eventstore.Version
}

// Error names the aggregate and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("aggregate: %s is at version %d, not at %s", e.Stream, e.Have, e.Want)
}

// Is matches [ErrVersion].
func (e *VersionError) Is(target error) bool { return target == ErrVersion }

// RefusedError is the answer to a command that was sent again after it had been refused: the first refusal, from the
// store. It matches [ErrRefused], and the domain's own error if that was declared with [Refuses]. Nothing was written.
type RefusedError struct {
	// Code is what [Refuses] calls the rule, "" when the error was not declared.
	Code string
	// Text is the text of the first refusal.
	Text string
	// At is when it was stored.
	At time.Time

	sentinel error
}

// Error is the text of the first refusal.
func (e *RefusedError) Error() string {
	if e.Text == "" {
		return ErrRefused.Error()
	}
	return e.Text
}

// Is matches [ErrRefused] and the declared error.
func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || e.sentinel != nil && errors.Is(e.sentinel, target)
}

// ExpiredError names a command that ended unexecuted; see [Expire]. It matches [ErrExpired]. It was not and will not be
// executed.
type ExpiredError struct {
	Scope, Key string
	// At is when that was stored.
	At time.Time
}

// Error names the command.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("aggregate: the command with key %q expired: it was not executed and will not be", e.Key)
}

// Is matches [ErrExpired].
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// transientError marks an error that another run may not meet.
type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

// Transient marks an error of a decision as one that another run may not meet, such as a service that did not answer.
// It is never remembered as the outcome of a command with a key, so the same command may be sent again. Its text is
// that of err, which errors.Is and errors.As find. Transient(nil) is nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transientError{err}
}

// IsTransient reports whether err is marked by [Transient].
func IsTransient(err error) bool {
	var transient *transientError
	return errors.As(err, &transient)
}

// retryableError marks an error of the store after which the work is run again. An error of the domain never carries
// it, so a rule that happens to return a conflict of its own is not run again.
type retryableError struct{ err error }

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

// storeError is an error of the store. A decision that met one in a command of its own has not refused anything.
type storeError struct {
	operation string
	err       error
}

func (e *storeError) Error() string { return fmt.Sprintf("aggregate: %s: %v", e.operation, e.err) }
func (e *storeError) Unwrap() error { return e.err }

// classify wraps an error of the store.
func classify(operation string, err error) error {
	if eventstore.IsRetryable(err) && !errors.Is(err, eventstore.ErrUnconfirmed) {
		return &retryableError{err}
	}
	return &storeError{operation, err}
}

func misuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMisuse, fmt.Sprintf(format, args...))
}
