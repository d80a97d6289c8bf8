package timers_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/timers"
)

// A reminder is set, and handled when it is due, in one transaction with its effect.
func ExampleRunner() {
	livetest.Example(func(ctx context.Context, pool *pgxpool.Pool, _ *postgres.Store) error {
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
