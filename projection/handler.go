package projection

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Projection is a read model made by handlers, for what is not a fold per key. Its tables are the user's.
//
// A Projection is immutable. Handlers run one after the other in the order of the log; in an inline projection several
// appends run them at once.
type Projection struct {
	// Name and Version are the consumer's. Another version starts at the beginning of the log.
	Name    string
	Version int
	// Events names the event types of the handlers.
	Events   *eventstore.Catalog
	Handlers []Handler
	// Setup, if set, is run by [Install] when it registers this version, in the same transaction: for the tables. The
	// schema readmodels is there.
	Setup func(ctx context.Context, tx pgx.Tx) error
	// Inline: the handlers run in the append's own transaction, through [Inline], and not in a [Runner].
	Inline bool
	// StoreSchema is the schema of the event store. Default "daybook".
	StoreSchema string
}

// Handler says what events of one Go type do. Make it with [Handle].
type Handler struct {
	event reflect.Type
	run   func(ctx context.Context, tx pgx.Tx, payload any, r *eventstore.RecordedEvent) error
}

// Handle calls f for each event of type E. What f writes through tx commits together with the projection's place in
// the log, and f must touch nothing else, because it runs again when its batch is repeated. tx is committed by the
// runner: Commit and Rollback refuse, Begin gives a savepoint. An error, or a panic, takes back what the event has done;
// what becomes of it then is up to [Config].OnFailure.
//
// A handler must not rest longer than the runner's lease between two statements, and must watch ctx, which ends when its
// time is over; see [Config].Timeout.
func Handle[E any](f func(ctx context.Context, tx pgx.Tx, e Event[E]) error) Handler {
	return Handler{
		event: reflect.TypeFor[E](),
		run: func(ctx context.Context, tx pgx.Tx, payload any, r *eventstore.RecordedEvent) error {
			e, err := typed[E](payload, r)
			if err != nil {
				return err
			}
			return f(ctx, tx, e)
		},
	}
}

// Attempt says how often the event that a handler was given with ctx has been tried, this time included: 1 for what has
// never failed. Attempts after a redrive go on counting. Runs that were rolled back for another event's sake do not count.
func Attempt(ctx context.Context) int { return consumer.Attempt(ctx) }

// ConsumerRef implements [Named].
func (p Projection) ConsumerRef() consumer.Ref { return refFor(p.StoreSchema, p.Name, p.Version) }

func (p Projection) define() (*definition, error) {
	faults := []error{checkName(p.Name, p.Version)}
	h := &handlers{name: p.Name, catalog: p.Events, byType: map[reflect.Type][]Handler{}}
	var types []reflect.Type
	for i, one := range p.Handlers {
		if one.run == nil {
			faults = append(faults, fmt.Errorf("field Handlers[%d]: is zero: make it with Handle", i))
			continue
		}
		if _, ok := h.byType[one.event]; !ok {
			types = append(types, one.event)
		}
		h.byType[one.event] = append(h.byType[one.event], one)
	}
	names, err := wireNames(p.Events, types, "Handlers")
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return &definition{
		ref: p.ConsumerRef(), inline: p.Inline, types: names, fingerprint: "handlers", applier: h, setup: p.Setup,
		locks: func(events []eventstore.RecordedEvent) (locker, error) { return h.plan(events) },
	}, nil
}

type handlers struct {
	name    string
	catalog *eventstore.Catalog
	byType  map[reflect.Type][]Handler
}

// Relaxed: handlers may do what must not be lost, such as appending events.
func (h *handlers) Relaxed() bool { return false }

// Plan implements [consumer.Applier].
func (h *handlers) Plan(_ context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	return h.plan(events)
}

func (h *handlers) plan(events []eventstore.RecordedEvent) (*handlerPlan, error) {
	p := &handlerPlan{h: h, events: events, payloads: make([]any, len(events))}
	for i := range events {
		payload, err := decode(h.catalog, events[i])
		if err != nil {
			return nil, &consumer.EventError{Index: i, Err: err}
		}
		p.payloads[i] = payload
	}
	return p, nil
}

type handlerPlan struct {
	h        *handlers
	events   []eventstore.RecordedEvent
	payloads []any
}

// Load implements [consumer.Plan].
func (p *handlerPlan) Load(*pgx.Batch) {}

func (p *handlerPlan) lockKeys() []int64 { return nil }

// Apply implements [consumer.Plan].
func (p *handlerPlan) Apply(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	guarded := consumer.Guard(tx)
	for i := range p.events {
		for _, one := range p.h.byType[reflect.TypeOf(p.payloads[i])] {
			err := ctx.Err()
			if err == nil {
				err = p.run(ctx, guarded, one, i)
			}
			if err == nil {
				err = consumer.CheckOpen(tx)
			}
			if err != nil {
				return &consumer.EventError{Index: i, Err: err}
			}
		}
	}
	return nil
}

func (p *handlerPlan) run(ctx context.Context, tx pgx.Tx, one Handler, i int) (err error) {
	defer recovered("a handler of projection "+p.h.name, &err)
	return one.run(ctx, tx, p.payloads[i], &p.events[i])
}
