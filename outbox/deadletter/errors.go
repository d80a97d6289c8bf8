package deadletter

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	// ErrNotFound: there is no such letter or plan, or it was older than the retention.
	ErrNotFound = errors.New("deadletter: not found")
	// ErrRefused: what is asked for is against the order of a sequence or the state that something has by now. Nothing was
	// changed. Details are in [*RefusedError].
	ErrRefused = errors.New("deadletter: refused")
)

// RefusedError says what was not done and why. It matches [ErrRefused].
type RefusedError struct {
	// What was asked for: "redrive", "discard", "undo", "cancel".
	What string
	// ID is the letter or the plan; zero when it is neither.
	ID uuid.UUID
	// Reason says why, and what to do.
	Reason string
}

// Error names what was asked for, of what, and why not.
func (e *RefusedError) Error() string {
	if e.ID == uuid.Nil {
		return fmt.Sprintf("deadletter: %s refused: %s", e.What, e.Reason)
	}
	return fmt.Sprintf("deadletter: %s %s refused: %s", e.What, e.ID, e.Reason)
}

// Is matches [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func refuse(what string, id uuid.UUID, format string, args ...any) error {
	return &RefusedError{What: what, ID: id, Reason: fmt.Sprintf(format, args...)}
}

func notFound(kind string, id uuid.UUID) error {
	return fmt.Errorf("%w: %s %s", ErrNotFound, kind, id)
}

func invalid(field, value, reason, remedy string) error {
	return fmt.Errorf("deadletter: %w", &eventstore.InvalidError{Field: field, Value: value, Reason: reason, Remedy: remedy})
}
