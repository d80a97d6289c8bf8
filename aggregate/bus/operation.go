package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// OperationState says how far a command is that is carried out apart from its sender.
type OperationState string

// The states of an operation. The last four are ends: nothing changes after them.
const (
	// OperationAccepted: it is stored, and will be carried out.
	OperationAccepted OperationState = "accepted"
	// OperationRunning: a handler has begun.
	OperationRunning OperationState = "running"
	// OperationDone: it was carried out.
	OperationDone OperationState = "done"
	// OperationRefused: a rule refused it, for good; nothing was written.
	OperationRefused OperationState = "refused"
	// OperationExpired: its deadline passed before it could begin; it never ran.
	OperationExpired OperationState = "expired"
	// OperationFailed: it could not be carried out, and is not tried again.
	OperationFailed OperationState = "failed"
)

// Finished reports whether the state is an end.
func (s OperationState) Finished() bool {
	switch s {
	case OperationDone, OperationRefused, OperationExpired, OperationFailed:
		return true
	}
	return false
}

// Operation is what is known of a command that is carried out apart from its sender.
type Operation struct {
	// ID names the operation within its Scope: it is the id of the command that was accepted first under its key.
	ID uuid.UUID
	// Scope says whose operation it is, Type is the command's wire name.
	Scope, Type string
	State       OperationState
	// Progress is a fraction from 0 to 1, Note what a person may read about it. Both come from the handler.
	Progress float64
	Note     string
	// Code names the rule that refused the command, or the fault, for programs; Reason is its text, for people.
	Code, Reason string
	// Result is what the command returned, encoded as ContentType says.
	Result      []byte
	ContentType string
	// Stream is the stream that the command was about, Version its version afterwards. Zero when unknown.
	Stream  eventstore.StreamID
	Version eventstore.Version
	// Token is what a reader waits for to see the command's events.
	Token eventstore.Token
	// Revision rises with each change of the operation, from 1.
	Revision int64
	// AcceptedAt, StartedAt, ChangedAt and FinishedAt are zero until then.
	AcceptedAt, StartedAt, ChangedAt, FinishedAt time.Time
	// Deadline is the time from which on the command does not begin any more; zero: none.
	Deadline time.Time
}

// Finished reports whether the operation has come to an end.
func (o Operation) Finished() bool { return o.State.Finished() }

// Operations accepts commands and tells what has become of them. It is safe for concurrent use.
type Operations interface {
	// Enqueue stores the command, durably, and returns the id under which its operation is found. A command whose id, or
	// whose scope and key, is known already is not stored again: the id is that of the first. The command needs its Data;
	// [Bus.Prepare] makes it.
	Enqueue(ctx context.Context, c Command) (uuid.UUID, error)
	// Operation returns the operation as it is now. One that is not there, was removed, or belongs to another scope is a
	// [*NoOperationError]. A command that did not come by Enqueue, but in a transaction of its sender's, may have none before
	// its end.
	Operation(ctx context.Context, scope string, id uuid.UUID) (Operation, error)
	// Watch yields the operation as it is now and after each change, and ends after the state that is an end. Changes in
	// quick succession may come as one. An error is the last thing that it yields.
	Watch(ctx context.Context, scope string, id uuid.UUID) iter.Seq2[Operation, error]
}

// ErrNoOperation: there is no such operation. Details are in [*NoOperationError].
var ErrNoOperation = errors.New("bus: no such operation")

// NoOperationError names an operation that was asked for. It matches [ErrNoOperation].
type NoOperationError struct {
	Scope string
	ID    uuid.UUID
}

// Error names the operation, and what may be the reason.
func (e *NoOperationError) Error() string {
	return fmt.Sprintf("bus: operation %s of scope %q is not known: it may have another scope, or have been removed after its end; "+
		"a command that was sent in a transaction (commands.Enqueue) has an operation only from its end on", e.ID, e.Scope)
}

// Is matches [ErrNoOperation].
func (e *NoOperationError) Is(target error) bool { return target == ErrNoOperation }
