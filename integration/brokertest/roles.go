package brokertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/integration"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projection"
)

// lease is short, so that a tenth of the size sees many takeovers.
const lease = time.Second

// role is what a process is told.
type role struct {
	Kind     string // "relay", "consumer" or "broker"
	Name     string
	Database string // URL
	Broker   string // address
	Folder   string // of a broker's data
}

// play runs a role until ctx ends.
func play(ctx context.Context, c Clients, r role, out io.Writer) error {
	if r.Kind == "broker" {
		return c.Serve(r.Broker, r.Folder)
	}
	cfg, err := pgxpool.ParseConfig(r.Database)
	if err != nil {
		return err
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{MaxConns: 3})
	if err != nil {
		return err
	}
	defer store.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return store.Run(ctx) })
	log := slog.New(slog.NewTextHandler(out, nil)).With("name", r.Name)
	switch r.Kind {
	case "relay":
		g.Go(func() error { return relay(ctx, c, r, pool, store, log, out) })
	case "consumer":
		for _, m := range models {
			g.Go(func() error { return consume(ctx, c, r, m, pool, store, log, out) })
		}
	default:
		return fmt.Errorf("role %q is unknown", r.Kind)
	}
	return g.Wait()
}

func relay(ctx context.Context, c Clients, r role, pool *pgxpool.Pool, store *postgres.Store, log *slog.Logger, out io.Writer) error {
	publisher := integration.Publisher(func() (message.Publisher, error) { return c.Publisher(r.Broker) })
	relay, err := outbox.NewRelay(pool, store.Outbox(), judged{publisher, c.Classify, out}, outbox.Config{
		Lease: lease, Logger: log, Classify: c.Classify,
	})
	if err != nil {
		return err
	}
	return errors.Join(relay.Run(ctx), publisher.Close())
}

func consume(ctx context.Context, c Clients, r role, m model, pool *pgxpool.Pool, store *postgres.Store, log *slog.Logger, out io.Writer) error {
	name := r.Name + "-" + m.name
	subscriber := integration.Subscriber(func() (message.Subscriber, error) { return c.Subscriber(r.Broker, name) })
	cfg := outbox.SubscriptionConfig{Topic: Topic, Group: "brokertest", Logger: log}
	if m.catchUp {
		cfg.CatchUp = store.Log()
	}
	stream, err := outbox.NewSubscription(store.Outbox(), subscriber, cfg)
	if err != nil {
		return err
	}
	runner, err := projection.NewRunner(pool, stream, projection.Config{Lease: lease, Logger: log}, m.projection())
	if err != nil {
		return err
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		for say(m, stream.Stats(), out); pause(ctx, sayEvery); {
			say(m, stream.Stats(), out)
		}
	}()
	err = runner.Run(ctx)
	<-said
	return errors.Join(err, subscriber.Close())
}

// sayEvery is how often a consumer writes down what it has received.
const sayEvery = 100 * time.Millisecond

func say(m model, s outbox.Stats, out io.Writer) {
	_, _ = fmt.Fprintf(out, "stats %s %d %d %d %d %d %d\n", m.name, s.Received, s.Repeated, s.Filled, s.Overruns, s.Refused, s.Silences)
}

// judged writes down what the classifier says of each error. No message of this test is refused for its own sake.
type judged struct {
	message.Publisher
	classify eventstore.Classifier
	out      io.Writer
}

func (p judged) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err != nil && p.classify != nil && messages[0].Context().Err() == nil {
		_, _ = fmt.Fprintf(p.out, "refused %s %v\n", p.classify(err), err)
	}
	return err
}
