package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/projection"
)

type counted struct{ Cents int64 }

var (
	counter = aggregate.Define("counter", func(s int64, e counted) int64 { return s + e.Cents },
		eventstore.NewCatalog(eventstore.TypeOf[counted]("counter.counted")))

	totals = projection.View[string, int64]{
		Name: "totals", Version: 1, Events: counter.Catalog(),
		Folds: []projection.Fold[string, int64]{
			projection.On(projection.ByStream, func(total int64, e projection.Event[counted]) int64 { return total + e.Payload.Cents }),
		},
	}
)

// commandsPerRound are measured one by one, each after the system has come to rest.
const commandsPerRound = 300

// latencyFigures measures from the call of a command to the moment at which its row can be read, on an idle system:
// load, decide, append, wake-up, projection and wait. The unit is the round trip of SELECT 1 in the same round.
func latencyFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	stop, err := followTotals(ctx, e, store)
	if err != nil {
		return nil, err
	}
	ratios, err := commandRatios(ctx, e.pool, aggregate.NewRepository(store, counter))
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return []figure{newFigure("latency", "command → visible in the read model, idle", "×", "the round trip of SELECT 1", 20, false, ratios)}, nil
}

// followTotals keeps the read model up to date until stop is called.
func followTotals(ctx context.Context, e *env, store *postgres.Store) (stop func() error, err error) {
	if err := projection.Install(ctx, e.pool, totals); err != nil {
		return nil, err
	}
	runner, err := projection.NewRunner(e.pool, store.Log(), projection.Config{}, totals)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- runner.Run(ctx) }()
	go func() { ended <- store.Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-ended, <-ended)
	}, nil
}

func commandRatios(ctx context.Context, pool *pgxpool.Pool, counters *aggregate.Repository[int64, counted]) ([]float64, error) {
	ratios := make([]float64, 0, rounds)
	for round := range rounds + 1 {
		var trips, commands []time.Duration
		for range commandsPerRound {
			trip, err := roundTrip(ctx, pool)
			if err != nil {
				return nil, err
			}
			command, err := commandToVisible(ctx, pool, counters)
			if err != nil {
				return nil, err
			}
			trips, commands = append(trips, trip), append(commands, command)
		}
		if round == 0 {
			continue // warm connections and plans
		}
		fmt.Printf("  SELECT 1 %s, command → visible %s\n", middle(trips), middle(commands))
		ratios = append(ratios, float64(middle(commands))/float64(middle(trips)))
	}
	return ratios, nil
}

func roundTrip(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	start := time.Now()
	var one int
	err := pool.QueryRow(ctx, "SELECT 1").Scan(&one)
	return time.Since(start), err
}

func commandToVisible(ctx context.Context, pool *pgxpool.Pool, counters *aggregate.Repository[int64, counted]) (time.Duration, error) {
	id := uuid.NewString()
	start := time.Now()
	result, err := counters.Handle(ctx, id, func(int64) ([]counted, error) { return []counted{{Cents: 1}}, nil })
	if err != nil {
		return 0, err
	}
	if err := projection.NewWaiter(pool, projection.WaiterConfig{}).WaitFor(ctx, result.Token, totals); err != nil {
		return 0, err
	}
	took := time.Since(start)
	total, err := totals.Get(ctx, pool, id) // what the waiter promised, and not part of the time
	if err == nil && total != 1 {
		err = fmt.Errorf("the read model says %d, want 1", total)
	}
	return took, err
}

func middle(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2].Round(time.Microsecond)
}
