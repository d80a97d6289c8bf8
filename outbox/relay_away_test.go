package outbox

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

// PostgreSQL killed and started again under the relay, at the named places: everything arrives.
func TestRelaySurvivesPostgres(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
		t.Fatal(err)
	}
	w := openRelayWorld(t, pool)
	w.keep()
	b := &tape{}
	at, crash := make(chan string), atomic.Pointer[string]{}
	cfg := Config{BatchSize: 20, probe: func(place string) {
		if want := crash.Load(); want != nil && *want == place && crash.CompareAndSwap(want, nil) {
			at <- place
			<-at // the server is gone
		}
	}}
	r := w.relay(b, cfg)
	w.start(r)
	for _, place := range []string{probePublished, probeCommitted, probePublished} {
		w.send(5, "t", 1)
		w.sent()
		crash.Store(&place)
		w.send(100, "t", 1)
		w.send(100, "t", 2)
		<-at
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		at <- ""
		livetest.Eventually(t, "health says that the database is away", func() bool {
			h := r.Health(t.Context())
			return !h.Ready && h.State == "waiting" && h.Reason != ""
		})
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "the database is back", func() bool { return pool.Ping(t.Context()) == nil })
		pool.Reset()
		w.sent()
	}
	livetest.Eventually(t, "health is ready", func() bool { return r.Health(t.Context()).Ready })
	if got, want := checkRepeats(t, b.all()), w.stored(); got != want || want != 615 {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// countedRows counts the pages that are in memory.
type countedRows struct {
	Rows
	alive, most atomic.Int64
}

func (c *countedRows) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	page, err := c.Rows.ReadPage(ctx, q)
	if err == nil && len(page.Messages) > 0 {
		now := c.alive.Add(1)
		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
		}
		runtime.AddCleanup(&page.Messages[0], func(struct{}) { c.alive.Add(-1) }, struct{}{})
	}
	return page, err
}

// manyMessages are far more than may be in memory: a hundred pages.
func manyMessages() int {
	if testscale.Factor() < 1 {
		return 100 * defaultPage
	}
	return testscale.N(1_000_000)
}

// seldom looks twenty times a second at most, since a collection is needed to look.
func seldom(is func() bool) func() bool {
	var next time.Time
	return func() bool {
		if time.Now().Before(next) {
			return false
		}
		defer func() { next = time.Now().Add(50 * time.Millisecond) }()
		return is()
	}
}

// However long the backlog is, a page is published and one is read ahead; nothing else is kept. With a broker that
// blocks, not one page more is read.
func TestRelayMemoryIsFlat(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	n := manyMessages()
	for left := n; left > 0; left -= 25_000 {
		w.send(min(left, 25_000), "t", left%64)
	}
	var accepted atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	b := broker(func(got received) error {
		if got.kind != KindHead && accepted.Add(1) == int64(n/2) {
			close(entered)
			<-release
		}
		return nil
	})
	rows := &countedRows{Rows: w.store.Outbox()}
	r, err := NewRelay(w.pool, rows, b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.start(r)
	<-entered
	alive := func() int64 {
		runtime.GC()
		return rows.alive.Load()
	}
	livetest.Eventually(t, "only two pages are in memory while the broker blocks", seldom(func() bool { return alive() <= 2 }))
	close(release)
	livetest.Eventually(t, "all is sent", seldom(func() bool {
		if at := alive(); at > 50 { // two, and what became garbage since the collector looked
			t.Fatalf("%d pages are in memory", at)
		}
		return w.cursor() >= w.head()
	}))
	livetest.Eventually(t, "no page is in memory at the end", seldom(func() bool { return alive() == 0 }))
	if accepted.Load() < int64(n) {
		t.Errorf("%d messages arrived, want %d", accepted.Load(), n)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("%d messages: at most %d pages seen at once, heap at the end %d MiB", n, rows.most.Load(), m.HeapAlloc>>20)
}

// A read that fails because the store is unwell is waited out.
func TestRelayWaitsForTheStore(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	rows := &failingRows{Rows: w.store.Outbox()}
	b := &tape{}
	r, err := NewRelay(w.pool, rows, b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	rows.fail.Store(true)
	w.start(r)
	w.send(3, "t", 1)
	livetest.Eventually(t, "health says so", func() bool { return r.Health(t.Context()).State == "waiting" })
	rows.fail.Store(false)
	w.sent()
	if n := checkRepeats(t, b.all()); n != 3 {
		t.Errorf("%d messages arrived", n)
	}
}

type failingRows struct {
	Rows
	fail atomic.Bool
}

func (f *failingRows) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	if f.fail.Load() {
		return eventstore.OutboxPage{}, errors.New("the store is unwell")
	}
	return f.Rows.ReadPage(ctx, q)
}
