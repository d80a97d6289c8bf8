package postgres_test

import (
	"context"
	"slices"
	"sync"
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
// commit to readable of a quiet one. In the control the writers register before they wait, as an append in one statement
// would.
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
	idle := quietDelay(t, store, pool, quiet, nil)
	loaded := quietDelay(t, store, pool, quiet, appendHot)
	control := quietDelay(t, store, pool, quiet, registerFirst)
	t.Logf("median delay from commit to readable: idle %v, 64 hot writers %v, 64 writers that register first %v", idle, loaded, control)
	// Two cores serve 64 writers and the reader, so some of the delay is the machine's; the control has the same load.
	if limit := 10*idle + 40*time.Millisecond; loaded > limit {
		t.Errorf("the quiet stream is readable after %v, more than %v", loaded, limit)
	}
	if control < 3*loaded {
		t.Errorf("the control has a delay of %v, not much worse than %v: the test shows nothing", control, loaded)
	}
}

// quietDelay returns the median of the time from the return of an append to the safe head's reaching it. A delay of two
// seconds is long enough for any comparison and not waited out.
func quietDelay(t *testing.T, store *postgres.Store, pool *pgxpool.Pool, quiet eventstore.StreamID, write func(context.Context) error) time.Duration {
	t.Helper()
	const enough = 2 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	if write != nil {
		for range 64 {
			writers.Go(func() {
				for ctx.Err() == nil {
					if err := write(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		awaitBlocked(t, pool, 10)
	}
	var delays []time.Duration
	for end := time.Now().Add(testscale.Duration(10 * time.Second)); time.Now().Before(end) || len(delays) < 3; {
		result := mustAppend(t, store, eventstore.To(quiet, eventstore.AnyVersion, newEvent("q")))
		committed := time.Now()
		at := result.Token.Marks()[0].Position
		for safeHead(t, store).Before(at) && time.Since(committed) < enough {
		}
		delays = append(delays, time.Since(committed))
	}
	slices.Sort(delays)
	return delays[len(delays)/2]
}
