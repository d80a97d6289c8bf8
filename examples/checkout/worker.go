package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shop"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

const (
	// topic is where every event is published, unchanged.
	topic = "checkout"
	// lease is how long the work of a process that was killed waits for the next one. It is short because people watch.
	lease = 2 * time.Second
	// silence is how long the sagas wait for the channel before they ask the store: the channel is within this process, and
	// silent when another one publishes.
	silence = 250 * time.Millisecond
	// clientPatience is how long a handler waits for the payment provider.
	clientPatience = 750 * time.Millisecond
	// attempts is how often it asks before nobody knows what became of the money.
	attempts = 2
	// atOnce is how many commands are carried out at the same time: most of their time is waiting for the provider.
	atOnce = 64
	// batch is how many are carried out before the next are read: one that waits for the provider keeps those waiting.
	batch = 1000
)

// worker does what there is to do about orders. Any number of processes may have one: each part is done by one of them,
// and the others take over when it dies.
type worker struct {
	store      *postgres.Store
	shop       *shop.Shop
	broker     *gochannel.GoChannel
	relay      *outbox.Relay
	dispatcher *commands.Dispatcher
	manager    *saga.Manager
	client     *provider.Client
	// published are the commands as the broker has them; nil if they are read from the outbox.
	published *outbox.Subscription
}

// region wiring

// newWorker puts the parts together. The store must be installed. broker: commands come from the broker too.
func newWorker(ctx context.Context, pool *pgxpool.Pool, client *provider.Client, broker bool, logger *slog.Logger) (*worker, error) {
	store, err := openStore(ctx, pool, logger)
	if err != nil {
		return nil, err
	}
	w := &worker{store: store, client: client}
	w.shop = shop.New(store, store.Snapshots(), w.client)
	bus := w.shop.Bus(logger)

	// What is stored is published. Any broker that Watermill has would do.
	w.broker = gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 64, BlockPublishUntilSubscriberAck: true}, nil)
	w.relay, err = outbox.NewRelay(pool, store.Outbox(), w.broker, outbox.Config{Lease: lease, Logger: logger})
	if err != nil {
		return w, err
	}
	events, err := outbox.NewSubscription(store.Outbox(), w.broker, outbox.SubscriptionConfig{
		Topic: topic, Group: "sagas", CatchUp: store.Log(), Silence: silence, Logger: logger,
	})
	if err != nil {
		return w, err
	}

	// Sagas follow what is published, and send commands; the dispatcher carries them out, and the sagas hear how they ended.
	w.manager, err = saga.NewManager(pool, events, commands.ForSagas(bus, store.Outbox()),
		saga.Config{Lease: lease, Wake: store.Wake, Logger: logger}, checkout.All()...)
	if err != nil {
		return w, err
	}
	source := commands.Local(store.Outbox())
	if broker { // the same to the dispatcher
		w.published, err = outbox.NewSubscription(store.Outbox(), w.broker, outbox.SubscriptionConfig{
			Topic: commands.Topic, Group: "dispatcher", Silence: silence, Logger: logger,
		})
		if err != nil {
			return w, err
		}
		source = w.published
	}
	w.dispatcher, err = commands.NewDispatcher(pool, source, bus, commands.Config{
		Workers: atOnce, BatchSize: batch, Attempts: attempts, Lease: lease, Wake: store.Wake, Logger: logger,
	})
	return w, err
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.store.Run(ctx) })
	g.Go(func() error { return w.relay.Run(ctx) })
	g.Go(func() error { return w.manager.Run(ctx) })
	g.Go(func() error { return w.dispatcher.Run(ctx) })
	return g.Wait()
}

// endregion

// close is called when run has returned.
func (w *worker) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	w.shop.Drain(ctx)
	if w.broker != nil {
		_ = w.broker.Close() // nothing is in it that the store does not have
	}
	w.client.Close()
	w.store.Close()
}

func openStore(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) (*postgres.Store, error) {
	return postgres.New(ctx, pool, postgres.Config{Routes: []eventstore.Route{{Topic: topic}}, Logger: logger})
}

// work is the program as a worker, until its standard input ends: that of a process whose parent has died does.
func (p *program) work(ctx context.Context, providerURL string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		stop()
	}()
	pool, err := pgxpool.New(ctx, os.Getenv(pgserver.RunVariable))
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := newWorker(ctx, pool, p.client(providerURL), os.Getenv(brokerVariable) != "", p.logger(os.Getenv(verboseVariable) != ""))
	if w != nil {
		defer w.close(ctx)
	}
	if err == nil {
		err = w.run(ctx)
	}
	if ctx.Err() != nil { // it was to end, wherever it was
		return nil
	}
	return err
}

// client asks the payment provider.
func (p *program) client(url string) *provider.Client {
	return provider.NewClient(url, cmp.Or(p.clientPatience, clientPatience))
}

// What tells a worker that it shall print what it logs, and that commands come from the broker.
const (
	verboseVariable = "CHECKOUT_VERBOSE"
	brokerVariable  = "CHECKOUT_BROKER"
)

// logger prints faults, or all that changes. That the provider does not answer is no news here.
func (p *program) logger(verbose bool) *slog.Logger {
	level := slog.LevelError
	if verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(p.notes, &slog.HandlerOptions{Level: level}))
}
