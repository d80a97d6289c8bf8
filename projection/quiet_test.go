package projection

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// 64 writers, or fewer at a small scale, queue for one hot stream; a quiet stream's events come into the read model nearly as soon as without them. In
// the control the writers register before they wait, and hold the head while they do.
func TestQuietStreamBesideAHotOne(t *testing.T) {
	v := counts("quiet_beside_hot")
	w := openWorld(t, postgrestest.New(t, postgrestest.WithMaxConns(68)), v)
	busy, err := postgres.New(t.Context(), w.pool, postgres.Config{MaxConns: 66})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(busy.Close)
	w.start(w.runner(Config{}, v))
	hot := func(ctx context.Context, to eventstore.Appender) error {
		_, err := to.Append(ctx, eventstore.To(stream("hot"), eventstore.AnyVersion, encode(t, other{"x"})...))
		return err
	}
	idle := quietDelay(t, w, v, nil)
	beside := quietDelay(t, w, v, func(ctx context.Context) error { return hot(ctx, busy) })
	control := quietDelay(t, w, v, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO daybook.outbox (last_position, partition, topic, key, type, data)
				SELECT p, 0, 't', 'k', 'c', '' FROM nextval('daybook.log_position') p WHERE false`)
			if err != nil {
				return err
			}
			return hot(ctx, busy.WithTx(tx))
		})
	})
	t.Logf("median delay from commit to read model: idle %v, beside the hot stream %v, when waiting writers hold the head %v", idle, beside, control)
	// The hot writers and the projection share the machine, so some of the delay is its; the control has the same load.
	if beside >= control/2 {
		t.Errorf("the quiet stream is in the read model after %v, not much sooner than when the head is held: %v", beside, control)
	}
}

// quietDelay returns the median of the time from the return of an append to its row.
func quietDelay(t *testing.T, w *world, v View[string, count], write func(context.Context) error) time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	if write != nil {
		for range max(testscale.N(64), 16) {
			writers.Go(func() {
				for ctx.Err() == nil {
					if err := write(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		livetest.Eventually(t, "writers wait for the hot stream", func() bool {
			return ask[int](w, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 8
		})
	}
	var delays []time.Duration
	for end := time.Now().Add(testscale.Duration(10 * time.Second)); time.Now().Before(end) || len(delays) < 3; {
		token := w.append("quiet", added{1})
		began := time.Now()
		if _, err := v.Get(t.Context(), w.pool, "quiet", AtLeast(token), Within(patience)); err != nil {
			t.Fatal(err)
		}
		delays = append(delays, time.Since(began))
	}
	return middle(delays)
}
