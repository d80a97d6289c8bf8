package commands

import (
	"context"
	"log/slog"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
)

// Store is what the bus needs of the event store besides the book; *postgres.Store has it.
type Store interface {
	eventstore.OnceAppender
	// HeadToken stands for everything that is committed.
	HeadToken(ctx context.Context) (eventstore.Token, error)
}

// Config of [NewBus]. The zero value works.
type Config struct {
	// Logger gets a line per command, without what it says. Default: no lines.
	Logger *slog.Logger
	// TellIfRunning: a command whose key is being carried out is refused with eventstore.ErrInProgress instead of waiting.
	TellIfRunning bool
}

// NewBus returns a bus that carries out the ledger's commands, each once per scope and key. store must be that of the
// ledger. Requests have to be let in before they get here, see package admission.
//
// There is no authorisation: the ledger's callers may do everything.
func NewBus(store Store, ledger *book.Book, cfg Config) *bus.Bus {
	log := cfg.Logger
	var middleware []bus.Middleware
	if log == nil {
		log = slog.New(slog.DiscardHandler) // also for the stacks of panics
	} else {
		middleware = append(middleware, bus.Log(log))
	}
	var once []bus.IdempotentOption
	if cfg.TellIfRunning {
		once = append(once, bus.TellIfRunning())
	}
	b := bus.New(bus.Config{Logger: log}, append(middleware,
		bus.Validate(), bus.Retry(aggregate.Retry{}), bus.Idempotent(store, once...))...)
	register(b, handlers{ledger: ledger, head: store.HeadToken})
	return b
}
