package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projection"
)

const topic = "bench"

var route = []eventstore.Route{{Topic: topic}}

// streamFigures measures what publishing costs an append, how fast a relay publishes, and how fast what comes by a Go
// channel is applied.
func streamFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32, Routes: route})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var figures []figure
	for _, measure := range []func(context.Context, *env, *postgres.Store) ([]figure, error){outboxCost, relayRate, applyRate} {
		list, err := measure(ctx, e, store)
		if err != nil {
			return figures, err
		}
		figures = append(figures, list...)
	}
	return figures, nil
}

// outboxCost compares appends of a store that publishes with appends of one that does not.
func outboxCost(ctx context.Context, e *env, with *postgres.Store) ([]figure, error) {
	without, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32})
	if err != nil {
		return nil, err
	}
	defer without.Close()
	var figures []figure
	for _, callers := range []int{1, 32} {
		ratios := make([]float64, 0, rounds)
		for _, store := range []*postgres.Store{without, with} { // warm connections, plans and pages
			if _, err := appendFor(ctx, store, callers, slot/4); err != nil {
				return nil, err
			}
		}
		for range rounds {
			plain, err := appendFor(ctx, without, callers, slot)
			if err != nil {
				return nil, err
			}
			routed, err := appendFor(ctx, with, callers, slot)
			if err != nil {
				return nil, err
			}
			fmt.Printf("  %d callers: without outbox row %.0f/s, with %.0f/s\n", callers, plain, routed)
			ratios = append(ratios, routed/plain)
		}
		figures = append(figures, newFigure("stream", fmt.Sprintf("append with outbox row, %d callers", callers), "",
			"the same append without", 0.75, true, ratios))
	}
	return figures, nil
}

// relayRate compares how fast a relay empties the outbox into a Go channel with how fast appends filled it.
func relayRate(ctx context.Context, e *env, store *postgres.Store) ([]figure, error) {
	if err := relayAll(ctx, e.pool, store, discard{}); err != nil { // what the figures before have left
		return nil, err
	}
	ratios := make([]float64, 0, rounds)
	for range rounds {
		appends, err := appendFor(ctx, store, 32, slot)
		if err != nil {
			return nil, err
		}
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		messages, err := channel.Subscribe(ctx, topic)
		if err != nil {
			return nil, err
		}
		var received atomic.Int64
		var drained sync.WaitGroup
		drained.Go(func() {
			for m := range messages {
				if m.Metadata[outbox.HeaderKind] == "event" {
					received.Add(1)
				}
				m.Ack()
			}
		})
		start := time.Now()
		err = relayAll(ctx, e.pool, store, channel)
		took := time.Since(start)
		err = errors.Join(err, channel.Close())
		drained.Wait()
		if err != nil {
			return nil, err
		}
		published := float64(received.Load()) / took.Seconds()
		fmt.Printf("  appended %.0f events/s, published %.0f/s\n", appends*eventsPerAppend, published)
		ratios = append(ratios, published/(appends*eventsPerAppend))
	}
	return []figure{newFigure("stream", "relay into a Go channel, events/s", "", "the append rate of 32 callers, with outbox rows", 0.8, true, ratios)}, nil
}

// relayAll runs a relay until everything is published.
func relayAll(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, to message.Publisher) error {
	head, err := store.SafeHead(ctx)
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(pool, store.Outbox(), to, outbox.Config{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	err = eventually(ctx, func() (done bool, err error) {
		err = pool.QueryRow(ctx, `SELECT count(*) > 0 AND min(floor) >= $1 FROM daybook.segments WHERE consumer = 'outbox-relay'`, head.Ordinal()).Scan(&done)
		return done, err
	})
	stop()
	return errors.Join(err, <-ended)
}

// discard is a broker that keeps nothing.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }

// recorder is a broker that keeps what was published.
type recorder struct {
	mu       sync.Mutex
	messages []*message.Message
}

func (r *recorder) Publish(_ string, messages ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, messages...)
	return nil
}

func (r *recorder) Close() error { return nil }

// handOver is a broker that costs nothing: what is sent is received. Acknowledgements are not waited for.
type handOver chan *message.Message

func (h handOver) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case m := <-h:
				select {
				case out <- m:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (handOver) Close() error { return nil }

// applyEvents are the events of one round.
const applyEvents = 20_000

// applyRate compares a read model that is fed by a subscription with one that reads the log, over the same events. The
// broker is none, so that what is measured is the subscription.
func applyRate(ctx context.Context, e *env, store *postgres.Store) ([]figure, error) {
	byLog, byStream := totals, totals
	byLog.Name, byStream.Name = "by_log", "by_stream"
	if err := projection.Install(ctx, e.pool, byLog, byStream); err != nil {
		return nil, err
	}
	channel := make(handOver)
	source, err := outbox.NewSubscription(store.Outbox(), channel, outbox.SubscriptionConfig{
		Topic: topic, Group: "bench", CatchUp: store.Log(), Silence: time.Hour, // the store must not help
	})
	if err != nil {
		return nil, err
	}
	streamed, err := projection.NewRunner(e.pool, source, projection.Config{}, byStream)
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- streamed.Run(following) }()
	ratios, err := applyRatios(ctx, e, store, channel, byLog, byStream)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	if s := source.Stats(); s.Filled > 0 || s.Silences > 0 {
		return nil, fmt.Errorf("the outbox was read beside the channel: %+v", s)
	}
	return []figure{newFigure("stream", "subscription → applied, events/s", "", "applying the same events from the log", 0.5, true, ratios)}, nil
}

func applyRatios(ctx context.Context, e *env, store *postgres.Store, channel handOver, byLog, byStream projection.Named) ([]float64, error) {
	ratios := make([]float64, 0, rounds)
	waiter := projection.NewWaiter(e.pool, projection.WaiterConfig{})
	fromLog, err := projection.NewRunner(e.pool, store.Log(), projection.Config{}, byLog.(projection.Definition))
	if err != nil {
		return nil, err
	}
	for round := range rounds + 1 {
		token, err := seedCounters(ctx, store, round)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		if err := fromLog.CatchUp(ctx, token); err != nil {
			return nil, err
		}
		log := time.Since(start)
		sent := &recorder{}
		if err := relayAll(ctx, e.pool, store, sent); err != nil {
			return nil, err
		}
		start = time.Now()
		for _, m := range sent.messages {
			channel <- m
		}
		if err := waiter.WaitFor(ctx, token, byStream); err != nil {
			return nil, err
		}
		stream := time.Since(start)
		if round == 0 {
			continue // the first also passes by what other figures have left
		}
		fmt.Printf("  %d events applied from the log in %s, from the subscription in %s\n", applyEvents, log.Round(time.Millisecond), stream.Round(time.Millisecond))
		ratios = append(ratios, log.Seconds()/stream.Seconds())
	}
	return ratios, nil
}

func seedCounters(ctx context.Context, store *postgres.Store, round int) (token eventstore.Token, err error) {
	const perStream = 100
	for n := range applyEvents / perStream {
		events := make([]eventstore.EventData, perStream)
		for i := range events {
			data, err := counter.Catalog().Encode(counted{Cents: int64(i)})
			if err != nil {
				return token, err
			}
			events[i] = data
		}
		stream := eventstore.NewStreamID("counter", fmt.Sprintf("%d-%d", round, n))
		result, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, events...))
		if err != nil {
			return token, err
		}
		if token, err = token.Merge(result.Token); err != nil {
			return token, err
		}
	}
	return token, nil
}
