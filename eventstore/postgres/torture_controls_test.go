package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/eventstoretest"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The readers of this file are wrong on purpose. They are what people write first, and what our reader would become by a
// small change. Every torture must catch them.

// readingWithoutHead goes on behind the highest position that it has seen. It loses events whose transactions drew
// lower positions and commit later.
func readingWithoutHead(pool *pgxpool.Pool) eventstoretest.Reading {
	return func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		return wrongPage(ctx, pool, after, 1<<62)
	}
}

const (
	lowestRegisteredSQL = `
SELECT coalesce(min(objid::bigint), 9223372036854775807) FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = 'daybook.log_position'::regclass
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	highestSQL = `SELECT coalesce(max(position), 0) FROM daybook.events WHERE position > $1`
)

// readingLocksFirst reads the locks of the writers and then the highest position. A writer that registers in between,
// and is overtaken by one that commits in between, is lost. Between the two it is held up, as a slow network would, until
// the log has grown; started is closed when it has read the locks for the first time.
func readingLocksFirst(pool *pgxpool.Pool, started chan<- struct{}) eventstoretest.Reading {
	calls := 0
	return func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
		return readLocksFirst(ctx, pool, after, func() error {
			heldUp := 200 * time.Millisecond
			if calls++; calls == 1 {
				close(started)
				heldUp = patience
			}
			return awaitGrowth(ctx, pool, after, heldUp)
		})
	}
}

// awaitGrowth waits until the log goes well beyond a position, or for a while.
func awaitGrowth(ctx context.Context, pool *pgxpool.Pool, after eventstore.Position, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var highest int64
		if err := pool.QueryRow(ctx, highestSQL, after.Ordinal()).Scan(&highest); err != nil || highest > after.Ordinal()+100 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return nil
		case <-tick.C:
		}
	}
}

func readLocksFirst(
	ctx context.Context, pool *pgxpool.Pool, after eventstore.Position, between func() error,
) ([]eventstore.RecordedEvent, eventstore.Position, error) {
	var lowest, highest int64
	if err := pool.QueryRow(ctx, lowestRegisteredSQL).Scan(&lowest); err != nil {
		return nil, after, err
	}
	if err := between(); err != nil {
		return nil, after, err
	}
	if err := pool.QueryRow(ctx, highestSQL, after.Ordinal()).Scan(&highest); err != nil {
		return nil, after, err
	}
	return wrongPage(ctx, pool, after, min(lowest, highest))
}

func wrongPage(ctx context.Context, pool queryer, after eventstore.Position, upTo int64) ([]eventstore.RecordedEvent, eventstore.Position, error) {
	list, err := tortureEvents(ctx, pool, `SELECT id, stream_id, version, position FROM daybook.events
		WHERE position > $1 AND position <= $2 ORDER BY position LIMIT 1000`, after.Ordinal(), upTo)
	if err != nil || len(list) == 0 {
		return nil, after, err
	}
	return list, list[len(list)-1].Position, nil
}

// TestWrongReadersAreCaught leads each wrong reader into the schedule that it cannot survive, and the right one through
// the same: A draws a position and stays open, B draws the next one and commits, the reader reads, A commits (R-OG01).
func TestWrongReadersAreCaught(t *testing.T) {
	t.Parallel()
	type opened struct {
		store *postgres.Store
		pool  *pgxpool.Pool
	}
	// overtaken runs the schedule: A is open when it returns, B is committed; finish commits A.
	overtaken := func(t *testing.T, o opened) (finish func()) {
		tx := beginTx(t, o.pool)
		mustAppend(t, o.store.WithTx(tx), eventstore.To(newStream("slow"), eventstore.NoStream, newEvent("A")))
		mustAppend(t, o.store, eventstore.To(newStream("fast"), eventstore.NoStream, newEvent("B")))
		return func() { mustCommit(t, tx) }
	}
	tests := []struct {
		name string
		lost int
		// reading returns the reader, and what it has to be told once: the schedule to run inside its first call, or nil
		// when the schedule runs before it.
		reading func(o opened, inside *func() error) eventstoretest.Reading
		inside  bool
	}{
		{"no safe head", 1, func(o opened, _ *func() error) eventstoretest.Reading { return readingWithoutHead(o.pool) }, false},
		{"locks before head", 1, func(o opened, inside *func() error) eventstoretest.Reading {
			return func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
				return readLocksFirst(ctx, o.pool, after, func() error { return (*inside)() })
			}
		}, true},
		{"pages of the log", 0, func(o opened, _ *func() error) eventstoretest.Reading {
			return eventstoretest.ReadingPages(o.store.Log(), eventstore.Filter{}, 10)
		}, false},
		{"ReadAll", 0, func(o opened, _ *func() error) eventstoretest.Reading {
			return eventstoretest.ReadingAll(o.store, eventstore.Filter{})
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var o opened
			o.store, o.pool = freshStore(t, postgres.Config{})
			nothing := func() error { return nil }
			inside := nothing
			read := tt.reading(o, &inside)
			var finish func()
			if tt.inside {
				inside = func() error { finish = overtaken(t, o); return nil }
			} else {
				finish = overtaken(t, o)
			}
			// The first call is made here, at the decisive moment; the watcher makes the others.
			first, checkpoint, err := read(t.Context(), eventstore.Position{})
			if err != nil {
				t.Fatal(err)
			}
			inside = nothing
			finish()
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			watcher := eventstoretest.NewWatcher()
			given := false
			watcher.Watch(ctx, tt.name, func(ctx context.Context, after eventstore.Position) ([]eventstore.RecordedEvent, eventstore.Position, error) {
				if !given {
					given = true
					return first, checkpoint, nil
				}
				return read(ctx, after)
			})
			finishing, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for _, report := range watcher.Finish(finishing, stop, tortureTruth(t, o.pool)) {
				if report.Lost != tt.lost || report.Doubled+report.Reordered+report.Unknown > 0 || report.Err != nil || report.Events != 2 {
					t.Errorf("%s; want %d lost of 2", report, tt.lost)
				}
			}
		})
	}
}
