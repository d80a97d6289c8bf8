package postgres_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// costs collects how many pages of memory each statement of a pool's connections touched, by its plan.
type costs struct {
	mu    sync.Mutex
	plans []string
}

var buffers = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?`)

func (c *costs) pool(t testing.TB, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.plans = append(c.plans, n.Message)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on;
			SET auto_explain.log_timing = off; SET auto_explain.log_nested_statements = on; SET client_min_messages = log`, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	told, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(told.Close)
	return told
}

// take returns the plans since the last call, and the pages of the dearest.
func (c *costs) take() (plans int, most int, dearest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, plan := range c.plans {
		if m := buffers.FindStringSubmatch(plan); m != nil {
			hit, _ := strconv.Atoi(m[1])
			read, _ := strconv.Atoi(m[2])
			if hit+read > most {
				most, dearest = hit+read, plan
			}
		}
	}
	plans, c.plans = len(c.plans), nil
	return plans, most, dearest
}

// fillStore puts n events and as many messages into a store, a fifth of them as letters and a thousandth as sequences set
// aside, and consumers that have everything before them.
func fillStore(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	relays(t, pool, 0)
	subscribe(t, pool, "view", "", 0)
	subscribe(t, pool, "busy", "all", int64(n))
	subscribe(t, pool, "quiet", "none", 0)
	subscribe(t, pool, "late", "rare", 0)
	mustExec(t, pool, `UPDATE daybook.consumers SET kind = 'projection', source = CASE consumer WHEN 'busy' THEN 'topic all' WHEN 'quiet' THEN 'topic none' WHEN 'late' THEN 'topic rare' ELSE '' END
		WHERE consumer <> 'outbox-relay'`)
	mustExec(t, pool, `SELECT daybook.ensure_ranges((3 + 2 * $1::int / range_size)::int) FROM daybook.store`, n)
	mustExec(t, pool, `INSERT INTO daybook.streams (stream_id, version, partition)
		SELECT 'order-' || k, $1::int / 1000, daybook.partition_of('order-' || k, 64) FROM generate_series(0, 999) k`, n)
	mustExec(t, pool, `INSERT INTO daybook.events (version, id, partition, stream_id, type, data)
		SELECT i / 1000 + 1, gen_random_uuid(), s.partition, s.stream_id, 'test.happened', '\x00' FROM generate_series(0, $1::int - 1) i JOIN daybook.streams s ON s.stream_id = 'order-' || i % 1000`, n)
	publish(t, pool, n)
	insertMessage(t, pool, "rare", "k", "x")
	mustExec(t, pool, `INSERT INTO daybook.outbox_tails (consumer, version, topic, partition, position)
		SELECT 'outbox-relay', 2, t, p, last_value FROM daybook.log_position, generate_series(0, 63) p, unnest('{all,rare}'::text[]) t`)
	mustExec(t, pool, `INSERT INTO daybook.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint, errors, first_errors,
		  first_failed_at, last_failed_at, handler, program, closed_at, id, type, schema_version, flags, content_type, tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
		SELECT gen_random_uuid(), 'view', 1, 'key-' || i, i % 64, i, CASE WHEN i % 200 = 0 THEN 'parked' ELSE 'applied' END, 'permanent', 5, 5, 'f' || i % 7, '{no}', '{no}',
		  now(), now(), 'h', 'p', CASE WHEN i % 200 <> 0 THEN now() END, gen_random_uuid(), 'test.happened', 1, 0, '', '', '', '', '', '', repeat('x', 100)::bytea, now()
		  FROM generate_series(1, $1::int / 5) i`, n)
	mustExec(t, pool, `INSERT INTO daybook.parked (consumer, version, sequence, partition, state, first_position, last_position)
		SELECT consumer, version, sequence, partition, 'parked', position, position FROM daybook.letters WHERE state = 'parked'`)
	mustExec(t, pool, `VACUUM ANALYZE`)
}

// R-LB01: what dashboards and probes ask costs the same on a store of any size, but for a page of each sequence set aside.
func TestStatusCostsTheSameOnALargeStore(t *testing.T) {
	t.Parallel()
	full := testscale.N(300_000) // events and messages; a tenth of that with the usual scale
	asked := map[string][2]int{}
	for i, n := range []int{full / 10, full} {
		pool := postgrestest.New(t)
		fillStore(t, pool, n)
		var c costs
		told := c.pool(t, pool)
		store := openStore(t, told, postgres.Config{})
		letters, err := deadletter.New(told, deadletter.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for name, ask := range map[string]func() error{
			"status":          func() error { _, err := store.Status(t.Context()); return err },
			"health":          func() error { store.Health(t.Context()); return nil },
			"blocker":         func() error { _, _, err := store.Blocker(t.Context()); return err },
			"safe head":       func() error { _, err := store.SafeHead(t.Context()); return err },
			"letters: status": func() error { _, err := letters.Status(t.Context()); return err },
			"letters: list": func() error {
				_, err := letters.List(t.Context(), deadletter.Filter{Consumer: "view", Version: 1})
				return err
			},
		} {
			_, _, _ = c.take()
			start := time.Now()
			if err := ask(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			took := time.Since(start)
			plans, most, dearest := c.take()
			pair := asked[name]
			pair[i] = most
			asked[name] = pair
			t.Logf("%d events: %s: %d statements, the dearest touches %d pages, %s in all", n, name, plans, most, took.Round(time.Millisecond))
			if plans == 0 {
				t.Errorf("%s: no plan was seen", name)
			}
			for _, table := range forbiddenScans(dearest) {
				if !strings.HasPrefix(table, "parked") && !strings.HasPrefix(table, "segments") && !strings.HasPrefix(table, "redrives") {
					t.Errorf("%s reads all of %s:\n%s", name, table, dearest)
				}
			}
			if limit := 3*pair[0] + n/500 + 50; i == 1 && most > limit {
				t.Errorf("%s: %d pages, %d on a tenth:\n%s", name, most, pair[0], dearest)
			}
			if took > 5*time.Second { // half a second is what is wanted of a machine that does nothing else
				t.Errorf("%s takes %s", name, took)
			}
		}
	}
}
