package livetest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// Example runs a testable example with a store on a PostgreSQL server of its own, and prints the error if there is one.
func Example(f func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := example(ctx, f); err != nil {
		fmt.Println(err)
	}
}

func example(ctx context.Context, f func(context.Context, *pgxpool.Pool, *postgres.Store) error) error {
	server, err := pgserver.Start(ctx, pgserver.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	return f(ctx, pool, store)
}
