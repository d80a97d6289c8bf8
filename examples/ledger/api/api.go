package api

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/aggregate/commandhttp"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/projection"
)

const (
	// TokenHeader carries the token of a write, and of a read that must show it.
	TokenHeader = commandhttp.TokenHeader
	// LagHeader says of an answer that is stale how many events it lacks at most.
	LagHeader = commandhttp.LagHeader
	// KeyHeader is the caller's name for a command.
	KeyHeader = commandhttp.KeyHeader
	// ReplayedHeader marks the answer to a command that was carried out before.
	ReplayedHeader = commandhttp.ReplayedHeader

	// grace is what is left of a request when the caller has gone or the server is ending.
	grace = 700 * time.Millisecond
	// retryAway is after how long to try again when the database is away.
	retryAway = 2 * time.Second
)

// Description is the OpenAPI description of the API, as it is served at /openapi.yaml.
//
//go:embed openapi.yaml
var Description []byte

// Store is what the API needs of the event store besides the book; *postgres.Store has it.
type Store interface {
	// Epoch and Partitions tell tokens of this store from others.
	Epoch() uuid.UUID
	Partitions() int
	// Health asks whether appends and reads can work.
	Health(ctx context.Context) eventstore.Health
}

// Config of the API. Bus, Book, Store and DB are needed.
type Config struct {
	// Bus carries out the commands; package commands registers them. Book is the ledger that it works on.
	Bus   *bus.Bus
	Book  *book.Book
	Store Store
	// DB has the read models.
	DB projection.Querier
	// Gate lets requests in. Default: all at once.
	Gate *admission.Gate
	// Operations takes commands whose callers do not wait. Default: all wait.
	Operations bus.Operations
	// Logger gets a line per fault of this program and, as "/readyz" is asked, per change of readiness: "not ready" is a
	// warning with its reason. It never gets what was posted. Default: none.
	Logger *slog.Logger
}

// API answers requests. It is safe for concurrent use.
type API struct {
	*commandhttp.API
	book   *book.Book
	store  Store
	db     projection.Querier
	waiter *projection.Waiter
	log    *slog.Logger
	ready  readiness
}

// New returns the handler. Its method Close ends event streams and waits for read models, so that a server that is shutting
// down need not wait for them; what a request does in the database has a moment more.
func New(cfg Config) (*API, error) {
	a := &API{book: cfg.Book, store: cfg.Store, db: cfg.DB, waiter: projection.NewWaiter(cfg.DB, projection.WaiterConfig{}), log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	var err error
	a.API, err = commandhttp.New(commandhttp.Config{
		Bus: cfg.Bus, Gate: cfg.Gate, Caller: callerOf, Operations: cfg.Operations,
		Problems: problems, ExplainRefusal: rejected, Explain: away,
		Tokens:        commandhttp.Tokens{Epoch: cfg.Store.Epoch(), Partitions: cfg.Store.Partitions()},
		WaitParameter: "wait", Grace: grace, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	a.writes()
	a.reads()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /healthz": a.alive, "GET /readyz": a.isReady, "GET /openapi.yaml": description,
	} {
		// Never sent away: whoever asks these wants to know how it is when there is too much to do.
		commandhttp.Handle(a.API, pattern, commandhttp.Plain{Class: admission.Operator, Public: true, Serve: serve})
	}
	return a, nil
}

func description(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(Description) // whoever asked has gone
	return nil
}
