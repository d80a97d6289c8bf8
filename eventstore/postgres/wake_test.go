package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// runStore runs a store until the function returned is called, which waits for its end.
func runStore(t testing.TB, store *postgres.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		within(t, 2*time.Second+patience/2, "the end of Run", func() {
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func listening(t testing.TB, store *postgres.Store) {
	t.Helper()
	await(t, "the store to listen", store.Listening)
}

// follow reads the log as a consumer does and sends the time at which each event arrived.
func follow(ctx context.Context, t testing.TB, log *postgres.Log) <-chan time.Time {
	t.Helper()
	arrived := make(chan time.Time, 1000)
	go func() {
		defer close(arrived)
		var after eventstore.Position
		for {
			page, err := log.ReadPage(ctx, after, eventstore.Filter{}, 100)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("read page: %v", err)
				}
				return
			}
			for range page.Events {
				arrived <- time.Now()
			}
			if page.Through.After(after) {
				after = page.Through
				continue
			}
			if log.Wait(ctx, after) != nil {
				return
			}
		}
	}()
	return arrived
}

func arrival(t testing.TB, arrived <-chan time.Time) time.Time {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case at := <-arrived:
		return at
	case <-timer.C:
		t.Fatal("the event never arrived")
		return time.Time{}
	}
}

// A reader in another process hears of an append long before it would look by itself.
func TestOtherProcessesAreWoken(t *testing.T) {
	t.Parallel()
	writer, pool := freshStore(t, postgres.Config{})
	reader := openStore(t, pool, postgres.Config{})
	runStore(t, writer)
	runStore(t, reader)
	listening(t, reader)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := reader.Log()
	arrived := follow(ctx, t, log)
	quick := 0
	const rounds = 5
	for range rounds {
		// Idle for long enough that polling would be slow, and at the beginning of such a wait.
		await(t, "the reader to poll seldom", func() bool { return log.Poll() >= time.Second && time.Until(log.Due()) > 700*time.Millisecond })
		due := log.Due()
		mustAppend(t, writer, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
		if arrival(t, arrived).Before(due) {
			quick++
		}
	}
	// By polling it would never be.
	if quick < rounds-1 {
		t.Errorf("only %d of %d events arrived at once", quick, rounds)
	}
}

// R-PG01: the connection that listens breaks, and what is appended meanwhile arrives all the same.
func TestListenerThatWasKilled(t *testing.T) {
	t.Parallel()
	writer, pool := freshStore(t, postgres.Config{})
	reader := openStore(t, pool, postgres.Config{})
	runStore(t, reader)
	listening(t, reader)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	arrived := follow(ctx, t, reader.Log())
	for range 3 {
		const killSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
		if n := value[int](t, pool, killSQL); n != 1 {
			t.Fatalf("killed %d listeners", n)
		}
		// The only append, by a process that sends no notification: only looking finds it.
		mustAppend(t, writer, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
		committed := time.Now()
		if late := arrival(t, arrived).Sub(committed); late > 5*time.Second {
			t.Errorf("arrived %v after the commit, though readers look every second", late)
		}
		await(t, "the store to listen again", func() bool {
			return value[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`) == 1 && reader.Listening()
		})
	}
}

// R-PG03: notifications are for waking only, and not part of an append; many appends need few.
func TestNotificationsAreCoalesced(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	listener, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	mustExec(t, listener, postgres.Expand(`LISTEN "daybook_{tag}"`, "daybook"))
	stop := runStore(t, store)
	start := time.Now()
	const writers, each = 8, 40
	for _, err := range concurrently(writers, func(int) error {
		id := newStream("s")
		for i := range each {
			if _, err := store.Append(context.Background(), eventstore.To(id, eventstore.Exactly(eventstore.Version(i)), newEvent("1"))); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	took := time.Since(start)
	stop()
	got := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		n, err := listener.Conn().WaitForNotification(ctx)
		cancel()
		if err != nil {
			break
		}
		got++
		if len(n.Payload) != 36 {
			t.Errorf("a notification carries %q, want the id of its Store and nothing of the append", n.Payload)
		}
	}
	if most := int(took/(5*time.Millisecond)) + 2; got < 1 || got > most || got >= writers*each {
		t.Errorf("%d notifications for %d appends in %v, want 1 to %d", got, writers*each, took, most)
	}
}

func TestWaitBacksOffAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	log := store.Log()
	start := time.Now()
	var polls []time.Duration
	for range 3 {
		if err := log.Wait(t.Context(), eventstore.Position{}); err != nil {
			t.Fatal(err)
		}
		polls = append(polls, log.Poll())
	}
	if took := time.Since(start); took < 350*time.Millisecond {
		t.Errorf("three waits of 50, 100 and 200 ms took %v", took)
	}
	if polls[0] != 50*time.Millisecond || polls[1] != 100*time.Millisecond || polls[2] != 200*time.Millisecond {
		t.Errorf("backed off as %v", polls)
	}
	// A commit in this process ends the wait at once, and shortens the next.
	result := make(chan error, 1)
	go func() { result <- log.Wait(context.Background(), eventstore.Position{}) }()
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	if err := <-result; err != nil {
		t.Error(err)
	}
	end := safeHead(t, store)
	if err := log.Wait(t.Context(), eventstore.Position{}); err != nil { // something is known to be there
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { result <- log.Wait(ctx, end) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := log.Wait(ctx, eventstore.Position{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// Not in parallel: it looks at every goroutine of the process.
func TestRunEndsAtOnceAndLeavesNothing(t *testing.T) { //nolint:paralleltest
	pool := postgrestest.New(t)
	_ = value[int](t, pool, `SELECT 1`)
	existing := goleak.IgnoreCurrent()
	store, err := postgres.New(t.Context(), pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	listening(t, store)
	load := make(chan error, 1)
	go func() {
		for {
			_, err := store.Append(ctx, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
			if err != nil {
				load <- err
				return
			}
		}
	}()
	await(t, "some load", func() bool { return value[int](t, pool, `SELECT count(*) FROM daybook.events`) > 10 })
	cancel()
	within(t, 2*time.Second, "the end under load", func() {
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := <-load; !errors.Is(err, context.Canceled) {
			t.Errorf("append: %v", err)
		}
		store.Close()
	})
	// The driver reads ahead on a connection of the pool that was slow to write to.
	goleak.VerifyNone(t, existing, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"))
}

// A caller that waits in pieces, since it has something else to do in between, comes to the time to look like any other.
func TestWaitingInPieces(t *testing.T) {
	t.Parallel()
	store, _ := freshStore(t, postgres.Config{})
	log := store.Log()
	for round := range 4 { // 50, 100, 200, 400 ms
		pieces := 0
		for pieces = 1; ; pieces++ {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			err := log.Wait(ctx, eventstore.Position{})
			cancel()
			if err == nil {
				break
			}
			if pieces > 2000 {
				t.Fatalf("round %d: never told to look", round)
			}
		}
	}
}
