package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// Config says how a [Bus] behaves. The zero value works.
type Config struct {
	// Logger gets the stacks of panics, and of their values the types; what else is logged is up to [Log]. Default:
	// slog.Default().
	Logger *slog.Logger
	// Clock says whether a deadline has passed. Default: time.Now.
	Clock func() time.Time
}

// Bus finds the handler of a command and runs it behind the middleware. Handlers are registered at set-up; Bus is safe
// for concurrent use, registration included. It has no goroutines and nothing to close.
type Bus struct {
	logger *slog.Logger
	clock  func() time.Time
	chain  Handler

	mu     sync.Mutex // held while a route is added
	routes atomic.Pointer[routes]
}

// routes are never changed once a bus has them.
type routes struct {
	byName map[string]*route
	byType map[reflect.Type]*route
}

// New returns a bus without handlers. The first middleware is the outermost; doc.go has the order that gives the
// guarantees of the package. New panics when a middleware is nil, or returns nil.
func New(config Config, middleware ...Middleware) *Bus {
	b := &Bus{logger: config.Logger, clock: config.Clock}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	if b.clock == nil {
		b.clock = time.Now
	}
	b.routes.Store(&routes{byName: map[string]*route{}, byType: map[reflect.Type]*route{}})
	b.chain = b.execute
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] == nil {
			panic(fmt.Sprintf("bus: new: middleware %d is nil: leave it out", i+1))
		}
		if b.chain = middleware[i](b.chain); b.chain == nil {
			panic(fmt.Sprintf("bus: new: middleware %d returned a nil handler: return a function that calls next", i+1))
		}
		b.chain = b.guarded(b.chain)
	}
	return b
}

// Handle registers the handler of a command type. Each type has one.
//
// The handler runs under a context that ends with the command's deadline and carries its metadata, with the command's
// id as the causation id, so that what it appends says where it came from. It may run more than once, see
// [Repository.Handle] and [Retry]; what it does beside appending is covered by no key.
//
// Handle panics, naming the remedy, when the name or the Go type has a handler already, and when an argument is missing.
//
// [Repository.Handle]: https://pkg.go.dev/github.com/daybook-go/daybook/aggregate#Repository.Handle
func Handle[C any](b *Bus, t CommandType[C], h func(ctx context.Context, c C) (Reply, error)) {
	if h == nil {
		refuse(t, "the handler is nil: pass the function that carries the command out")
	}
	add(b, t, routing{}, func(ctx context.Context, c *Command) (Reply, error) { return h(ctx, c.Payload.(C)) })
}

// HandleAggregate registers a command that one aggregate decides: id says which, and decide is usually a method
// expression such as Withdraw.Decide. The reply names the stream, its version and the token; it has no Result.
//
// Unless the type says otherwise, commands that travel through the outbox are ordered by that stream. HandleAggregate
// panics as [Handle] does.
func HandleAggregate[C, S, E any](b *Bus, t CommandType[C], repository *aggregate.Repository[S, E], id func(C) string,
	decide func(C, S) ([]E, error), opts ...aggregate.HandleOption) {
	switch {
	case repository == nil:
		refuse(t, "the repository is nil: pass the one that aggregate.NewRepository made")
	case id == nil:
		refuse(t, "id is nil: pass the function that names the aggregate of a command")
	case decide == nil:
		refuse(t, "decide is nil: pass the decision, for example %s.Decide", reflect.TypeFor[C]())
	}
	of := func(payload any) string { return id(payload.(C)) }
	by := routing{
		target: func(payload any) string { return repository.Type().Stream(of(payload)).String() },
		says:   of,
	}
	add(b, t, by, decided(repository, func(c *Command) string { return of(c.Payload) }, decide, opts))
}

// HandleAddressed is [HandleAggregate] for commands that do not say which aggregate decides them: that is what they are
// addressed to, by [To]. The target is always the stream, so a type with the option [Target] is refused. A command that
// is addressed to nobody, or to what cannot be an id, is an [*InvalidCommandError].
//
// A command that is dispatched as it was prepared, stored or sent has its address in Command.Target.
func HandleAddressed[C, S, E any](b *Bus, t CommandType[C], repository *aggregate.Repository[S, E],
	decide func(C, S) ([]E, error), opts ...aggregate.HandleOption) {
	switch {
	case repository == nil:
		refuse(t, "the repository is nil: pass the one that aggregate.NewRepository made")
	case decide == nil:
		refuse(t, "decide is nil: pass the decision, for example %s.Decide", reflect.TypeFor[C]())
	case t.config.target != nil:
		refuse(t, "the type has a Target, but what it is addressed to is its target: leave the option out, or use HandleAggregate")
	}
	add(b, t, routing{stream: repository.Type().Stream}, decided(repository, idInTarget, decide, opts))
}

// decided is the handler of a command that one aggregate decides.
func decided[C, S, E any](repository *aggregate.Repository[S, E], id func(*Command) string, decide func(C, S) ([]E, error),
	opts []aggregate.HandleOption) Handler {
	return func(ctx context.Context, c *Command) (Reply, error) {
		command := c.Payload.(C)
		aggregateID := id(c)
		var refusal error
		result, err := repository.Handle(ctx, aggregateID, func(state S) (events []E, err error) {
			events, err = decide(command, state)
			refusal = err
			return events, err
		}, opts...)
		return Reply{
			Stream: repository.Type().Stream(aggregateID), Version: result.Version, Token: result.Token,
			Attempts: result.Attempts, Repeated: result.Repeated,
			Refused: refusal != nil && errors.Is(err, refusal) && !transient(err),
		}, err
	}
}

// transient reports an error after which the same command may succeed, so that it is no answer.
func transient(err error) bool {
	return eventstore.IsRetryable(err) || errors.Is(err, eventstore.ErrUnconfirmed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		aggregate.IsTransient(err)
}

func add[C any](b *Bus, t CommandType[C], by routing, h Handler) {
	if b == nil {
		refuse(t, "the bus is nil: pass the one that bus.New made")
	}
	if t.name == "" {
		refuse(t, "the type has no name: pass the value that bus.TypeOf made")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known, made := b.routes.Load(), newRoute(t, by, h)
	if other, taken := known.byName[made.name]; taken {
		refuse(t, "the name has a handler already, for %s: give each command a name of its own and register it once", other.goType)
	}
	if other, taken := known.byType[made.goType]; taken {
		refuse(t, "the Go type has a handler already, as %q: declare a type for each command", other.name)
	}
	grown := &routes{byName: maps.Clone(known.byName), byType: maps.Clone(known.byType)}
	grown.byName[made.name], grown.byType[made.goType] = made, made
	b.routes.Store(grown)
}

func refuse[C any](t CommandType[C], format string, args ...any) {
	panic(fmt.Sprintf("bus: handle %q (%s): ", t.name, reflect.TypeFor[C]()) + fmt.Sprintf(format, args...))
}

// Types returns the wire names of the commands that have a handler, sorted. The slice belongs to the caller.
func (b *Bus) Types() []string { return slices.Sorted(maps.Keys(b.routes.Load().byName)) }
