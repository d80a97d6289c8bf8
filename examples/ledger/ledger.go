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

// topic is where every event of the ledger is published, unchanged.
const topic = "ledger"

// ledger is everything that a command needs to append and to read.
type ledger struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	book   *book.Book
	waiter *projection.Waiter
	logger *slog.Logger
	level  *slog.LevelVar // of the logger: warnings, unless a command stays and says more
}

// withLedger opens the ledger for do and closes it.
func (p *program) withLedger(ctx context.Context, do func(context.Context, *ledger) error, opts ...book.Option) error {
	url := p.database
	if url == "" {
		found, release, err := pgserver.ForRun(ctx, p.notes)
		if err != nil {
			return err
		}
		defer release()
		url = found
	}
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
	l, err := p.open(ctx, pool, opts)
	if err != nil {
		return err
	}
	defer l.store.Close()
	defer l.drain(ctx)
	return do(ctx, l)
}

// drainTime is what snapshots that are due get at the end. They can do without.
const drainTime = 500 * time.Millisecond

func (l *ledger) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	_ = l.book.Drain(ctx) // what is not stored is due again later
}

// withReports is withLedger with the read models kept up to date from a source while do runs.
func (p *program) withReports(ctx context.Context, from source, do func(context.Context, *ledger, *keeper) error) error {
	return p.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		k, err := p.keeper(l, from)
		if err != nil {
			return err
		}
		defer k.close()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return k.run(ctx) })
		g.Go(func() error {
			defer stop()
			return do(ctx, l, k)
		})
		return g.Wait()
	})
}

// open installs what is missing, which is safe from several programs at once, and opens the store. A service would
// leave the installing to "daybook migrate".
func (p *program) open(ctx context.Context, pool *pgxpool.Pool, opts []book.Option) (*ledger, error) {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return nil, err
	}
	if err := projection.Install(ctx, pool, reports.All()...); err != nil {
		return nil, err
	}
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	logger := slog.New(slog.NewTextHandler(p.notes, &slog.HandlerOptions{Level: level}))
	config := p.store
	config.Logger, config.Routes = logger, []eventstore.Route{{Topic: topic}}
	store, err := postgres.New(ctx, pool, config)
	if err != nil {
		return nil, err
	}
	return &ledger{
		pool: pool, store: store, logger: logger, level: level,
		book:   book.New(store, store.Snapshots(), logger, opts...),
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
