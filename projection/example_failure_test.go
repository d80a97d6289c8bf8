package projection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/deadletter"
	"github.com/daybook-go/daybook/projection"
)

// Ordered says that pieces of an article were ordered.
type Ordered struct {
	Article string
	Pieces  int64
}

var (
	orderEvents = eventstore.NewCatalog(eventstore.TypeOf[Ordered]("order.ordered"))
	errUnknown  = errors.New("unknown article")
)

// picking sends orders to the shelves, which must know the article.
func picking(known *atomic.Bool) projection.Projection {
	return projection.Projection{
		Name: "picking", Version: 1, Events: orderEvents,
		Setup: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TABLE picks (n bigint GENERATED ALWAYS AS IDENTITY, pick text)")
			return err
		},
		Handlers: []projection.Handler{projection.Handle(func(ctx context.Context, tx pgx.Tx, e projection.Event[Ordered]) error {
			if e.Payload.Article == "quince" && !known.Load() {
				return fmt.Errorf("order %s: %w", e.Stream.ID, errUnknown)
			}
			_, err := tx.Exec(ctx, "INSERT INTO picks (pick) VALUES ($1)", fmt.Sprint(e.Payload.Pieces, " ", e.Payload.Article, " for ", e.Stream.ID))
			return err
		})},
	}
}

// shop is a store with a PostgreSQL of its own.
type shop struct {
	pool  *pgxpool.Pool
	store *postgres.Store
}

// withShop runs f, which prints what it finds.
func withShop(f func(ctx context.Context, s shop) error) {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
		return f(ctx, shop{pool, store})
	})
}

// order appends an order of a customer's, and returns the token of it.
func (s shop) order(ctx context.Context, customer, article string, pieces int64) (eventstore.Token, error) {
	event, err := orderEvents.Encode(Ordered{article, pieces})
	if err != nil {
		return eventstore.Token{}, err
	}
	r, err := s.store.Append(ctx, eventstore.To(eventstore.NewStreamID("order", customer), eventstore.AnyVersion, event))
	return r.Token, err
}

// run runs a projection while f works.
func (s shop) run(ctx context.Context, cfg projection.Config, p projection.Projection, f func(*projection.Runner) error) error {
	if err := projection.Install(ctx, s.pool, p); err != nil {
		return err
	}
	runner, err := projection.NewRunner(s.pool, s.store.Log(), cfg, p)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()
	err = f(runner)
	stop()
	return errors.Join(err, <-ended)
}

func (s shop) printPicks(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, "SELECT pick FROM picks ORDER BY n")
	if err != nil {
		return err
	}
	picks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, pick := range picks {
		fmt.Println(pick)
	}
	return err
}

// A classifier says which failures no other attempt can mend, and which mean that something is away. The rest is tried
// again.
func ExampleConfig_classify() {
	withShop(func(ctx context.Context, s shop) error {
		cfg := projection.Config{Classify: func(err error) eventstore.FailureKind {
			if errors.Is(err, errUnknown) {
				return eventstore.Permanent // parked at the first attempt
			}
			return eventstore.Transient
		}}
		return s.run(ctx, cfg, picking(new(atomic.Bool)), func(r *projection.Runner) error {
			bad, err := s.order(ctx, "ada", "quince", 3)
			if err != nil {
				return err
			}
			good, err := s.order(ctx, "bob", "pear", 2)
			if err != nil {
				return err
			}
			waiter := projection.NewWaiter(s.pool, projection.WaiterConfig{})
			fmt.Println("bob:", waiter.WaitFor(ctx, good, picking(nil)))
			var parked *projection.ParkedError
			if errors.As(waiter.WaitFor(ctx, bad, picking(nil)), &parked) {
				fmt.Println("ada:", parked.Sequence, "is", parked.State, "- ask again in", parked.RetryAfter(time.Now()))
			}
			h := r.Health(ctx)
			fmt.Println("ready:", h.Ready, h.State)
			return s.printPicks(ctx)
		})
	})
	// Output:
	// bob: <nil>
	// ada: order-ada is parked - ask again in 1m0s
	// ready: true degraded
	// 2 pear for bob
}

// What failed waits as a dead letter, and what comes later of its stream waits behind it. When the cause is mended it is
// tried again, and the rest follows in order.
func ExampleParkedError() {
	withShop(func(ctx context.Context, s shop) error {
		var known atomic.Bool
		p := picking(&known)
		return s.run(ctx, projection.Config{Attempts: 1}, p, func(*projection.Runner) error {
			var last eventstore.Token
			for _, o := range []Ordered{{"apple", 1}, {"quince", 3}, {"pear", 2}} {
				var err error
				if last, err = s.order(ctx, "ada", o.Article, o.Pieces); err != nil {
					return err
				}
			}
			waiter := projection.NewWaiter(s.pool, projection.WaiterConfig{})
			var parked *projection.ParkedError
			fmt.Println(errors.As(waiter.WaitFor(ctx, last, p), &parked), parked.Sequence, parked.State)
			if err := s.printPicks(ctx); err != nil {
				return err
			}

			known.Store(true)
			letters, err := deadletter.New(s.pool, deadletter.Config{})
			if err != nil {
				return err
			}
			plan, err := letters.Redrive(ctx, deadletter.One(parked.Letter), deadletter.Options{Actor: "ann", Reason: "quinces have a shelf now"})
			if err != nil {
				return err
			}
			for errors.Is(waiter.WaitFor(ctx, last, p), projection.ErrParked) { // the owner looks for plans once a second
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
			plan, err = letters.Plan(ctx, plan.ID)
			fmt.Println("the plan:", plan.Succeeded, "succeeded", err)
			return s.printPicks(ctx)
		})
	})
	// Output:
	// true order-ada parked
	// 1 apple for ada
	// the plan: 1 succeeded <nil>
	// 1 apple for ada
	// 3 quince for ada
	// 2 pear for ada
}

// With Stop nothing goes on without an event that fails: the projection stands still just before it.
func ExampleOnFailure() {
	withShop(func(ctx context.Context, s shop) error {
		cfg := projection.Config{OnFailure: projection.Stop, Attempts: 2}
		return s.run(ctx, cfg, picking(new(atomic.Bool)), func(*projection.Runner) error {
			for _, o := range []struct{ customer, article string }{{"ada", "apple"}, {"ada", "quince"}} {
				if _, err := s.order(ctx, o.customer, o.article, 1); err != nil {
					return err
				}
			}
			last, err := s.order(ctx, "bob", "pear", 1)
			if err != nil {
				return err
			}
			err = projection.NewWaiter(s.pool, projection.WaiterConfig{}).WaitFor(ctx, last, picking(nil))
			var stopped *projection.StoppedError
			fmt.Println(errors.As(err, &stopped), stopped.State)
			return s.printPicks(ctx)
		})
	})
	// Output:
	// true stopped
	// 1 apple for ada
}
