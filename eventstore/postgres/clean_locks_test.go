package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// lockWaits collects what the server says of each wait for a lock that lasts a millisecond, except for those of writers
// that make a table grow, for each other.
type lockWaits struct {
	mu    sync.Mutex
	waits []string
}

// pool returns a pool of the same database that tells of its waits.
func (w *lockWaits) pool(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	for k, v := range map[string]string{"deadlock_timeout": "1ms", "log_lock_waits": "on", "client_min_messages": "log"} {
		cfg.ConnConfig.RuntimeParams[k] = v
	}
	cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if strings.Contains(n.Message, "still waiting for") && !strings.Contains(n.Message, "on extension of") {
			w.waits = append(w.waits, n.Message)
		}
	}
	telling, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(telling.Close)
	return telling
}

// seen returns the waits until now.
func (w *lockWaits) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.waits)
}

// R-LB03, R-OB05: whatever the cleaning does, no append waits behind it, not for a millisecond.
func TestNoAppendWaitsForTheCleaning(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{RangeSize: 5000}))
	var waits lockWaits
	store := openStore(t, waits.pool(t, pool), postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	cleaning := openStore(t, postgrestestPool(t, pool, "cleaner"), postgres.Config{})
	relays(t, pool, 0)
	followed(t, pool)
	last := publish(t, pool, testscale.N(200_000))
	var stop atomic.Bool
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for !stop.Load() {
				if _, err := store.Append(context.Background(), eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x"))); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	for i := int64(1); i <= 20; i++ {
		pass(t, pool, "outbox-relay", last*i/20)
		for _, r := range concurrently(2, func(int) error { // two processes at once
			_, err := cleaning.Outbox().Clean(context.Background(), time.Hour)
			return err
		}) {
			if r != nil {
				t.Error(r)
			}
		}
	}
	report := mustClean(t, cleaning)
	stop.Store(true)
	writers.Wait()
	if _, low := kept(t, pool, last); low != 0 || report.Cleaned.Ordinal() != last || value[int](t, pool, `SELECT count(*) FROM daybook.ranges WHERE outbox_emptied`) == 0 {
		t.Errorf("%+v; %d rows are left", report, low)
	}
	for _, wait := range waits.seen() {
		t.Error(wait)
	}
	// Somebody who does hold what an append needs is seen.
	before := len(waits.seen())
	tx := beginTx(t, pool)
	mustExec(t, tx, `LOCK TABLE daybook.streams IN SHARE MODE`)
	done := make(chan error, 1)
	go func() {
		_, err := store.Append(context.Background(), eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
		done <- err
	}()
	await(t, "a wait that is told of", func() bool { return len(waits.seen()) > before })
	mustCommit(t, tx)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// R-LB03 with its figures, and only at full size: four processes clean two million messages while 500 appends a second go
// on; 99 in 100 of them take less than twice as long as without.
func TestCleaningBesideFiveHundredAppendsASecond(t *testing.T) {
	full := testscale.Factor() >= 1
	messages, length := 2_000_000, 30*time.Second
	if !full {
		messages, length = 40_000, time.Second
	}
	pool := postgrestest.New(t)
	store := openStore(t, pool, postgres.Config{Routes: []eventstore.Route{{Topic: "all"}}})
	relays(t, pool, 0)
	followed(t, pool)
	last := publish(t, pool, messages)
	measure := func() time.Duration {
		var mu sync.Mutex
		var took []time.Duration
		var writers sync.WaitGroup
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(length); time.Now().Before(end); {
			<-tick.C
			writers.Go(func() {
				start := time.Now()
				_, err := store.Append(context.Background(), eventstore.To(newStream("order"), eventstore.NoStream, newEvent("x")))
				mu.Lock()
				defer mu.Unlock()
				if took = append(took, time.Since(start)); err != nil {
					t.Errorf("append: %v", err)
				}
			})
		}
		writers.Wait()
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	measure() // until connections are open and statements prepared
	without := measure()
	pass(t, pool, "outbox-relay", last)
	ctx, cancel := context.WithCancel(t.Context())
	var cleaners sync.WaitGroup
	for i := range 4 {
		node := openStore(t, postgrestestPool(t, pool, fmt.Sprint("node", i)), postgres.Config{})
		cleaners.Go(func() {
			every := time.NewTicker(length / 10)
			defer every.Stop()
			for ctx.Err() == nil {
				if _, err := node.Outbox().Clean(ctx, time.Hour); err != nil && ctx.Err() == nil {
					t.Errorf("clean: %v", err)
					return
				}
				select {
				case <-ctx.Done():
				case <-every.C:
				}
			}
		})
	}
	with := measure()
	cancel()
	cleaners.Wait()
	mustClean(t, store)
	t.Logf("99 in 100 appends take %s while the outbox is cleaned, %s otherwise", with, without)
	if _, low := kept(t, pool, last); low != 0 {
		t.Errorf("%d messages are left", low)
	}
	if full && with > 2*without+5*time.Millisecond {
		t.Errorf("99 in 100 appends take %s while the outbox is cleaned, %s otherwise", with, without)
	}
}
