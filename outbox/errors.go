package outbox

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// PublishError names a message that the broker did not take, and why. It is what a relay waits out: the reason in
// Health, and what the observer is told. It unwraps its cause. The payload is never part of the text.
type PublishError struct {
	Topic     string
	Partition int
	Position  eventstore.Position
	// ID of the message; zero for a head message, which says only how far a partition is complete.
	ID uuid.UUID
	// Attempt counts from 1.
	Attempt int
	Err     error
}

// Error names the message and the cause.
func (e *PublishError) Error() string {
	what := "message " + e.ID.String()
	if e.ID == uuid.Nil {
		what = "head"
	}
	return fmt.Sprintf("outbox: publish %s on topic %q at position %s (partition %d, attempt %d): %v",
		what, e.Topic, e.Position, e.Partition, e.Attempt, e.Err)
}

// Unwrap returns the cause.
func (e *PublishError) Unwrap() error { return e.Err }

// ShutdownError says that a publisher ignored the end of its messages' context and did not return in time. Its goroutine
// is still there; what it has in hand may still reach the broker, but the relay's cursor can no longer move through it,
// and the lease runs out. Its only field is
//
//	Consumers []string // "outbox-relay"
type ShutdownError = consumer.ShutdownError

// NotInstalledError says that tables of the outbox are not there.
type NotInstalledError struct {
	// Schema is where they were looked for.
	Schema string
	// Missing names the first that was not found.
	Missing string
}

// Error names what is missing and the remedy.
func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("outbox: the store in schema %q is not ready (%s is not there): call postgres.Migrate or run `daybook migrate` first",
		e.Schema, e.Missing)
}
