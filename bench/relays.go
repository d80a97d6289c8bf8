package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
)

const (
	// forwarded is how many messages one round of the comparison with the forwarder publishes: so many that it is not the start
	// of either that is measured.
	forwarded = 60_000
	// delivered is how many one round of the comparison of one relay with four publishes.
	delivered = 6_000
	// distance is how long a message needs to the broker, and its acknowledgement back.
	distance = 2 * time.Millisecond
)

// relayFigures compares relays with the forwarder of Watermill, and four of them with one.
func relayFigures(ctx context.Context, e *env) ([]figure, error) {
	store, err := postgres.New(ctx, e.pool, postgres.Config{MaxConns: 32, Routes: route})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var figures []figure
	for _, measure := range []func(context.Context, *env, *postgres.Store) ([]figure, error){againstForwarder, fourRelays} {
		list, err := measure(ctx, e, store)
		if err != nil {
			return figures, err
		}
		figures = append(figures, list...)
	}
	return figures, nil
}

// counting is a broker that costs nothing, and tells when it has got so many events.
type counting struct {
	want int64
	got  atomic.Int64
	all  chan struct{}
}

func newCounting(want int64) *counting { return &counting{want: want, all: make(chan struct{})} }

func (c *counting) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if kind := m.Metadata[outbox.HeaderKind]; kind != "" && kind != "event" {
			continue
		}
		if c.got.Add(1) == c.want {
			close(c.all)
		}
	}
	return nil
}

func (*counting) Close() error { return nil }

// until runs something in the background until a broker has got all, and returns how long that took.
func until(ctx context.Context, all <-chan struct{}, run func(context.Context) error) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- run(ctx) }()
	select {
	case <-all:
		took := time.Since(start)
		stop()
		return took, <-ended
	case err := <-ended:
		return 0, errors.Join(errors.New("it ended before the broker had all"), err)
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), <-ended)
	}
}

// againstForwarder publishes as many messages from the outbox as from the tables of watermill-sql, into a broker that costs
// nothing, and into a JetStream in this process, which confirms each.
func againstForwarder(ctx context.Context, e *env, store *postgres.Store) ([]figure, error) {
	free, err := forwarderRatio(ctx, e, store, "a broker that costs nothing", nil)
	if err != nil {
		return nil, err
	}
	broker, err := startJetStream(0)
	if err != nil {
		return nil, err
	}
	defer broker.close()
	publisher, err := broker.direct()
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	confirmed, err := forwarderRatio(ctx, e, store, "JetStream", publisher)
	return []figure{free, confirmed}, err
}

func forwarderRatio(ctx context.Context, e *env, store *postgres.Store, name string, broker message.Publisher) (figure, error) {
	into := func(count *counting) message.Publisher {
		if broker == nil {
			return count
		}
		open := make(chan struct{})
		close(open)
		return then{broker, count, open}
	}
	queue := wsql.SubscriberConfig{
		SchemaAdapter:    wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }, SubscribeBatchSize: 500},
		OffsetsAdapter:   wsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}
	ratios := make([]float64, 0, rounds)
	for range rounds {
		if err := fillQueue(ctx, e.pool, queue, forwarded); err != nil {
			return figure{}, err
		}
		to := newCounting(forwarded)
		theirs, err := until(ctx, to.all, func(ctx context.Context) error { return forward(ctx, e.pool, queue, into(to)) })
		if err != nil {
			return figure{}, fmt.Errorf("forwarder: %w", err)
		}
		if err := appendEvents(ctx, store, forwarded); err != nil {
			return figure{}, err
		}
		to = newCounting(forwarded)
		ours, err := until(ctx, to.all, func(ctx context.Context) error {
			relay, err := outbox.NewRelay(e.pool, store.Outbox(), into(to), outbox.Config{})
			if err != nil {
				return err
			}
			return relay.Run(ctx)
		})
		if err != nil {
			return figure{}, fmt.Errorf("relay: %w", err)
		}
		fmt.Printf("  %d messages by the forwarder in %s, by a relay in %s\n", forwarded, theirs.Round(time.Millisecond), ours.Round(time.Millisecond))
		ratios = append(ratios, theirs.Seconds()/ours.Seconds())
	}
	return newFigure("relays", "relay into "+name, "", "watermill-sql 4.1 and Watermill's forwarder", 5, true, ratios), nil
}

// forwarderTopic is where messages wait for the forwarder.
const forwarderTopic = "bench_forwarder"

