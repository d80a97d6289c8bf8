package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/projection"
)

const (
	// TokenHeader carries the token of a post, and of a read that must show it.
	TokenHeader = "Consistency-Token"
	// LagHeader says of an answer that is stale how many events it lacks at most.
	LagHeader = "Consistency-Lag"
)

// Store is what the API needs of the event store besides the book; *postgres.Store has it.
type Store interface {
	// Epoch and Partitions tell tokens of this store from others.
	Epoch() uuid.UUID
	Partitions() int
	// HeadToken stands for everything that is committed.
	HeadToken(ctx context.Context) (eventstore.Token, error)
	// Health asks whether appends and reads can work.
	Health(ctx context.Context) eventstore.Health
}

// Config of the API. The zero value works.
type Config struct {
	// Logger gets a line per fault of this program and, as "/readyz" is asked, per change of readiness: "not ready" is a
	// warning with its reason. It never gets what was posted. Default: none.
	Logger *slog.Logger
}

// api answers requests.
type api struct {
	book   *book.Book
	store  Store
	db     projection.Querier
	waiter *projection.Waiter
	log    *slog.Logger
	ready  readiness
}

// New returns the handler. It is safe for concurrent use. A request that waits for the read models ends with the context of
// the request, which the server's BaseContext bounds; what it does in the database has a moment more.
func New(ledger *book.Book, store Store, db projection.Querier, cfg Config) http.Handler {
	a := &api{book: ledger, store: store, db: db, waiter: projection.NewWaiter(db, projection.WaiterConfig{}), log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"POST /entries":           a.post,
		"GET /entries/{key}":      a.entry,
		"GET /balances":           a.balances,
		"GET /balances/{account}": a.balancesOf,
		"GET /healthz":            a.alive,
		"GET /readyz":             a.isReady,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(pattern, a.answer(h))
		mux.Handle(path, a.answer(otherMethod(method)))
	}
	mux.Handle("/", a.answer(nothingHere))
	return a.survive(mux)
}

// handler answers a request, or returns why not: a [*problem], or an error of the program that is logged.
type handler func(http.ResponseWriter, *http.Request) error

func (a *api) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		var p *problem
		if !errors.As(err, &p) {
			p = fault(err)
		}
		if p.cause != nil {
			a.log.Error("request failed", "route", r.Pattern, "status", p.Status, "error", p.cause.Error())
		}
		p.write(w)
	})
}

// survive keeps a panic from ending more than its own request. The value of the panic may hold what was posted.
func (a *api) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v) // which the server knows
			default:
				a.log.Error("request panicked", "route", r.Pattern, "stack", string(debug.Stack()))
				fault(nil).write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func otherMethod(allowed string) handler {
	if allowed == http.MethodGet {
		allowed += ", " + http.MethodHead
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", allowed)
		return &problem{
			Type: typeOf("method"), Title: "Another method is needed", Status: http.StatusMethodNotAllowed,
			Field: "method", Value: short(r.Method), Remedy: "use " + allowed,
		}
	}
}

func nothingHere(http.ResponseWriter, *http.Request) error {
	return &problem{
		Type: typeOf("not-found"), Title: "Nothing is here", Status: http.StatusNotFound,
		Remedy: "use /entries, /balances, /balances/{account}, /healthz or /readyz",
	}
}

const (
	// answerTime bounds what a request does in the database, waiting for read models aside.
	answerTime = 10 * time.Second
	// grace is what is left of that when the caller has gone or the server is ending.
	grace = 700 * time.Millisecond
)

// working is the context for what shall be done to its end although nobody may wait for it any more: whether an entry was
// stored should not be a matter of chance.
func working(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTime)
	stop := context.AfterFunc(r.Context(), func() { time.AfterFunc(grace, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // whoever asked has gone
	return nil
}
