package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/reports"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/projection"
)

// lease is how long the read models of a ledger that was killed wait for the next one. It is short because people wait
// for a command line.
const lease = 2 * time.Second

// ledger is everything that a command needs, open and running.
type ledger struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	book   *book.Book
	runner *projection.Runner
	waiter *projection.Waiter
}

// withLedger opens the ledger for do and closes it.
func (p *program) withLedger(ctx context.Context, do func(context.Context, *ledger) error) error {
	url, release, err := pgserver.ForRun(ctx, p.notes)
	if err != nil {
		return err
	}
	defer release()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("the database's URL: %w", err)
	}
	if p.pool != nil {
		p.pool(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()
	l, err := p.open(ctx, pool)
	if err != nil {
		return err
	}
	defer l.store.Close()
	return do(ctx, l)
}

// withReports is withLedger with the read models kept up to date while do runs.
func (p *program) withReports(ctx context.Context, do func(context.Context, *ledger) error) error {
	return p.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return l.store.Run(ctx) })
		g.Go(func() error { return l.runner.Run(ctx) })
		g.Go(func() error {
			defer stop()
			return do(ctx, l)
		})
		return g.Wait()
	})
}

// open installs what is missing, which is safe from several programs at once, and opens the store. A service would
// leave the installing to "daybook migrate".
func (p *program) open(ctx context.Context, pool *pgxpool.Pool) (*ledger, error) {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return nil, err
	}
	if err := projection.Install(ctx, pool, reports.All()...); err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(p.notes, &slog.HandlerOptions{Level: slog.LevelWarn}))
	config := p.store
	config.Logger = logger
	store, err := postgres.New(ctx, pool, config)
	if err != nil {
		return nil, err
	}
	running := p.projections
	running.Lease, running.Logger = lease, logger
	runner, err := projection.NewRunner(pool, store.Log(), running, reports.All()...)
	if err != nil {
		store.Close()
		return nil, err
	}
	return &ledger{
		pool: pool, store: store, runner: runner,
		book:   book.New(store, store.Snapshots()),
		waiter: projection.NewWaiter(pool, projection.WaiterConfig{}),
	}, nil
}

// see waits until the read models show what the token stands for.
func (l *ledger) see(ctx context.Context, token eventstore.Token) error {
	return l.waiter.WaitFor(ctx, token, reports.Balances, reports.Movements, reports.Entries)
}

// seeAll waits until the read models show everything that is in the log now.
func (l *ledger) seeAll(ctx context.Context) error {
	token, err := l.store.HeadToken(ctx)
	if err != nil {
		return err
	}
	return l.see(ctx, token)
}
