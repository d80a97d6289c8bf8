package projection

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
)

// The crash tests run this test binary again as a process of its own, which runs one projection and can be killed or
// stopped at a named place.
const (
	childEnv  = "DAYBOOK_PROJECTION_TEST_CHILD" // "view", "handlers", "failing"
	childURL  = "DAYBOOK_PROJECTION_TEST_URL"
	childAt   = "DAYBOOK_PROJECTION_TEST_AT"   // "place:n:signal": send yourself a signal at the n-th visit of the place; awake, tell of the next batch
	childOpts = "DAYBOOK_PROJECTION_TEST_OPTS" // lease and batch size
)

var (
	crashView     = counts("crashed")
	crashHandlers = logged("crash_log")
)

func child(what string) error {
	ctx := context.Background()
	pool, err := livetest.Pool(ctx, os.Getenv(childURL), 4)
	if err != nil {
		return err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	var run Config
	if run.Lease, run.BatchSize, _, err = livetest.LeaseAndBatch(os.Getenv(childOpts)); err != nil {
		return err
	}
	var awake batchTeller
	run.Observer = &awake
	run.probe = livetest.Reaching(os.Getenv(childAt), awake.tell)
	var def Definition = crashView
	switch what {
	case "handlers":
		def = crashHandlers
	case "failing":
		def, run = crashFailing, soon(run)
	}
	r, err := NewRunner(pool, store.Log(), run, def)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// batchTeller says what became of the batch that a process had in hand when it woke: it was committed or given up, and
// nothing of it is still to come.
type batchTeller struct {
	eventstore.NopObserver
	tells atomic.Bool
}

const batchLine = "batch: "

func (b *batchTeller) tell() { b.tells.Store(true) }

func (b *batchTeller) ObserveBatch(o eventstore.BatchObservation) {
	if b.tells.CompareAndSwap(true, false) {
		fmt.Println(batchLine + strings.ReplaceAll(fmt.Sprint(o.Err), "\n", " "))
	}
}

func (w *world) spawn(t *testing.T, what, at, opts string) *livetest.Process {
	t.Helper()
	return livetest.Spawn(t, livetest.Child{Env: append(w.childEnv(at, opts), childEnv+"="+what)})
}

func (w *world) childEnv(at, opts string) []string {
	return []string{childURL + "=" + w.pool.Config().ConnString(), childAt + "=" + at, childOpts + "=" + opts}
}
