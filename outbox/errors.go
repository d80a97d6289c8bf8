package outbox

import (
	"errors"
	"fmt"
	"strings"

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

// lateError is a ShutdownError in the words of a relay.
type lateError struct{ *consumer.ShutdownError }

func (e *lateError) Error() string {
	return fmt.Sprintf("outbox: run: shut down: the publisher of %s has not returned, and what it has in hand may still arrive: "+
		"give it a time-out, or let it watch the context of messages, and end the process", strings.Join(e.Consumers, ", "))
}

func (e *lateError) Unwrap() error { return e.ShutdownError }

// shutDown returns what Run of a relay says when its workers have ended.
func shutDown(err error) error {
	var late *consumer.ShutdownError
	if errors.As(err, &late) {
		return &lateError{late}
	}
	return err
}

// enqueueError is an InvalidError in the words of Enqueue.
type enqueueError struct{ *eventstore.InvalidError }

func (e *enqueueError) Error() string {
	return "outbox: enqueue: " + strings.TrimPrefix(e.InvalidError.Error(), "eventstore: ")
}

func (e *enqueueError) Unwrap() error { return e.InvalidError }

// inEnqueue says that an error is one of Enqueue.
func inEnqueue(err error) error {
	var invalid *eventstore.InvalidError
	if errors.As(err, &invalid) {
		return &enqueueError{invalid}
	}
	return fmt.Errorf("outbox: enqueue: %w", err)
}

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
