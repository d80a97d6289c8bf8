package aggregate

import (
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	// ErrExists: [Member.Create] found that the aggregate has events already. Details are in [*ExistsError].
	ErrExists = errors.New("aggregate: exists already")
	// ErrMisuse: a [Work] was used in a way that cannot be right. The text says how; mend the code. Nothing was written.
	ErrMisuse = errors.New("aggregate: misuse of a work")
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

func misuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMisuse, fmt.Sprintf(format, args...))
}
