package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/checkout/basket"
	"github.com/daybook-go/daybook/examples/checkout/checkout"
	"github.com/daybook-go/daybook/examples/checkout/order"
	"github.com/daybook-go/daybook/examples/checkout/provider"
	"github.com/daybook-go/daybook/examples/checkout/shop"
	"github.com/daybook-go/daybook/examples/checkout/stock"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/saga"
)

const (
	// writers is how many customers order at the same time.
	writers = 8
	// connections are for the customers, the payment provider and its webhooks.
	connections = 16
)

// checkout is a run of the program.
func (p *program) checkout(ctx context.Context, s settings) error {
	places, err := s.places()
	if err != nil {
		return err
	}
	url, release, err := pgserver.ForRun(ctx, p.notes)
	if err != nil {
		return err
	}
	defer release()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("the database's URL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()

	// What is missing is installed, which is safe from several programs at once. A service would do this where it migrates.
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return err
	}
	if err := saga.Install(ctx, pool, checkout.All()...); err != nil {
		return err
	}
	logger := p.logger(s.verbose)
	store, err := openStore(ctx, pool, logger)
	if err != nil {
		return err
	}
	defer store.Close()
	r := &running{program: p, settings: s, pool: pool, store: store, shop: shop.New(store, store.Snapshots(), nil), places: places}
	if err := r.listen(ctx); err != nil {
		return err
	}
	if s.chaos {
		r.chaos = &chaos{program: p, databaseURL: url, providerURL: r.providerURL(), seed: s.seed, verbose: s.verbose, broker: s.broker}
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.provider.Run(ctx) })
	g.Go(func() error { return serve(ctx, r.doors...) })
	g.Go(func() error { return r.work(ctx) })
	g.Go(func() error {
		defer stop()
		return r.orders(ctx)
	})
	return g.Wait()
}

// running is what a run has in its hands.
type running struct {
	*program
	settings
	pool     *pgxpool.Pool
	store    *postgres.Store
	shop     *shop.Shop
	provider *provider.Provider
	places   []order.Place

	number int64  // of this run
	doors  []door // the shop's, then the provider's
	chaos  *chaos // nil without
}

func (r *running) providerURL() string { return r.doors[1].url() }

// door is an HTTP server that listens already.
type door struct {
	listener net.Listener
	handler  http.Handler
}

func (d door) url() string { return "http://" + d.listener.Addr().String() }

// listen opens the doors: that of the payment provider, and the one at which it tells the shop what it took.
func (r *running) listen(ctx context.Context) error {
	secret := uuid.NewString()
	webhooks := http.NewServeMux()
	webhooks.Handle("POST "+shop.WebhookPath, r.shop.Webhooks(secret))
	shopDoor, err := newDoor(webhooks)
	if err != nil {
		return err
	}
	r.doors = append(r.doors, shopDoor)
	r.provider, err = provider.Open(ctx, r.pool, provider.Config{
		Webhook: shopDoor.url() + shop.WebhookPath, Secret: secret, Seed: r.seed, Logger: r.logger(r.verbose),
	})
	if err != nil {
		return err
	}
	providerDoor, err := newDoor(r.provider.Handler())
	r.doors = append(r.doors, providerDoor)
	return err
}

func newDoor(h http.Handler) (door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	return door{listener, h}, err
}

// serve lets people in until ctx ends.
func serve(ctx context.Context, doors ...door) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range doors {
		server := &http.Server{Handler: d.handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
		g.Go(func() error {
			if err := server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			return server.Close()
		})
	}
	return g.Wait()
}

// work runs the workers: one within this process, or several that are killed.
func (r *running) work(ctx context.Context) error {
	if r.chaos != nil {
		return r.chaos.run(ctx)
	}
	w, err := newWorker(ctx, r.pool, r.client(r.providerURL()), r.broker, r.logger(r.verbose))
	if w != nil {
		defer w.close(ctx)
	}
	if err != nil {
		return err
	}
	if err := w.run(ctx); err != nil || w.published == nil {
		return err
	}
	stats := w.published.Stats()
	fmt.Fprintf(r.notes, "of the topic of commands %s came through the broker, heads included, and %d had to be read\n",
		count(int(stats.Received), "message"), stats.Filled)
	return nil
}

// orders places them, waits for their ends, and says what they were.
func (r *running) orders(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := r.fill(ctx); err != nil {
		return err
	}
	if err := r.place(ctx); err != nil {
		return err
	}
	placed := time.Now()
	books, err := r.settled(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Fprintf(r.notes, "placed in %s, all ended after %s, %.0f orders/s\n",
		placed.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond), float64(len(r.places))/took.Seconds())
	if r.chaos != nil {
		fmt.Fprintf(r.notes, "%d workers were killed meanwhile\n", r.chaos.kills())
	}
	return r.report(ctx, books)
}

// Begun is a run of the program, of which the store keeps account too.
type Begun struct {
	Orders int
	Seed   int64
}

var runs = aggregate.Define("checkout_run", func(n int, _ Begun) int { return n + 1 },
	eventstore.NewCatalog(eventstore.TypeOf[Begun]("checkout.run-begun")))

// begin numbers this run, so that its orders have numbers of their own.
func (r *running) begin(ctx context.Context) error {
	result, err := aggregate.NewRepository(r.store, runs).Handle(ctx, "all", func(int) ([]Begun, error) {
		return []Begun{{Orders: len(r.places), Seed: r.seed}}, nil
	})
	r.number = int64(result.Version)
	return err
}

// fill lets the warehouse receive what the orders need.
func (r *running) fill(ctx context.Context) error {
	for sku, quantity := range basket.Needs(r.places) {
		if _, err := r.shop.Items.Handle(ctx, sku, stock.Receive{Quantity: quantity}.Decide); err != nil {
			return err
		}
	}
	return nil
}

// place places all orders.
func (r *running) place(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i, p := range r.places {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			_, err := r.shop.Orders.Handle(ctx, basket.ID(r.number, i), p.Decide)
			return err
		})
	}
	return g.Wait()
}
