package postgres_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// A writer that waits for a stream must not hold the head of the log: 64 writers on one hot stream, and the delay from
// commit to readable of a quiet one. One writer at a time is past its wait, so the delay is that of a few of their appends,
// which take turns; held by all that wait it would be that of 64 and of those that come meanwhile. In the control the writers
// register before they wait, as an append in one statement would.
func TestWritersThatWaitDoNotHoldTheHead(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMaxConns(66))
	store := openStore(t, pool, postgres.Config{})
	hot, quiet := newStream("hot"), newStream("quiet")
	mustAppend(t, store, eventstore.To(hot, eventstore.NoStream, newEvent("0")))

	appendHot := func(ctx context.Context) error {
		_, err := store.Append(ctx, eventstore.To(hot, eventstore.AnyVersion, newEvent("x")))
		return err
	}
	registerFirst := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// Draws a position, so the transaction is registered while it waits for the stream.
			if _, err := tx.Exec(ctx, `INSERT INTO daybook.outbox (last_position, partition, topic, key, type, data)
				SELECT p, 0, 't', 'k', 'c', '' FROM nextval('daybook.log_position') p WHERE false`); err != nil {
				return err
			}
			_, err := store.WithTx(tx).Append(ctx, eventstore.To(hot, eventstore.AnyVersion, newEvent("x")))
			return err
		})
	}
	loaded, turn := quietDelay(t, store, pool, quiet, appendHot)
	control, _ := quietDelay(t, store, pool, quiet, registerFirst)
	t.Logf("median delay from commit to readable: 64 hot writers %v, each append %v, 64 writers that register first %v", loaded, turn, control)
	if limit := 40*turn + 40*time.Millisecond; loaded > limit {
		t.Errorf("the quiet stream is readable after %v, more than %v", loaded, limit)
	}
	if control < 3*loaded {
		t.Errorf("the control has a delay of %v, not much worse than %v: the test shows nothing", control, loaded)
	}
}

// quietDelay returns the median of the time from the return of an append to the safe head's reaching it, and how long the
// writers took for each write. A delay of two seconds is long enough for any comparison and not waited out.
func quietDelay(t *testing.T, store *postgres.Store, pool *pgxpool.Pool, quiet eventstore.StreamID, write func(context.Context) error) (delay, turn time.Duration) {
	t.Helper()
	const enough = 2 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	var written atomic.Int64
	for range 64 {
		writers.Go(func() {
			for ctx.Err() == nil {
				if err := write(context.Background()); err != nil {
					t.Error(err)
					return
				}
				written.Add(1)
			}
		})
	}
	awaitBlocked(t, pool, 10)
	var delays []time.Duration
	start, before := time.Now(), written.Load()
	for end := time.Now().Add(testscale.Duration(10 * time.Second)); time.Now().Before(end) || len(delays) < 3; {
		result := mustAppend(t, store, eventstore.To(quiet, eventstore.AnyVersion, newEvent("q")))
		committed := time.Now()
		at := result.Token.Marks()[0].Position
		for safeHead(t, store).Before(at) && time.Since(committed) < enough {
		}
		delays = append(delays, time.Since(committed))
	}
	turn = time.Since(start) / time.Duration(max(1, written.Load()-before))
	slices.Sort(delays)
	return delays[len(delays)/2], turn
}
