package saga

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// counted runs f with a manager on connections of its own, and returns which tables of sagas these have read whole, and how
// many entries of the index that finds due timers. A session tells what it did when it ends.
func (w *scriptWorld) counted(name string, run func(*pgxpool.Pool)) (scans string, visited int) {
	w.t.Helper()
	pool := w.victim(name)
	w.exec("SELECT pg_stat_force_next_flush()")
	w.exec("SELECT pg_stat_reset()")
	run(pool)
	pool.Close()
	w.becomes("its sessions have ended", "0", "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()", name)
	scans = w.value(`SELECT coalesce(string_agg(relname || ' ' || seq_scan, ', '), '') FROM pg_stat_user_tables
WHERE schemaname = 'daybook' AND (relname LIKE 'saga%' OR relname = 'timers') AND seq_scan > 0`)
	return scans, w.number("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'timers'")
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
		began := time.Now()
		scans, visited := w.counted("idle "+statistics, func(pool *pgxpool.Pool) {
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
		// Two claims for each look at most, and what was due may be seen again until it is removed.
		if looks := int(time.Since(began)/cfg.Poll) + 1; visited > 3*due+2*looks {
			t.Errorf("%d entries were visited in about %d looks, of which %d timers were due", visited, looks, due)
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
	w.becomes("what is kept", "1", "SELECT held::text FROM daybook.sagas WHERE key = $1", x)
	w.planEnds(w.plan("resume", "", "", x))
	w.becomes("what is kept", "0", "SELECT held::text FROM daybook.sagas WHERE key = $1", x)
	w.planEnds(w.plan(flow.ActionRetry, "send two", "", x))
	w.exec(`UPDATE daybook.timers SET due_at = clock_timestamp(), visible_at = clock_timestamp()
WHERE queue = 'saga:script' AND name IN (SELECT length($1::text || i) || ':' || $1 || i || ':1:late' FROM generate_series(10, 9 + $2::int) i)`, idle, due)
	livetest.Eventually(w.t, "the timers have fired", func() bool { return m.Stats()[0].TimersFired == int64(due+2) })
	w.poke(x, "complete")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas WHERE key = $1", x)
	m.Wake()
}
