package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/projection"
)

const (
	hotWriters   = 64
	quietAppends = 100
	quietEvery   = 5 * time.Millisecond
)

// hotFigures measures how long a quiet stream takes from its commit to the read model, alone and beside 64 writers that
// queue for one hot stream. A writer that waits must not hold the head of the log: if waiting writers were registered
// already, the quiet stream would become readable hundreds of milliseconds later. The hot stream's own load on the
// machine is part of the ratio.
func hotFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: hotWriters + 8})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	stop, err := followTotals(ctx, e, store)
	if err != nil {
		return nil, err
	}
	ratios, err := hotRatios(ctx, e, store)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return []figure{newFigure("hot", "quiet stream → read model, beside 64 writers on one stream", "×", "the same stream alone", 10, false, ratios)}, nil
}

func hotRatios(ctx context.Context, e *env, store *postgres.Store) ([]float64, error) {
	ratios := make([]float64, 0, rounds)
	for range rounds {
		alone, err := quietDelay(ctx, e, store)
		if err != nil {
			return nil, err
		}
		writing, stop := context.WithCancel(ctx)
		var writers sync.WaitGroup
		hot := counter.Stream(uuid.NewString())
		for range hotWriters {
			writers.Go(func() {
				for writing.Err() == nil {
					// The end of the round cuts the last append off; its answer does not matter.
					_, _ = store.Append(writing, eventstore.To(hot, eventstore.AnyVersion, count()))
				}
			})
		}
		beside, err := quietDelay(ctx, e, store)
		stop()
		writers.Wait()
		if err != nil {
			return nil, err
		}
		fmt.Printf("  alone %s, beside the hot stream %s\n", alone, beside)
		ratios = append(ratios, float64(beside)/float64(alone))
	}
	return ratios, nil
}

// quietDelay is the median time from the answer of an append to its row.
func quietDelay(ctx context.Context, e *env, store *postgres.Store) (time.Duration, error) {
	var delays []time.Duration
	ticker := time.NewTicker(quietEvery)
	defer ticker.Stop()
	for range quietAppends {
		<-ticker.C
		id := uuid.NewString()
		result, err := store.Append(ctx, eventstore.To(counter.Stream(id), eventstore.NoStream, count()))
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if _, err := totals.Get(ctx, e.pool, id, projection.AtLeast(result.Token)); err != nil {
			return 0, err
		}
		delays = append(delays, time.Since(start))
	}
	return middle(delays), nil
}

func count() eventstore.EventData {
	data, err := counter.Catalog().Encode(counted{Cents: 1})
	if err != nil {
		panic(err) // a constant value of a registered type
	}
	return data
}
