package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projection"
)

const pacedCallers = 8

// streamLatencyFigures measures from the answer of an append to the moment at which its row can be read, through relay
// and Go channel, while appends come at half the rate that the whole pipeline reaches.
func streamLatencyFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 16, Routes: route})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	stop, err := pipeline(ctx, e, store)
	if err != nil {
		return nil, err
	}
	ratios := make([]float64, 0, rounds)
	for round := range rounds + 1 {
		var ratio float64
		if ratio, err = pacedRatio(ctx, e, store, round); err != nil {
			break
		}
		if round > 0 {
			ratios = append(ratios, ratio)
		}
	}
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return []figure{newFigure("streamlatency", "commit → applied by relay and channel, half load", "×", "the round trip of SELECT 1 under the same load", 60, false, ratios)}, nil
}

// pipeline runs relay and read model until stop is called.
func pipeline(ctx context.Context, e *env, store *postgres.Store) (stop func() error, err error) {
	if err := projection.Install(ctx, e.pool, totals); err != nil {
		return nil, err
	}
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	relay, err := outbox.NewRelay(e.pool, store.Outbox(), channel, outbox.Config{})
	if err != nil {
		return nil, err
	}
	source, err := outbox.NewSubscription(store.Outbox(), channel, outbox.SubscriptionConfig{Topic: topic, Group: "bench", CatchUp: store.Log()})
	if err != nil {
		return nil, err
	}
	runner, err := projection.NewRunner(e.pool, source, projection.Config{}, totals)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{store.Run, relay.Run, runner.Run} {
		go func() { ended <- run(ctx) }()
	}
	return func() error {
		cancel()
		return errors.Join(<-ended, <-ended, <-ended, channel.Close())
	}, nil
}

func pacedRatio(ctx context.Context, e *env, store *postgres.Store, round int) (float64, error) {
	full, err := sustained(ctx, e, store, fmt.Sprintf("%d-full", round))
	if err != nil {
		return 0, err
	}
	var idle []time.Duration
	for range 200 {
		trip, err := roundTrip(ctx, e.pool)
		if err != nil {
			return 0, err
		}
		idle = append(idle, trip)
	}
	every := time.Duration(pacedCallers * 2 / full * float64(time.Second))
	asking, enough := context.WithCancel(ctx)
	defer enough()
	var trips []time.Duration
	asked := make(chan error, 1)
	go func() {
		for asking.Err() == nil {
			trip, err := roundTrip(ctx, e.pool)
			if err != nil {
				asked <- err
				return
			}
			trips = append(trips, trip)
			time.Sleep(5 * time.Millisecond) // the questions must not be a load themselves
		}
		asked <- nil
	}()
	half, err := paced(ctx, e, store, fmt.Sprintf("%d-half", round), every, slot)
	enough()
	if err := errors.Join(err, <-asked); err != nil {
		return 0, err
	}
	fmt.Printf("  full load %.0f appends/s; half load %.0f/s, applied after %s; SELECT 1 under that load %s, idle %s\n", full,
		float64(len(half))/slot.Seconds(), middle(half), middle(trips), middle(idle))
	return float64(middle(half)) / float64(middle(trips)), nil
}

// sustained is the rate of appends, with as many callers, at which everything is applied as well.
func sustained(ctx context.Context, e *env, store *postgres.Store, name string) (float64, error) {
	var mu sync.Mutex
	var all eventstore.Token
	n := 0
	var wg sync.WaitGroup
	errs := make(chan error, pacedCallers)
	start := time.Now()
	for caller := range pacedCallers {
		wg.Go(func() {
			for i := 0; time.Since(start) < slot; i++ {
				token, err := appendCounted(ctx, store, fmt.Sprintf("%s-%d-%d", name, caller, i))
				if err == nil {
					mu.Lock()
					all, err = all.Merge(token)
					n++
					mu.Unlock()
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	err := projection.NewWaiter(e.pool, projection.WaiterConfig{}).WaitFor(ctx, all, totals)
	return float64(n) / time.Since(start).Seconds(), err
}

// paced appends three events per caller and waits until they are applied, one append every so often.
func paced(ctx context.Context, e *env, store *postgres.Store, name string, every, d time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	errs := make(chan error, pacedCallers)
	start := time.Now()
	for caller := range pacedCallers {
		wg.Go(func() {
			waiter := projection.NewWaiter(e.pool, projection.WaiterConfig{})
			due := start
			for n := 0; time.Since(start) < d; n++ {
				one, err := appendAndWait(ctx, store, waiter, fmt.Sprintf("%s-%d-%d", name, caller, n))
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
				due = due.Add(every)
				time.Sleep(time.Until(due)) // the pace of the load
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
		return took, nil
	}
}

func appendAndWait(ctx context.Context, store *postgres.Store, waiter *projection.Waiter, id string) (time.Duration, error) {
	token, err := appendCounted(ctx, store, id)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = waiter.WaitFor(ctx, token, totals)
	return time.Since(start), err
}

func appendCounted(ctx context.Context, store *postgres.Store, id string) (eventstore.Token, error) {
	events := make([]eventstore.EventData, eventsPerAppend)
	for i := range events {
		data, err := counter.Catalog().Encode(counted{Cents: 1})
		if err != nil {
			return eventstore.Token{}, err
		}
		events[i] = data
	}
	result, err := store.Append(ctx, eventstore.To(eventstore.NewStreamID("counter", id), eventstore.NoStream, events...))
	return result.Token, err
}
