package admission

import (
	"errors"
	"fmt"
	"time"
)

// ErrOverloaded: the request was sent away and not executed, not even in part. Come back later; details are in
// [*OverloadedError].
var ErrOverloaded = errors.New("admission: overloaded")

// Reason says why a request was sent away.
type Reason string

// The reasons.
const (
	// QueueFull: as many were waiting as may, and none of them mattered less.
	QueueFull Reason = "queue full"
	// Displaced: it was waiting, and its place was given to a request of a higher class.
	Displaced Reason = "displaced by a higher class"
	// OverShare: the queue was full, and its tenant had more of it than the others.
	OverShare Reason = "over the share of its tenant"
	// WaitedTooLong: it stood in the queue for as long as its class may.
	WaitedTooLong Reason = "waited too long"
	// Stale: its deadline comes before it could be done.
	Stale Reason = "deadline too near"
)

// OverloadedError says why a request was sent away, and when to come back. It matches [ErrOverloaded].
type OverloadedError struct {
	Class  Class
	Reason Reason
	// RetryAfter is how long it takes to work off what waits and what was sent away lately, as measured, times a random
	// factor between 0.5 and 1.5 so that not all come back at once. Between 100 ms and 30 s.
	RetryAfter time.Duration
}

// Error names the class, the reason and the time to wait.
func (e *OverloadedError) Error() string {
	return fmt.Sprintf("admission: %s request not executed: %s: try again in %v", e.Class, string(e.Reason), e.RetryAfter)
}

// Is matches [ErrOverloaded].
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }
