package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
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

// lossy cuts a connection at the moment that the server's answer "ready, no transaction" arrives: the commit is done, and
// the client does not hear of it.
type lossy struct {
	net.Conn
	armed *atomic.Bool
}

func (c *lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && bytes.HasSuffix(p[:n], []byte("Z\x00\x00\x00\x05I")) && c.armed.CompareAndSwap(true, false) {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}

func TestAppendWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &lossy{Conn: conn, armed: &armed}, nil
		}
	}))
	store := openStore(t, pool, postgres.Config{MaxConns: 1})
	for name, writes := range map[string]func() []eventstore.Write{
		"one stream": func() []eventstore.Write {
			return []eventstore.Write{eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("1"), ownEvent("2"))}
		},
		"several": func() []eventstore.Write {
			return []eventstore.Write{eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("1")), eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("2"))}
		},
	} {
		mustAppend(t, store, writes()...) // its statements are prepared
		again := writes()
		before := len(logEvents(t, store, eventstore.Position{}))
		armed.Store(true)
		_, err := store.Append(t.Context(), again...)
		if !errors.Is(err, eventstore.ErrUnconfirmed) || eventstore.IsRetryable(err) {
			t.Fatalf("%s: got %v, want ErrUnconfirmed", name, err)
		}
		result := mustAppend(t, store, again...)
		if !result.Repeated {
			t.Errorf("%s: the repeat was not recognised: %+v", name, result)
		}
		if got := len(logEvents(t, store, eventstore.Position{})); got != before+2 {
			t.Errorf("%s: %d events, want %d", name, got, before+2)
		}
	}
}

// The backend dies at the commit, after everything has been written.
func TestBackendKilledAtCommit(t *testing.T) {
	t.Parallel()
	for _, hooks := range []bool{false, true} {
		t.Run(map[bool]string{false: "pipeline", true: "with hooks"}[hooks], func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.New(t)
			mustExec(t, pool, `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END $$`)
			mustExec(t, pool, `CREATE CONSTRAINT TRIGGER die AFTER INSERT ON daybook.events_1 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.type = 'deadly') EXECUTE FUNCTION die()`)
			cfg := postgres.Config{}
			if hooks {
				cfg.Hooks = []postgres.Hook{func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error { return nil }}
			}
			store := openStore(t, pool, cfg)
			deadly := ownEvent("1")
			deadly.Type = "deadly"
			w := eventstore.To(newStream("s"), eventstore.NoStream, ownEvent("0"), deadly)
			if _, err := store.Append(t.Context(), w); !errors.Is(err, eventstore.ErrUnconfirmed) {
				t.Fatalf("got %v, want ErrUnconfirmed", err)
			}
			mustExec(t, pool, `DROP TRIGGER die ON daybook.events_1`)
			if result := mustAppend(t, store, w); result.Repeated {
				t.Error("what was not stored counts as repeated")
			}
			if result := mustAppend(t, store, w); !result.Repeated {
				t.Error("what was stored does not count as repeated")
			}
			// The backend that was killed gives its registration back a moment after it has said goodbye.
			await(t, "the two events to be readable", func() bool { return len(logEvents(t, store, eventstore.Position{})) == 2 })
		})
	}
}

// A backend that dies inside a hook has certainly not committed.
func TestBackendKilledInsideAHook(t *testing.T) {
	t.Parallel()
	var deadly atomic.Bool
	store, _ := freshStore(t, postgres.Config{Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			if !deadly.Load() {
				return nil
			}
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		},
	}})
	id := newStream("s")
	deadly.Store(true)
	if _, err := store.Append(t.Context(), eventstore.To(id, eventstore.NoStream, newEvent("1"))); err == nil || errors.Is(err, eventstore.ErrUnconfirmed) {
		t.Errorf("got %v, want a failure that is certain", err)
	}
	deadly.Store(false)
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
}

// R-RL02: callers that give up at any point leave nothing behind. Not in parallel, since it counts goroutines.
func TestCancelledAppends(t *testing.T) { //nolint:paralleltest
	pool := postgrestest.New(t)
	plain := openStore(t, pool, postgres.Config{MaxConns: 4})
	hooked := openStore(t, pool, postgres.Config{MaxConns: 4, Hooks: []postgres.Hook{
		func(ctx context.Context, tx pgx.Tx, _ []eventstore.RecordedEvent) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		},
	}})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	usual := time.Hour
	for range 10 {
		start := time.Now()
		mustAppend(t, plain, eventstore.To(newStream("warm"), eventstore.NoStream, manyEvents(3)...))
		usual = min(usual, time.Since(start))
		mustAppend(t, hooked, eventstore.To(newStream("warm"), eventstore.NoStream, manyEvents(3)...))
	}
	before := runtime.NumGoroutine()
	// Half of the time is spent before the shortest append would be done.
	certain, doubtful := 0, 0
	var ids []eventstore.StreamID
	n := max(testscale.N(200), 100)
	for i := range n {
		store := plain
		if i%2 == 0 {
			store = hooked
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(usual)*2)))
		id := newStream("s")
		_, err := store.Append(ctx, eventstore.To(id, eventstore.NoStream, manyEvents(3)...))
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, eventstore.ErrUnconfirmed):
			doubtful++
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("append %d: %v", i, err)
		default:
			certain++
		}
		ids = append(ids, id)
		stored := len(streamEvents(t, plain, id))
		if stored != 0 && stored != 3 || err == nil && stored != 3 {
			t.Errorf("append %d ended with %v and stored %d events of 3", i, err, stored)
		}
	}
	t.Logf("%d of %d cancelled before their commit, %d in doubt", certain, n, doubtful)
	if certain+doubtful == 0 {
		t.Error("no append was cancelled: the test shows nothing")
	}
	for name, store := range map[string]*postgres.Store{"plain": plain, "hooked": hooked} {
		await(t, name+": all connections back", func() bool { return store.Pool().Stat().AcquiredConns() == 0 })
		for _, err := range concurrently(4, func(int) error {
			_, err := store.Append(context.Background(), eventstore.To(newStream("after"), eventstore.NoStream, newEvent("1")))
			return err
		}) {
			if err != nil {
				t.Errorf("%s: append afterwards: %v", name, err)
			}
		}
	}
	await(t, "locks of cancelled appends gone", func() bool {
		return value[int](t, pool, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() WHERE locktype = 'advisory'`) == 0
	})
	whole := 0
	for _, id := range ids {
		whole += len(streamEvents(t, plain, id))
	}
	if whole%3 != 0 {
		t.Errorf("%d events of appends of 3", whole)
	}
	// The warm connections have none of their own.
	await(t, fmt.Sprintf("no more than the %d goroutines of before", before), func() bool { return runtime.NumGoroutine() <= before })
}
