package saga

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// Source is what sagas follow: the log of an engine, such as *postgres.Log, or an *outbox.Subscription. It is an interface
// with the methods
//
//	// at most limit events after a position that f selects, and how far the page is complete
//	ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error)
//	// returns when the log may have something beyond a position, or when ctx ends
//	Wait(ctx context.Context, after eventstore.Position) error
//
// An error of ReadPage that matches [eventstore.ErrHistory] stops the saga; any other is waited out.
type Source = consumer.Source

// Sender sends the commands of sagas, and tells what became of them. The one that commands.ForSagas makes puts them into the
// outbox of the store, for the dispatcher. It is safe for concurrent use. One that also has a method
// Knows(payload reflect.Type) error, nil for a type that Prepare takes, is asked by NewManager for all types that definitions
// declare to send.
type Sender interface {
	// Prepare makes the stored form of a command by the program's bus. Its errors are those of the definition: a payload
	// that no handler is known for, or that cannot be encoded.
	flow.Preparer
	// Schema is the PostgreSQL schema of the store that commands go to. The rows of sagas are there too.
	Schema() string
	// Enqueue sends commands of one saga as part of tx, which the caller commits: they leave if and only if it is
	// committed. meta[i] belongs to commands[i]. Their ends are told on [ReplyTopic] of the saga. It takes one round trip,
	// however many commands there are. The same command may be sent again; whoever carries it out knows it by its id.
	Enqueue(ctx context.Context, tx pgx.Tx, saga string, meta []eventstore.Metadata, commands []flow.Command) error
	// Replies returns where the ends of a saga's commands are read, and what makes a reply of an event there. An error of
	// that function is one of the message, which is set aside.
	Replies(saga string) (Source, func(eventstore.RecordedEvent) (flow.Reply, error), error)
}

// ReplyTopic is the topic of the outbox on which the ends of a saga's commands are told.
func ReplyTopic(saga string) string { return "saga-" + saga + "-replies" }
