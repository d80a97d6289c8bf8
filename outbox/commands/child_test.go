package commands

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/livetest"
)

// The crash tests run this test binary again as a process of its own, which runs a dispatcher and can be killed or stopped
// at a named place.
const (
	childURL   = "DAYBOOK_COMMANDS_TEST_URL"
	childAt    = "DAYBOOK_COMMANDS_TEST_AT"    // "place:n:signal": send yourself a signal at the n-th visit of the place
	childLease = "DAYBOOK_COMMANDS_TEST_LEASE" // and the size of batches
)

// slowly is how long every fourth command takes, so that batches tell of the others before.
const slowly = 2 * tellEvery

func child() error {
	ctx := context.Background()
	pool, err := livetest.Pool(ctx, os.Getenv(childURL), 8)
	if err != nil {
		return err
	}
	w, err := openWorld(ctx, pool)
	if err != nil {
		return err
	}
	reached := livetest.Reaching(os.Getenv(childAt))
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding && c.N%4 == 0 {
			<-time.After(slowly)
		}
		reached(place)
	})
	run := Config{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)), probe: reached}
	if run.Lease, run.BatchSize, _, err = livetest.LeaseAndBatch(os.Getenv(childLease)); err != nil {
		return err
	}
	d, err := NewDispatcher(pool, Local(w.store.Outbox()), w.bus, run)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return d.Run(ctx)
}

func (w *world) spawn(t *testing.T, at, lease string) *livetest.Process {
	t.Helper()
	return livetest.Spawn(t, livetest.Child{Env: []string{childURL + "=" + w.pool.Config().ConnString(), childAt + "=" + at, childLease + "=" + lease}})
}
