package parking

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// Every statement finds its rows through the index that is meant for it, also when the tables were analysed while they were
// empty, and with a plan that was made for any arguments.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	ctx := context.Background()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	x := textsFor(Owner{Schema: "daybook"})
	now := time.Now()
	for _, analysed := range []bool{false, true} {
		if analysed {
			exec("VACUUM ANALYZE")
		}
		exec("SET enable_seqscan = off")
		exec("SET plan_cache_mode = force_generic_plan")
		for name, c := range map[string]struct {
			sql   string
			index []string
			args  []any
		}{
			"alter":  {x.alter, []string{"parked_pkey", "Tid Scan"}, []any{"c", 1, "", "s", "parked", nil, int64(1), int64(1), int64(0), int64(0)}},
			"remove": {x.remove, []string{"parked_pkey", "Tid Scan"}, []any{"c", 1, "", "s"}},
			"count":  {x.count, []string{"parked_pkey", "Tid Scan"}, []any{"c", 1, []string{""}, []string{"s"}, []int64{1}, []int64{1}}},
			"open":   {x.open, []string{"letters_open"}, []any{"c", 1, "", "s"}},
			"closed": {x.closed, []string{"letters_pkey"}, []any{uuid.New(), "applied", now, "", ""}},
			"failed": {x.failed, []string{"letters_pkey"}, []any{uuid.New(), "parked", "permanent", 1, "f", []string{}, now, "h", "p"}},
			"held":   {x.held, []string{"held_pkey"}, []any{"c", 1, "", "s", 10}},
			"drop":   {x.drop, []string{"held_pkey"}, []any{"c", 1, "", "s", int64(1)}},
			"look":   {x.look, []string{"redrives_running", "redrive_items_"}, []any{"c", 1, 0, 0, 63, now, 10}},
			"item":   {x.item, []string{"redrives_pkey", "redrive_items_"}, []any{uuid.New(), 1}},
			"begin":  {x.begin, []string{"redrives_pkey", "redrive_items_"}, []any{uuid.New(), 1, now}},
			"end":    {x.end, []string{"redrive_items_"}, []any{uuid.New(), 1, "failed", now}},
			"tally":  {x.tally, []string{"redrives_pkey"}, []any{uuid.New(), 1, "failed", now}},
			"done":   {x.done, []string{"redrives_pkey", "redrive_items_"}, []any{uuid.New(), now}},
		} {
			rows, err := conn.Query(ctx, "EXPLAIN "+c.sql, c.args...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plan := strings.Join(lines, "\n")
			for _, want := range c.index {
				if !strings.Contains(plan, want) {
					t.Errorf("%s (%s) does not use %s:\n%s", name, fmt.Sprint("analysed ", analysed), want, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s scans a table:\n%s", name, plan)
			}
		}
	}
}
