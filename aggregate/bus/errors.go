package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

var (
	// ErrUnknownCommand: no handler is registered for the command. Details are in [*UnknownCommandError].
	ErrUnknownCommand = errors.New("bus: unknown command")
	// ErrInvalidCommand: the command cannot be read, or says of itself that it is not valid. Nothing was done. Details
	// are in [*InvalidCommandError].
	ErrInvalidCommand = errors.New("bus: invalid command")
	// ErrForbidden: whoever gave the command may not. Nothing was done. Details are in [*ForbiddenError].
	ErrForbidden = errors.New("bus: forbidden")
	// ErrKeyUnused: a handler succeeded, but nothing that it did is covered by the command's key; a repeat would do it
	// again. Mend the handler. Details are in [*KeyUnusedError].
	ErrKeyUnused = errors.New("bus: idempotency key not used")
)

// UnknownCommandError names a command that has no handler. It matches [ErrUnknownCommand].
type UnknownCommandError struct {
	// Type is the wire name; empty when a Go value was sent whose type is not registered.
	Type string
	// GoType is the Go type of the payload, when there was one.
	GoType string
	reason string
}

// Error names the command and the remedy.
func (e *UnknownCommandError) Error() string {
	if e.Type == "" {
		return fmt.Sprintf("bus: no handler for a payload of type %s: %s", e.GoType, e.reason)
	}
	return fmt.Sprintf("bus: no handler for command %s: %s", shorten(e.Type), e.reason)
}

// Is matches [ErrUnknownCommand].
func (e *UnknownCommandError) Is(target error) bool { return target == ErrUnknownCommand }

// InvalidCommandError says why a command cannot be carried out as it is. It matches [ErrInvalidCommand]. Sending the
// same again is of no use.
type InvalidCommandError struct {
	Type string
	ID   uuid.UUID
	// Err is what Validate returned, or what keeps the data from being read.
	Err error
}

// Error names the command and the cause.
func (e *InvalidCommandError) Error() string {
	return fmt.Sprintf("bus: command %s is not valid: %v", name(e.Type, e.ID), e.Err)
}

// Is matches [ErrInvalidCommand].
func (e *InvalidCommandError) Is(target error) bool { return target == ErrInvalidCommand }

// Unwrap returns the cause.
func (e *InvalidCommandError) Unwrap() error { return e.Err }

// ForbiddenError says that the sender may not give the command. It matches [ErrForbidden].
type ForbiddenError struct {
	Type string
	ID   uuid.UUID
	// Actor and Tenant are those of the command's metadata.
	Actor, Tenant string
	// Err is what the check returned.
	Err error
}

// Error names the command, the sender and the cause.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("bus: command %s is not allowed to %q of %q: %v", name(e.Type, e.ID), e.Actor, e.Tenant, e.Err)
}

// Is matches [ErrForbidden].
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// Unwrap returns the cause.
func (e *ForbiddenError) Unwrap() error { return e.Err }

// ExpiredError says that a command came too late to begin. It matches [ErrExpired]. It was not executed; under
// [Idempotent] it never will be.
type ExpiredError struct {
	Type     string
	ID       uuid.UUID
	Deadline time.Time
	// At is when it was about to run.
	At time.Time
}

// Error names the command and how late it was.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("bus: command %s expired, unexecuted: its deadline %s had passed by %s",
		name(e.Type, e.ID), e.Deadline.UTC().Format(time.RFC3339Nano), e.At.Sub(e.Deadline))
}

// Is matches [ErrExpired].
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// PanicError says that a handler or a middleware panicked. The bus goes on; the stack is in the log, not in the text.
// The value may hold what was sent, and is in neither: of it the log has the type, and the text of a [runtime.Error].
type PanicError struct {
	// Type and ID name the command.
	Type string
	ID   uuid.UUID
	// Value is what was passed to panic.
	Value any
}

// Error names the command.
func (e *PanicError) Error() string {
	return fmt.Sprintf("bus: command %s panicked: the log has the stack", name(e.Type, e.ID))
}

// KeyUnusedError names a command whose handler did not use the idempotency key. It matches [ErrKeyUnused]. What the
// handler did, it did.
type KeyUnusedError struct {
	Type string
	ID   uuid.UUID
}

// Error names the command and the remedy.
func (e *KeyUnusedError) Error() string {
	return fmt.Sprintf("bus: command %s succeeded without using its idempotency key, so a repeat would do it again: "+
		"call Repository.Handle or aggregate.Transact with the handler's context, or declare the type bus.WithoutKey()", name(e.Type, e.ID))
}

// Is matches [ErrKeyUnused].
func (e *KeyUnusedError) Is(target error) bool { return target == ErrKeyUnused }

// name is how errors call a command.
func name(wire string, id uuid.UUID) string {
	if id == uuid.Nil {
		return shorten(wire)
	}
	return shorten(wire) + " " + id.String()
}

// shorten quotes a text that may come from anywhere.
func shorten(text string) string {
	const limit = 128
	if len(text) > limit {
		return fmt.Sprintf("%q…", text[:limit])
	}
	return fmt.Sprintf("%q", text)
}
