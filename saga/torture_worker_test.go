//go:build unix

package saga_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// The torture tests run this test binary again as a process of its own, which is a worker and can be killed.
const (
	tortureURL       = "DAYBOOK_SAGA_TORTURE_URL"
	tortureAt        = "DAYBOOK_SAGA_TORTURE_AT"        // "place:n:kill"
	tortureForgetful = "DAYBOOK_SAGA_TORTURE_FORGETFUL" // its bus does not know what it has carried out
)

func init() {
	url := os.Getenv(tortureURL)
	if url == "" {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test, however that ends
		end()
	}()
	err := worker{
		url: url, logs: os.Stdout, reached: livetest.Reaching(os.Getenv(tortureAt)), forgetful: os.Getenv(tortureForgetful) != "",
		managers: 1, dispatchers: 1,
	}.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// tortureLease is how long the work of a worker that was killed waits for the next one.
const tortureLease = 500 * time.Millisecond

// isUp is the line that says that a worker begins to work.
const isUp = "up"

// worker is what a program has in each of its processes.
type worker struct {
	url                   string
	logs                  io.Writer
	reached               func(place string)
	forgetful             bool
	managers, dispatchers int
	sender                func(saga.Sender) saga.Sender // nil: as it is
}

// run works until ctx ends.
func (w worker) run(ctx context.Context) error {
	pool, err := livetest.Pool(context.WithoutCancel(ctx), w.url, 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	b := ordersBus(store, w.forgetful, noticing(w.reached))
	sender := saga.Sender(commands.ForSagas(b, store.Outbox()))
	if w.sender != nil {
		sender = w.sender(sender)
	}
	logger := slog.New(slog.NewTextHandler(w.logs, nil))
	runs := []func(context.Context) error{store.Run}
	for range w.managers {
		m, err := saga.NewManager(pool, store.Log(), sender, saga.Config{
			Lease: tortureLease, Poll: 200 * time.Millisecond, RetryBase: 10 * time.Millisecond, RetryCap: 100 * time.Millisecond,
			Wake: store.Wake, Logger: logger,
		}, orderSaga)
		if err != nil {
			return err
		}
		runs = append(runs, m.Run)
	}
	for range w.dispatchers {
		d, err := commands.NewDispatcher(pool, commands.Local(store.Outbox()), b, commands.Config{Lease: tortureLease, Wake: store.Wake, Logger: logger})
		if err != nil {
			return err
		}
		runs = append(runs, d.Run)
	}
	_, _ = fmt.Fprintln(w.logs, isUp)
	var all sync.WaitGroup
	errs := make([]error, len(runs))
	for i, run := range runs {
		all.Go(func() { errs[i] = run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
