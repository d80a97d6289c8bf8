package saga

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// idle writes n instances that wait, each with a command, two lines of history and a timer that is far away.
func (w *scriptWorld) idle(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by, entries, began, position)
SELECT 'script', 'idle-' || i, 1, 1, 'flow', 'running', '{}', 'application/json', '{"Log":["opened"]}', gen_random_uuid(), 2, 1, 1 FROM generate_series(1, $1) i`, n)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, content_type, data)
SELECT gen_random_uuid(), 'script', 'idle-' || i, 1, 'one', 'do', 1, 'script.do', 'application/json', '"one"' FROM generate_series(1, $1) i`, n)
	w.exec(`INSERT INTO daybook.saga_history (saga, key, run, entry, kind, event)
SELECT 'script', 'idle-' || i, 1, e, 'sent', gen_random_uuid() FROM generate_series(1, $1) i, generate_series(1, 2) e`, n)
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at)
SELECT 'saga:script', length('idle-' || i) || ':idle-' || i || ':1:late', clock_timestamp() + interval '1 day', clock_timestamp() + interval '1 day' FROM generate_series(1, $1) i`, n)
}

// asked counts the statements about timers that a pool sends.
type asked struct {
	statementTracer
	timers atomic.Int64
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.count(data.SQL)
	return ctx
}

func (a *asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		a.count(q.SQL)
	}
	return ctx
}

func (a *asked) count(sql string) {
	if strings.Contains(sql, ".timers") {
		a.timers.Add(1)
	}
}

// counted runs f with a manager on connections of its own, and returns which tables of sagas these have read whole, how many
// entries of the indexes of timers, and in how many statements. A session tells what it did when it ends.
func (w *scriptWorld) counted(name string, run func(*pgxpool.Pool)) (scans string, visited, statements int) {
	w.t.Helper()
	victim := w.victim(name)
	cfg := victim.Config()
	victim.Close()
	a := &asked{}
	cfg.ConnConfig.Tracer = a
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec("SELECT pg_stat_force_next_flush()")
	w.exec("SELECT pg_stat_reset()")
	run(pool)
	pool.Close()
	w.becomes("its sessions have ended", "0", "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()", name)
	scans = w.value(`SELECT coalesce(string_agg(relname || ' ' || seq_scan, ', '), '') FROM pg_stat_user_tables
WHERE schemaname = 'daybook' AND (relname LIKE 'saga%' OR relname = 'timers') AND seq_scan > 0`)
	return scans, w.number("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'timers'"), int(a.timers.Load())
}

// Among very many instances that wait everything is found by an index, also when the planner was told of the tables while
// they were empty; looking for timers that are due reads those and hardly more.
func TestAMillionIdleSagas(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), again{})
	w.exec("ANALYZE daybook.sagas, daybook.saga_commands, daybook.saga_history, daybook.timers, daybook.saga_inputs, daybook.saga_plans, daybook.saga_plan_items")
	w.exec("ALTER TABLE daybook.sagas SET (autovacuum_enabled = false)")
	w.exec("ALTER TABLE daybook.timers SET (autovacuum_enabled = false)")
	n := 20_000
	if testscale.Factor() >= 1 {
		n = 1_000_000
	}
	w.idle(n)
	// What the test itself asks must not look like a manager.
	asking, err := pgxpool.ParseConfig(postgrestest.URL(w.pool))
	if err != nil {
		t.Fatal(err)
	}
	asking.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), asking); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	const due = 10
	for _, statistics := range []string{"empty", "filled"} {
		if statistics == "filled" {
			w.exec("ANALYZE daybook.sagas, daybook.saga_commands, daybook.saga_history, daybook.timers")
		}
		cfg := quick()
		scans, visited, statements := w.counted("idle "+statistics, func(pool *pgxpool.Pool) {
			m, err := NewManager(pool, w.store.Log(), w.post, cfg, script(1), again{})
			if err != nil {
				t.Fatal(err)
			}
			stop := w.start(m)
			w.walkThrough(m, "x"+statistics, fmt.Sprint("idle-", len(statistics)), due)
			stop()
		})
		if scans != "" {
			t.Errorf("with statistics of %s tables these were read whole: %s", statistics, scans)
		}
		// R-ST13: a look reads what is due and one more at most; what was removed is seen until nobody needs it.
		t.Logf("%d entries were visited in %d statements", visited, statements)
		if statements == 0 || visited > statements*(due+1) {
			t.Errorf("%d entries were visited in %d statements, with %d timers due", visited, statements, due)
		}
	}
}

// walkThrough lets a manager do everything that it does.
func (w *scriptWorld) walkThrough(m *Manager, x, idle string, due int) {
	w.t.Helper()
	w.open(x, "send one", "timer soon 1ms")
	w.sees(x, 1, "opened; timer soon")
	one := idOf("script", x, 1, "one", 1)
	w.post.reply(one, flow.ReplyDone)
	w.answer(one, "script again one", "close one")
	w.poke(x)
	livetest.Eventually(w.t, "all is seen", func() bool { return strings.Count(w.log(x, 1), ";") == 5 }, func() string { return w.log(x, 1) })
	w.planEnds(w.plan("pause", "", "", x))
	w.poke(x, "cancel nothing")
	w.becomes("what is kept", "1", "SELECT held::text FROM daybook.sagas WHERE saga = 'script' AND key = $1", x)
	w.planEnds(w.plan("resume", "", "", x))
	w.becomes("what is kept", "0", "SELECT held::text FROM daybook.sagas WHERE saga = 'script' AND key = $1", x)
	w.planEnds(w.plan(flow.ActionRetry, "send two", "", x))
	w.exec(`UPDATE daybook.timers SET due_at = clock_timestamp(), visible_at = clock_timestamp()
WHERE queue = 'saga:script' AND name IN (SELECT length($1::text || i) || ':' || $1 || i || ':1:late' FROM generate_series(10, 9 + $2::int) i)`, idle, due)
	livetest.Eventually(w.t, "the timers have fired", func() bool { return m.Stats()[0].TimersFired == int64(due+2) })
	w.poke(x, "complete")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas WHERE saga = 'script' AND key = $1", x)
	m.Wake()
}
