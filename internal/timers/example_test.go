package timers_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/timers"
)

// withPool runs an example on a PostgreSQL of its own.
func withPool(f func(ctx context.Context, pool *pgxpool.Pool) error) {
	ctx := context.Background()
	err := func() error {
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
		return f(ctx, pool)
	}()
	if err != nil {
		fmt.Println(err)
	}
}

// A reminder is set, and handled when it is due, in one transaction with its effect.
func ExampleRunner() {
	withPool(func(ctx context.Context, pool *pgxpool.Pool) error {
		b := &pgx.Batch{}
		timers.Set(b, "daybook", nil, []timers.Setting{
			{Queue: "reminders", Name: "42", After: 50 * time.Millisecond, Payload: []byte("call back")},
			{Queue: "reminders", Name: "43", After: time.Hour},
		})
		if err := pool.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		runner, err := timers.NewRunner(timers.Config{Queue: "reminders"}, func(ctx context.Context, due []timers.Timer) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				held, err := timers.Held(ctx, tx, "daybook", due) // without those that were cancelled meanwhile
				if err != nil {
					return err
				}
				for _, t := range held {
					fmt.Printf("reminder %s: %s\n", t.Name, t.Payload)
				}
				b := &pgx.Batch{}
				timers.Finish(b, "daybook", held)
				b.Queue(`SELECT 1`) // what the reminders do
				defer stop()
				return tx.SendBatch(ctx, b).Close()
			})
		})
		if err != nil {
			return err
		}
		return runner.Run(ctx, pool)
	})
	// Output: reminder 42: call back
}
