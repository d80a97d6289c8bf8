package timers_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/internal/timers"
)

// The crash test runs this test binary again as a process of its own, whose handler writes its effect and never commits.
const childURL = "DAYBOOK_TIMERS_TEST_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := child(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	runner, err := timers.NewRunner(timers.Config{Queue: queue, Lease: crashLease}, func(ctx context.Context, due []timers.Timer) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := write(ctx, tx, "killed", due); err != nil {
			return err
		}
		fmt.Println("handling")
		<-time.After(patience)
		return nil
	})
	if err != nil {
		return err
	}
	return runner.Run(ctx, pool)
}
