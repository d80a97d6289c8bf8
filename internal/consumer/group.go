package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// patience is how long Run waits for handlers after ctx has ended.
const patience = 2*time.Second - 100*time.Millisecond

// ShutdownError names the consumers whose handlers did not return in time. Their goroutines are still there; what they
// do can no longer commit, and their leases are free.
type ShutdownError struct{ Consumers []string }

func (e *ShutdownError) Error() string {
	return fmt.Sprintf("consumer: shut down: handlers of %s ignore the end of their context and still run: let them watch ctx",
		strings.Join(e.Consumers, ", "))
}

// Pool returns a pool of connections of its own, with the settings of pool, so that whatever the program does with its
// pool cannot keep consumers from renewing their leases. The caller closes it.
func Pool(ctx context.Context, pool *pgxpool.Pool, workers int) (*pgxpool.Pool, error) {
	cfg := pool.Config()
	cfg.MaxConns = int32(workers + 2) // one for each worker's batch, two for leases
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	// A connection that broke while it rested costs one repeat; asking it first would cost a round trip per batch.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	own, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("consumer: open connections: %w", err)
	}
	return own, nil
}

// Run runs workers on db until ctx ends, and then ends within two seconds. Workers that have stopped do not end it. The
// error is nil or a [*ShutdownError], also for handlers that were left before. db is closed.
func Run(ctx context.Context, db *pgxpool.Pool, workers ...*Worker) error {
	return runBeside(ctx, db, func() {}, workers...)
}

// runBeside is Run with something beside the workers that uses db too, and ends soon after ctx.
func runBeside(ctx context.Context, db *pgxpool.Pool, beside func(), workers ...*Worker) error {
	var all sync.WaitGroup
	all.Go(beside)
	running := make([]chan struct{}, len(workers))
	for i, w := range workers {
		running[i] = make(chan struct{})
		all.Go(func() {
			defer close(running[i])
			w.run(ctx, db)
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		<-ctx.Done()
		db.Close()
		close(done)
	}()
	<-ctx.Done()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	late := &ShutdownError{}
	for i, w := range workers {
		_, hung := w.cfg.calls.of(w)
		select {
		case <-running[i]:
			if hung == 0 {
				continue
			}
		default:
		}
		late.Consumers = append(late.Consumers, fmt.Sprintf("%q", w.spec.Name))
	}
	if len(late.Consumers) == 0 {
		<-done
		return nil
	}
	return late
}

// Patiently calls f until it succeeds, waiting out a database that is away. It returns f's error when that is of
// another kind, and the context's when ctx ends first.
func Patiently(ctx context.Context, f func(context.Context) error) error {
	var retry backoff
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || classify(err, false) != environment {
			return err
		}
		if !pause(ctx, retry.next()) {
			return ctx.Err()
		}
	}
}
