package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// Ref names a consumer: the schema of its store, its name and its version.
type Ref struct {
	Store   string
	Name    string
	Version int
}

func (r Ref) String() string { return fmt.Sprintf("%q version %d", r.Name, r.Version) }

// Spec says what a consumer reads and how it applies it.
type Spec struct {
	Ref
	// Segment is the number of the segment that the worker owns, from 0. Segments share the partitions; each has its own
	// lease and progress. What applies events has one.
	Segment int
	// Partitions are those of the source; 0 stands for as many as the store has whose tables keep the progress.
	Partitions int
	Filter     eventstore.Filter
	// Select, if set, is asked for the filter in place of Filter, when the worker has become the owner, behind Abstains.
	// Whoever changes its answer must raise the epoch of the segment behind that, as with Abstains.
	Select  func() eventstore.Filter
	Applier Applier
	// Abstains says why this process must leave the consumer to others for now; empty: it need not. The worker stands by
	// as long, with that for a reason, and asks again about once a second. Whoever changes the answer to a reason must raise
	// the epoch of the segment in the same transaction: then a process that owns it commits nothing any more, and asks. Nil:
	// never.
	Abstains func(ctx context.Context, db *pgxpool.Pool) (why string, err error)
}

func (s Spec) parkingOwner() parking.Owner {
	return parking.Owner{Schema: s.Store, Consumer: s.Name, Version: s.Version}
}

// Applier turns events into effects. Its methods are called by one goroutine at a time, except beside calls that have not
// returned when their time was over; see Config.Timeout.
type Applier interface {
	// Plan looks at events without the database. A fault of one of them is an [*EventError].
	Plan(ctx context.Context, events []eventstore.RecordedEvent) (Plan, error)
	// Relaxed reports that losing the last commits in a crash of the server is harmless, because the log gives them
	// again and nothing but the database's own tables has seen them.
	Relaxed() bool
}

// Plan is one attempt at a run of events, within one transaction.
type Plan interface {
	// Load queues what must be read. It is sent together with the BEGIN.
	Load(b *pgx.Batch)
	// Apply runs when the answers to Load are there. It may use tx, and queues on b what is sent together with the
	// COMMIT. A fault of one event is an [*EventError].
	Apply(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error
}

// ErrEnding is returned by an [Applier] that was asked to end before all was applied: the rest is for the next owner.
var ErrEnding = errors.New("consumer: asked to end")

// Committed is implemented by a [Plan] that wants to know when its transaction is committed. The method must not block.
type Committed interface{ Committed() }

// EventError says at which event of the run an Applier failed.
type EventError struct {
	Index int
	Err   error
}

func (e *EventError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *EventError) Unwrap() error { return e.Err }

// HandlerError names the event that a consumer cannot apply, and why. The payload is never part of the text.
type HandlerError struct {
	Consumer string
	Version  int
	// Event is the failing event without its payload.
	Event    eventstore.RecordedEvent
	Attempts int
	Err      error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("consumer: %q version %d failed %d times at %q of stream %q version %d (position %s): %v",
		e.Consumer, e.Version, e.Attempts, e.Event.Type, e.Event.Stream, e.Event.Version, e.Event.Position, e.Err)
}

// Unwrap returns the cause.
func (e *HandlerError) Unwrap() error { return e.Err }

// State is what a worker is doing.
type State string

// The states of a worker.
const (
	// Standby: another process owns the consumer, or the worker has not begun.
	Standby State = "standby"
	// Running: this worker owns the consumer and follows the log.
	Running State = "running"
	// Waiting: something that the consumer needs is away; the reason says what.
	Waiting State = "waiting"
	// Retrying: an event failed and is tried again; the reason says which and why.
	Retrying State = "retrying"
	// Paused: an operator has paused the consumer.
	Paused State = "paused"
	// Stopped: the consumer gave up at an event or found another history; the reason says what to do.
	Stopped State = "stopped"
)

// Status is a worker's state as this process knows it.
type Status struct {
	State  State
	Reason string
	Since  time.Time
	// Applied is the position up to which this worker knows everything to be applied; zero before it owned the consumer.
	// Of a published stream single partitions may be further.
	Applied eventstore.Position
	// Hung says how many handlers of this worker ignore the end of their context and still run, which one has done so for
	// longest, and since when; empty when there are none.
	Hung string
	// Parked counts the sequences that are set aside, while this worker owns the consumer.
	Parked parking.Counts
}

type (
	insideKey  struct{}
	attemptKey struct{}
)

// within marks the context that an Applier gets.
func within(ctx context.Context, ref Ref) context.Context {
	return context.WithValue(ctx, insideKey{}, ref)
}

// Inside reports whether ctx is that of the named consumer's own handler, which must not wait for itself.
func Inside(ctx context.Context, ref Ref) bool {
	inside, ok := ctx.Value(insideKey{}).(Ref)
	return ok && inside == ref
}

func withAttempt(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, attemptKey{}, n)
}

// Attempt says how often the events that an [Applier] was given with ctx have been tried, this time included: 1 unless they
// had failed before. Runs of a batch that was rolled back for another's sake do not count.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}
