package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Tables of one row or of a handful, read whole by right.
var scannedByRight = []string{"store", "ranges", "migrations", "pg_database", "pg_class", "pg_namespace", "consumers", "epochs", "outcome_turn"}

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	seqScan   = regexp.MustCompile(`Seq Scan on (?:daybook\.)?"?([a-z_0-9]+)`)
)

// forbiddenScans returns the tables that a plan reads whole and must not.
func forbiddenScans(plan string) []string {
	var found []string
	for _, m := range seqScan.FindAllStringSubmatch(plan, -1) {
		if !slices.Contains(scannedByRight, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

// genericPlan returns the plan of a statement made without its values.
func genericPlan(ctx context.Context, conn *pgx.Conn, sql string) (string, error) {
	highest := 0
	for _, m := range parameter.FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return "", err
		}
		highest = max(highest, n)
	}
	if _, err := conn.Exec(ctx, `PREPARE explained AS `+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", err
	}
	call := "explained"
	if highest > 0 {
		call += "(" + strings.TrimSuffix(strings.Repeat("NULL,", highest), ",") + ")"
	}
	rows, err := conn.Query(ctx, `EXPLAIN EXECUTE `+call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, `DEALLOCATE explained`)
	return strings.Join(lines, "\n"), err
}

// Nothing that the store sends reads a table whole: not on an empty store, and not after a nightly VACUUM ANALYZE has told
// the planner that it is empty. And nothing is compiled, which takes longer than all the rest.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	statements := postgres.Statements("daybook")
	if len(statements) < 20 {
		t.Fatalf("only %d statements", len(statements))
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			mustExec(t, pool, `VACUUM ANALYZE`)
		}
		conn, err := store.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, conn, `SET plan_cache_mode = force_generic_plan`)
		for name, sql := range statements {
			plan, err := genericPlan(t.Context(), conn.Conn(), sql)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, sql)
				continue
			}
			if tables := forbiddenScans(plan); len(tables) > 0 {
				t.Errorf("%s (analyzed: %v) reads all of %v:\n%s", name, analyzed, tables, plan)
			}
			if strings.Contains(plan, "JIT:") {
				t.Errorf("%s (analyzed: %v) is compiled:\n%s", name, analyzed, plan)
			}
		}
		mustExec(t, conn, `SET jit = on`)
		if plan, err := genericPlan(t.Context(), conn.Conn(), statements["epochs"]); err != nil || value[bool](t, conn, `SELECT pg_jit_available()`) && !strings.Contains(plan, "JIT:") {
			t.Errorf("the control is not compiled: %v\n%s", err, plan)
		}
		mustExec(t, conn, `SET jit = off`)
		mustExec(t, conn, `RESET plan_cache_mode`)
		conn.Release()
	}
	// Without the store's settings the analysed empty store has such plans: the test can fail.
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	mustExec(t, conn, `SET plan_cache_mode = force_generic_plan`)
	plan, err := genericPlan(t.Context(), conn.Conn(), statements["lockOne"])
	if err != nil || len(forbiddenScans(plan)) == 0 {
		t.Errorf("the control has no scan: %v\n%s", err, plan)
	}
}

// The statements inside the functions of the schema, as they run for real.
func TestNoFunctionScansATable(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var plans []string
	pool := postgrestest.New(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			mu.Lock()
			defer mu.Unlock()
			plans = append(plans, n.Message)
		}
	}))
	store := openStore(t, pool, postgres.Config{})
	prepareSegment(t, pool, "view", 0)
	mustExec(t, pool, `DELETE FROM daybook.checkpoints`)
	mustExec(t, pool, `VACUUM ANALYZE`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	mustExec(t, conn, `LOAD 'auto_explain'`)
	mustExec(t, conn, `SET auto_explain.log_min_duration = 0`)
	mustExec(t, conn, `SET auto_explain.log_nested_statements = on`)
	mustExec(t, conn, `SET client_min_messages = log`)
	mustExec(t, conn, `SET plan_cache_mode = force_generic_plan`)
	mustExec(t, conn, `INSERT INTO daybook.checkpoints (consumer, version, partition, applied) VALUES ('view', 1, 3, 5)`)
	mustExec(t, conn, `SELECT daybook.commit_batch('view', 1, 0, 1, 0, 0, 7, '{""}', '{3}', '{5}', '{7}', false)`)
	mustExec(t, conn, `SELECT daybook.commit_batch('view', 1, 0, 1, 0, 7, 8, '{"",t,t}', '{4,4,5}', '{0,0,0}', '{9,10,8}', false)`)
	mustExec(t, conn, `SELECT daybook.commit_batch('view', 1, 0, 1, 0, 8, 9, '{"",t}', '{4,4}', '{9,10}', '{9,11}', false)`)
	mustExec(t, conn, `INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('t', 'g', 'view', 1)`)
	mustExec(t, conn, insertMessageSQL, "t", "k", []byte("x"))
	mustExec(t, conn, `SELECT daybook.declare_lost('1 hour')`)
	mustExec(t, conn, `UPDATE daybook.store SET outbox_cleaned = 5`)
	mustExec(t, conn, `SELECT daybook.drop_cleaned(10)`)
	mustExec(t, conn, `SELECT daybook.ensure_ranges(3)`)
	for range 4 {
		mustExec(t, conn, `SELECT daybook.turn_outcomes('1 hour', (SELECT since + interval '2 hours' FROM daybook.outcome_turn))`)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, store.WithTx(tx), eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	mustCommit(t, tx)
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(plans, "\n")
	for _, part := range []string{"UPDATE daybook.segments", "UPDATE daybook.checkpoints", "daybook.ranges", "DELETE FROM daybook.outbox_1", "INSERT INTO daybook.checkpoints",
		"UPDATE daybook.outcome_turn"} {
		if !strings.Contains(strings.ReplaceAll(all, `"`, ""), part) {
			t.Errorf("no plan of %q was seen", part)
		}
	}
	for _, plan := range plans {
		if tables := forbiddenScans(plan); len(tables) > 0 {
			t.Errorf("reads all of %v:\n%s", tables, plan)
		}
	}
}

// Columns may be added by a later migration: no statement may ask for all of them.
func TestNoStatementSelectsAllColumns(t *testing.T) {
	t.Parallel()
	star := regexp.MustCompile(`(?i)select\s+(\w+\.)?\*`)
	for name, sql := range postgres.Statements("daybook") {
		outer, _, _ := strings.Cut(strings.TrimSpace(sql), "FROM")
		if star.MatchString(outer) {
			t.Errorf("%s: %s", name, fmt.Sprintf("%.80s", sql))
		}
	}
}
