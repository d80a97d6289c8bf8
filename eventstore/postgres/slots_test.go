package postgres_test

import (
	"testing"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// R-OB13: Daybook uses no replication slot, and says when somebody's keeps the write-ahead log.
func TestASlotThatLagsIsSeen(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	name := "daybook_test_" + newStream("slot").ID[:8]
	mustExec(t, pool, `SELECT pg_create_physical_replication_slot($1, true)`, name)
	t.Cleanup(func() { mustExec(t, pool, `SELECT pg_drop_replication_slot($1)`, name) })
	mustExec(t, pool, `CREATE TABLE public.filling AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
	var active bool
	var kept int64
	for _, row := range []struct {
		least int64
		seen  bool
	}{{500_000, true}, {1 << 40, false}} {
		rows, err := pool.Query(t.Context(), postgres.SlotsSQL, row.least)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for rows.Next() {
			var got string
			if err := rows.Scan(&got, &active, &kept); err != nil {
				t.Fatal(err)
			}
			seen = seen || got == name && !active && kept >= row.least
		}
		if rows.Err() != nil || seen != row.seen {
			t.Errorf("more than %d bytes: seen %v, %v", row.least, seen, rows.Err())
		}
	}
	if st, err := store.Status(t.Context()); err != nil || len(st.Slots) > 0 {
		t.Errorf("%v, %v", st.Slots, err)
	}
}
