package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// An installed store of the first version, with data, is brought up by many at once or by a script; what it ends with is
// what a new installation has.
func TestUpgradeFromTheFirstVersion(t *testing.T) {
	t.Parallel()
	cfg := postgres.MigrateConfig{Schema: "Day-Book", RangeSize: 500}
	expanded := func(sql string) string { return strings.ReplaceAll(sql, "{schema}", `"Day-Book"`) }
	want := catalog(t, postgrestest.New(t, postgrestest.WithMigrate(cfg)), cfg.Schema)
	for name, upgrade := range map[string]func(t *testing.T, pool *pgxpool.Pool){
		"eight at once": func(t *testing.T, pool *pgxpool.Pool) {
			for _, err := range concurrently(8, func(int) error {
				return postgres.Migrate(context.Background(), pool, cfg)
			}) {
				if err != nil {
					t.Error(err)
				}
			}
		},
		"script": func(t *testing.T, pool *pgxpool.Pool) {
			from := cfg
			from.From = 1
			script, err := postgres.MigrationScript(from)
			if err != nil {
				t.Fatal(err)
			}
			tx := beginTx(t, pool)
			mustExec(t, tx, script, pgx.QueryExecModeSimpleProtocol)
			mustCommit(t, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.Empty(t)
			if err := postgres.MigrateTo(t.Context(), pool, cfg, 1); err != nil {
				t.Fatal(err)
			}
			// Data of the first version: events, a consumer, a row of the outbox written by hand.
			for i := range 20 {
				mustExec(t, pool, expanded(`WITH s AS (INSERT INTO {schema}.streams (stream_id, version, partition) VALUES ($1, 1, {schema}.partition_of($1, 64)) RETURNING partition)
				  INSERT INTO {schema}.events (version, id, partition, stream_id, type, data) SELECT 1, gen_random_uuid(), s.partition, $1, 't', 'x' FROM s`), fmt.Sprint("order-", i))
			}
			mustExec(t, pool, expanded(`INSERT INTO {schema}.outbox (first_position, last_position, partition, topic, key, id, type, content_type, data) VALUES (21, 21, 3, 't', 'k', gen_random_uuid(), 'c', 'text/plain', 'x')`))
			mustExec(t, pool, `SELECT setval('"Day-Book".log_position', 21)`)
			mustExec(t, pool, expanded(`INSERT INTO {schema}.consumers (consumer, version, kind) VALUES ('view', 1, 'projection')`))
			mustExec(t, pool, expanded(`INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition, epoch, floor) VALUES ('view', 1, 0, 0, 63, 1, 5)`))
			upgrade(t, pool)
			if diff := cmp.Diff(want, catalog(t, pool, cfg.Schema)); diff != "" {
				t.Errorf("another schema than a new installation has:\n%s", diff)
			}
			store := openStore(t, pool, postgres.Config{Schema: cfg.Schema, Routes: routes()})
			mustAppend(t, store, eventstore.To(eventstore.NewStreamID("order", "1"), eventstore.Exactly(1), newEvent("2")))
			if n := len(logEvents(t, store, eventstore.Position{})); n != 21 {
				t.Errorf("%d events", n)
			}
			if got := lines(readOutbox(t, store.Outbox(), everything)); !cmp.Equal(got, []string{`21 t k c "x"`, `22 all order-1/2 test.happened "2"`}) {
				t.Errorf("messages %q", got)
			}
			mustExec(t, pool, expanded(`SELECT {schema}.commit_batch('view', 1, 0, 1, 0, 5, 9, '{""}', '{3}', '{0}', '{12}', false)`))
			if source := value[string](t, pool, expanded(`SELECT source FROM {schema}.consumers`)); source != "" {
				t.Errorf("source %q", source)
			}
			// Rows that were there before the constraint, and ranges made afterwards, are bound by it.
			mustExec(t, pool, expanded(`SELECT {schema}.ensure_ranges(20)`))
			if n := value[int](t, pool, `SELECT count(*) FROM pg_constraint WHERE conname = 'outbox_block' AND convalidated`); n != 1+value[int](t, pool, expanded(`SELECT count(*) FROM {schema}.ranges`)) {
				t.Errorf("%d tables have the constraint", n)
			}
		})
	}
	for _, from := range []int{-1, postgres.Latest() + 1} {
		if _, err := postgres.MigrationScript(postgres.MigrateConfig{From: from}); err == nil || !strings.Contains(err.Error(), "From") {
			t.Errorf("From %d: %v", from, err)
		}
	}
}
