package saga

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// statementTracer keeps the statements of a pool about sagas, with their last arguments.
type statementTracer struct {
	mu   sync.Mutex
	seen map[string][]any
}

func (tr *statementTracer) keep(sql string, args []any) {
	if !strings.Contains(sql, ".saga") && !strings.Contains(sql, ".timers") {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.seen[sql] = args
}

func (tr *statementTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.keep(data.SQL, data.Args)
	return ctx
}
func (*statementTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (tr *statementTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		tr.keep(q.SQL, q.Arguments)
	}
	return ctx
}
func (*statementTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*statementTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// scanned are scans of tables of sagas. Of the named indexes all of a saga may be read: there is little in them, or a limit.
var scanned = regexp.MustCompile(`(?:Seq Scan on (?:saga|timers)|Index(?: Only)? Scan(?: Backward)? using (saga_names_pkey|sagas_held|sagas_stuck|sagas_ended|saga_commands_alone|saga_plans_running|timers_visible)?.* on (?:saga|timers))`)

// Each statement finds its rows by conditions of an index, also by a plan that was made when the tables were empty and is kept.
func TestPlansOfStatements(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), again{})
	w.exec("ANALYZE daybook.sagas, daybook.saga_commands, daybook.saga_history, daybook.timers, daybook.saga_inputs, daybook.saga_plans, daybook.saga_plan_items")
	w.idle(500)
	cfg, err := pgxpool.ParseConfig(postgrestest.URL(w.pool))
	if err != nil {
		t.Fatal(err)
	}
	tr := &statementTracer{seen: map[string][]any{}}
	cfg.ConnConfig.Tracer = tr
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	m, err := NewManager(pool, w.store.Log(), w.post, quick(), script(1), again{})
	if err != nil {
		t.Fatal(err)
	}
	stop := w.start(m)
	w.walkThrough(m, "x", "idle-1", 5)
	w.open("y", "script fail")
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas WHERE key = 'y'")
	stop()
	for sql := range tr.seen {
		settings := []string{planSQL}
		if of := m.units[0].sql; slices.Contains([]string{of.look, of.late, of.planned, of.plan, of.clean, of.cleanAlone}, sql) {
			settings = append(settings, customSQL)
		}
		plan := w.explain(sql, settings...)
		lines := strings.Split(plan, "\n")
		for n, line := range lines {
			cond := ""
			if n+1 < len(lines) && strings.Contains(lines[n+1], "Index Cond") {
				cond = lines[n+1]
			}
			switch found := scanned.FindStringSubmatch(line); {
			case found == nil:
			case strings.Contains(line, "Seq Scan on"):
				t.Errorf("a table is read whole:\n%s\n%s", sql, plan)
			case cond == "", found[1] == "" && !strings.Contains(cond, "key = ") && !strings.Contains(cond, "command = ") && !strings.Contains(cond, "name ") && !strings.Contains(cond, "plan = "):
				t.Errorf("an index is read whole, or all of a saga: %s\n%s\n%s", line, sql, plan)
			}
		}
	}
	if len(tr.seen) < 25 {
		t.Errorf("only %d statements were seen", len(tr.seen))
	}
}

// explain is the plan of a statement as it is kept by a session, whatever the arguments.
func (w *scriptWorld) explain(sql string, settings ...string) string {
	w.t.Helper()
	tx, err := w.pool.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, set := range append(settings, "SET LOCAL plan_cache_mode = force_generic_plan") {
		if _, err := tx.Exec(w.t.Context(), set); err != nil {
			w.t.Fatal(err)
		}
	}
	prepared, err := tx.Conn().Prepare(w.t.Context(), "explained", sql)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, sql)
	}
	defer func() { _ = tx.Conn().Deallocate(context.Background(), "explained") }()
	call := "EXPLAIN EXECUTE explained"
	if n := len(prepared.ParamOIDs); n > 0 {
		call += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	rows, err := tx.Query(w.t.Context(), call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, sql)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatalf("%v\n%s", err, sql)
	}
	return strings.Join(lines, "\n")
}
