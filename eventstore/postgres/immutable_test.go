package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// What is written stays: not even the owner of the tables changes it by hand.
func TestEventsCannotBeChanged(t *testing.T) {
	t.Parallel()
	pool := smallRanges(t)
	store := openStore(t, pool, postgres.Config{})
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, manyEvents(250)...))
	before := logEvents(t, store, eventstore.Position{})
	rows, err := pool.Query(t.Context(), `SELECT relname::text FROM pg_class WHERE relnamespace = 'daybook'::regnamespace AND relkind IN ('r', 'p') AND relname LIKE 'events%'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 4 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		for verb, sql := range map[string]string{
			"UPDATE":   `UPDATE daybook.%s SET data = ''`,
			"DELETE":   `DELETE FROM daybook.%s`,
			"TRUNCATE": `TRUNCATE daybook.%s`,
		} {
			_, err := pool.Exec(t.Context(), fmt.Sprintf(sql, table))
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "DB004" {
				t.Errorf("%s %s: got %v", verb, table, err)
				continue
			}
			for _, want := range []string{"daybook: ", verb, "refused", "append a correcting event"} {
				if !strings.Contains(pgErr.Message, want) {
					t.Errorf("%q does not say %q", pgErr.Message, want)
				}
			}
		}
	}
	// One that touches no row is refused as well.
	if _, err := pool.Exec(t.Context(), `DELETE FROM daybook.events WHERE position = -1`); err == nil {
		t.Error("a DELETE of no row passes")
	}
	if after := logEvents(t, store, eventstore.Position{}); len(after) != len(before) || len(after) != 250 {
		t.Errorf("%d events were %d", len(after), len(before))
	}
}
