package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// Tables that are changed all the time are vacuumed after a fixed amount of dead rows, and tables that only grow are
// frozen range by range, long before their age would force it (R-PG06). That has to be set per table; ranges that are
// added later must not be forgotten.
func TestTablesCarryTheirAutovacuumOptions(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	before := rangeCount(t, pool)
	mustExec(t, pool, `SELECT daybook.ensure_ranges(5)`)
	ranges := rangeCount(t, pool)
	if ranges <= before {
		t.Fatalf("%d ranges were %d, want more", ranges, before)
	}
	churn := []string{"autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=1000", "fillfactor=70"}
	want := map[string][]string{
		"streams":     {"autovacuum_vacuum_scale_factor=0.05", "fillfactor=70"},
		"segments":    churn,
		"checkpoints": churn, "outbox_tails": churn, "parked": churn, "members": churn,
		"held":           {"autovacuum_vacuum_scale_factor=0.05"},
		"inbox_versions": {"autovacuum_vacuum_scale_factor=0.05", "fillfactor=70"},
		"redrive_items":  {"fillfactor=70"},
	}
	rows, err := pool.Query(t.Context(), `SELECT first_position::text FROM daybook.ranges`)
	if err != nil {
		t.Fatal(err)
	}
	firsts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range firsts {
		for _, table := range []string{"events_", "outbox_"} {
			want[table+first] = []string{"autovacuum_analyze_scale_factor=0.05", "autovacuum_vacuum_insert_scale_factor=0.05"}
		}
	}
	for part := range 2 {
		want[fmt.Sprint("outcomes_", part)] = []string{} // rows are only added, and go all at once
	}
	type table struct {
		Name    string
		Options []string
	}
	rows, err = pool.Query(t.Context(), `
		SELECT c.relname::text, coalesce(c.reloptions, '{}') FROM pg_class c
		 WHERE c.relnamespace = 'daybook'::regnamespace AND c.relkind = 'r'
		   AND (c.relname IN ('streams', 'segments', 'checkpoints', 'outbox_tails', 'parked', 'members', 'held', 'inbox_versions', 'redrive_items') OR c.relispartition)`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, table := range tables {
		slices.Sort(table.Options)
		got[table.Name] = table.Options
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