func fillQueue(ctx context.Context, pool *pgxpool.Pool, queue wsql.SubscriberConfig, n int) error {
	beginner := wsql.BeginnerFromPgx(pool)
	prepare, err := wsql.NewSubscriber(beginner, queue, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := errors.Join(prepare.SubscribeInitialize(forwarderTopic), prepare.Close()); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		into, err := wsql.NewPublisher(wsql.TxFromPgx(tx), wsql.PublisherConfig{SchemaAdapter: queue.SchemaAdapter}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		enveloped := forwarder.NewPublisher(into, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
		for sent := 0; sent < n; sent += 500 {
			messages := make([]*message.Message, 0, 500)
			for range min(500, n-sent) {
				messages = append(messages, message.NewMessage(uuid.NewString(), payload))
			}
			if err := enveloped.Publish(topic, messages...); err != nil {
				return err
			}
		}
		return nil
	})
}

func forward(ctx context.Context, pool *pgxpool.Pool, queue wsql.SubscriberConfig, to message.Publisher) error {
	from, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), queue, watermill.NopLogger{})
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(from, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic, CloseTimeout: time.Second})
	if err != nil {
		return err
	}
	return errors.Join(f.Run(ctx), from.Close())
}

// appenders is how many append at one time what is to be published.
const appenders = 8

// appendEvents appends n events, three at a time, to as many streams, so that all partitions have their share.
func appendEvents(ctx context.Context, store *postgres.Store, n int) error {
	ctx = eventstore.WithMetadata(ctx, sample)
	run := benchRun.Add(1)
	var next atomic.Int64
	ended := make(chan error, appenders)
	for range appenders {
		go func() {
			for {
				i := next.Add(1)
				if i > int64(n/eventsPerAppend) {
					ended <- nil
					return
				}
				events := make([]eventstore.EventData, eventsPerAppend)
				for k := range events {
					events[k] = eventstore.EventData{Type: "account.deposited", ContentType: eventstore.Msgpack.ContentType(), Data: payload}
				}
				stream := eventstore.NewStreamID("account", fmt.Sprintf("relay-%d-%d", run, i))
				if _, err := store.Append(ctx, eventstore.To(stream, eventstore.NoStream, events...)); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	var err error
	for range appenders {
		err = errors.Join(err, <-ended)
	}
	return err
}

// fourRelays compares four relays with one, before a JetStream that is some milliseconds away: on this machine all share
// the processors, so that without a distance nothing but these would be measured.
func fourRelays(ctx context.Context, e *env, store *postgres.Store) ([]figure, error) {
	broker, err := startJetStream(distance)
	if err != nil {
		return nil, err
	}
	defer broker.close()
	ratios := make([]float64, 0, rounds)
	for range rounds {
		var took [2]time.Duration
		for i, relays := range [2]int{1, 4} {
			if took[i], err = publishWith(ctx, e, store, broker, relays); err != nil {
				return nil, fmt.Errorf("%d relays: %w", relays, err)
			}
		}
		fmt.Printf("  %d messages by one relay in %s, by four in %s\n", delivered, took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	return []figure{newFigure("relays", fmt.Sprintf("four relays, JetStream %s away", 2*distance), "", "one relay", 2, true, ratios)}, nil
}

// publishWith lets relays share the segments first, so that only publishing is measured.
func publishWith(ctx context.Context, e *env, store *postgres.Store, broker *jetStream, n int) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	to := newCounting(delivered)
	open := make(chan struct{}) // closed until all is appended, so that appending is not measured
	ended := make(chan error, n)
	for range n {
		publisher, err := broker.publisher()
		if err != nil {
			return 0, err
		}
		defer publisher.Close()
		relay, err := outbox.NewRelay(e.pool, store.Outbox(), then{publisher, to, open}, outbox.Config{Lease: time.Second})
		if err != nil {
			return 0, err
		}
		go func() { ended <- relay.Run(ctx) }()
	}
	if err := eventually(ctx, func() (bool, error) { return shared(ctx, e.pool, n) }); err != nil {
		return 0, fmt.Errorf("the relays do not share: %w", err)
	}
	if err := appendEvents(ctx, store, delivered); err != nil {
		return 0, err
	}
	start := time.Now()
	close(open)
	select {
	case <-to.all:
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d messages arrived: %w", to.got.Load(), delivered, ctx.Err())
	}
	took := time.Since(start)
	stop()
	var err error
	for range n {
		err = errors.Join(err, <-ended)
	}
	return took, err
}

// shared reports whether n relays own all segments, and have published all that there was.
func shared(ctx context.Context, pool *pgxpool.Pool, n int) (ok bool, err error) {
	err = pool.QueryRow(ctx, `
SELECT count(DISTINCT owner) FILTER (WHERE owner <> '' AND expires_at > clock_timestamp()) = $1 AND bool_and(owner <> '')
   AND min(floor) >= (SELECT coalesce(max(last_position), 0) FROM daybook.outbox)
  FROM daybook.segments WHERE consumer = 'outbox-relay'`, n).Scan(&ok)
	return ok, err
}

func eventually(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// then publishes when it may, and counts what was taken.
type then struct {
	message.Publisher
	count *counting
	open  <-chan struct{}
}

func (t then) Publish(topic string, messages ...*message.Message) error {
	select {
	case <-t.open:
	case <-messages[0].Context().Done():
		return messages[0].Context().Err()
	}
	if err := t.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	return t.count.Publish(topic, messages...)
}
