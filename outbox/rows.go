package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Rows is the outbox of a store as relays and subscriptions read it: what the append wrote there, and [Enqueue]. It is
// satisfied by *postgres.Outbox; give each relay and each subscription one of its own (store.Outbox()).
//
// Its methods are safe for concurrent use.
type Rows interface {
	// ReadPage returns the messages that q selects, and how far the page is complete. A page may be empty although more
	// follows: go on from its Through until that does not move. A position beyond the end of the log is an error that
	// matches [eventstore.ErrHistory].
	ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error)
	// Wait returns nil when there may be something after a position, or when it is time to look; and the error of ctx
	// when that ends first.
	Wait(ctx context.Context, after eventstore.Position) error
	// SafeHead is the position at or below which nothing can still appear.
	SafeHead(ctx context.Context) (eventstore.Position, error)
	// Clean removes what the relay has sent and everybody who follows has passed; subscribers that are behind by more than
	// retention are declared lost first. It may be called from several processes at once.
	Clean(ctx context.Context, retention time.Duration) (eventstore.CleanReport, error)
	// Highest is the greatest position that this process knows to be committed, without asking; SafeHead brings it up to date.
	Highest() eventstore.Position
	// Epoch is the history that the store was opened with.
	Epoch() uuid.UUID
	// Epochs asks the database which history it has now, and which it had before.
	Epochs(ctx context.Context) (current uuid.UUID, earlier []uuid.UUID, err error)
	// Partitions is how many partitions the store has; they are numbered from 0.
	Partitions() int
	// Schema is the PostgreSQL schema of the store.
	Schema() string
}
