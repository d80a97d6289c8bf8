package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// oldCommit is what a worker of version 3 sends at the end of each batch.
const oldCommit = `SELECT {schema}.commit_batch($1, 1, 0, $2, 0, $3, $4, '{}', '{}', '{}', '{}')`

// A store of version 3 with a projection and a relay that are running is brought up: the relays of the new release go on
// where the old one was, in more segments; programs of the old release commit nothing any more, and say why.
func TestUpgradeFromVersionThree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		partitions int
		segments   string
	}{
		{64, "0-15 16-31 32-47 48-63"}, {6, "0-0 1-2 3-3 4-5"}, {2, "0-0 1-1"}, {1, "0-0"},
	} {
		t.Run(fmt.Sprint(c.partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			cfg := postgres.MigrateConfig{Schema: "Day-Book", Partitions: c.partitions}
			x := func(sql string) string { return postgres.Expand(sql, cfg.Schema) }
			pool := postgrestest.Empty(t)
			if err := postgres.MigrateTo(t.Context(), pool, cfg, 3); err != nil {
				t.Fatal(err)
			}
			for i := range 30 {
				mustExec(t, pool, x(`WITH s AS (INSERT INTO {schema}.streams (stream_id, version, partition) VALUES ($1, 1, {schema}.partition_of($1, $2)) RETURNING partition),
				  e AS (INSERT INTO {schema}.events (version, id, partition, stream_id, type, data) SELECT 1, gen_random_uuid(), s.partition, $1, 't', 'x' FROM s RETURNING position, partition)
				  INSERT INTO {schema}.outbox (first_position, last_position, from_version, to_version, partition, topic, key, stream_id)
				  SELECT e.position, e.position, 1, 1, e.partition, 'all', $1, $1 FROM e`), fmt.Sprint("order-", i), c.partitions)
			}
			for _, name := range []string{"outbox-relay", "view"} {
				mustExec(t, pool, x(`INSERT INTO {schema}.consumers (consumer, version, kind, fingerprint) VALUES ($1, 1, 'relay', 'f')`), name)
				mustExec(t, pool, x(`INSERT INTO {schema}.segments (consumer, version, segment, first_partition, last_partition, owner, epoch, floor, expires_at)
					VALUES ($1, 1, 0, 0, $2, 'old', 7, 12, clock_timestamp() + interval '1 hour')`), name, c.partitions-1)
			}
			mustExec(t, pool, x(`INSERT INTO {schema}.outbox_tails (consumer, version, topic, partition, position) VALUES ('outbox-relay', 1, 'all', 0, 11), ('outbox-relay', 1, 'some', $1, 12)`), c.partitions-1)
			mustExec(t, pool, x(`INSERT INTO {schema}.subscribers (topic, group_name, consumer, version) VALUES ('all', 'g', 'view', 1)`))

			// The old relay and the old worker are in the middle of a batch, on connections that have prepared it before.
			warm := postgrestestPool(t, pool, "old")
			for _, name := range []string{"outbox-relay", "view"} {
				mustExec(t, warm, x(oldCommit), name, 7, 12, 13)
			}
			migrated := make(chan error, 1)
			go func() { migrated <- postgres.Migrate(context.Background(), pool, cfg) }()
			if err := <-migrated; err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"outbox-relay", "view"} {
				_, err := warm.Exec(t.Context(), x(oldCommit), name, 7, 13, 14)
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != "DB006" || !strings.Contains(pgErr.Message, "restart") {
					t.Errorf("%s of the old release: %v", name, err)
				}
			}
			for _, version := range []int{1, 2, 3} {
				var schemaErr *postgres.SchemaError
				if err := postgres.Serves(t.Context(), pool, cfg.Schema, version); !errors.As(err, &schemaErr) || schemaErr.Have != postgres.Latest() ||
					!strings.Contains(err.Error(), "newer than the") || !strings.Contains(err.Error(), "deploy a newer release") {
					t.Errorf("a program of version %d: %v", version, err)
				}
			}
			if diff := cmp.Diff(catalog(t, postgrestest.New(t, postgrestest.WithMigrate(cfg)), cfg.Schema), catalog(t, pool, cfg.Schema)); diff != "" {
				t.Errorf("another schema than a new installation has:\n%s", diff)
			}

			got := value[string](t, pool, x(`SELECT string_agg(first_partition || '-' || last_partition, ' ' ORDER BY segment) FROM {schema}.segments WHERE consumer = 'outbox-relay' AND version = 2`))
			if got != c.segments {
				t.Errorf("segments %s, want %s", got, c.segments)
			}
			for what, sql := range map[string]string{
				"segments elsewhere or owned": `SELECT count(*) FROM {schema}.segments WHERE consumer = 'outbox-relay' AND (version <> 2 OR floor <> 13 OR owner <> '' OR epoch <> 0 OR expires_at > clock_timestamp())`,
				"the old relay":               `SELECT count(*) FROM {schema}.consumers WHERE consumer = 'outbox-relay' AND version = 1`,
				"its tails":                   `SELECT count(*) FROM {schema}.outbox_tails WHERE version = 1`,
				"changes of the projection":   `SELECT 1 - count(*) FROM {schema}.segments WHERE consumer = 'view' AND version = 1 AND segment = 0 AND floor = 13 AND epoch = 7 AND owner = 'old'`,
				"lost subscribers":            `SELECT 1 - count(*) FROM {schema}.subscribers WHERE consumer = 'view' AND state = 'following'`,
				"sequences set aside":         `SELECT count(*) FROM {schema}.parked`,
			} {
				if n := value[int](t, pool, x(sql)); n != 0 {
					t.Errorf("%s: %d", what, n)
				}
			}
			if got := value[string](t, pool, x(`SELECT string_agg(topic || ' ' || partition || ' ' || position, ', ' ORDER BY topic) FROM {schema}.outbox_tails WHERE version = 2`)); got != fmt.Sprintf("all 0 11, some %d 12", c.partitions-1) {
				t.Errorf("tails %s", got)
			}

			// The new programs go on: the projection where it was, and cleaning at the slowest segment of the relay.
			mustExec(t, pool, x(`SELECT {schema}.commit_batch('view', 1, 0, 7, 0, 13, 20, '{}', '{}', '{}', '{}', true)`))
			mustExec(t, pool, x(`UPDATE {schema}.segments SET floor = 20 WHERE consumer = 'outbox-relay' AND segment > 0`))
			store := openStore(t, pool, postgres.Config{Schema: cfg.Schema})
			want := int64(13)
			if c.partitions == 1 {
				mustExec(t, pool, x(`UPDATE {schema}.segments SET floor = 20 WHERE consumer = 'outbox-relay'`))
				want = 20
			}
			if report := mustClean(t, store); report.Cleaned.Ordinal() != want || report.Rows != want {
				t.Errorf("%+v, want %d", report, want)
			}
			if n := len(logEvents(t, store, eventstore.Position{})); n != 30 {
				t.Errorf("%d events", n)
			}
			if rev := value[int64](t, pool, x(`SELECT parked_rev FROM {schema}.segments WHERE consumer = 'view'`)); rev != 1 {
				t.Errorf("parked revision %d", rev)
			}
		})
	}
}

// A store without a relay gets none.
func TestUpgradeFromVersionThreeWithoutARelay(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t)
	if err := postgres.MigrateTo(t.Context(), pool, postgres.MigrateConfig{}, 3); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.consumers`); n != 0 {
		t.Errorf("%d consumers", n)
	}
}

// The migration waits for a batch of the old relay that is being committed, and takes over what that has sent; a batch that
// commits afterwards is refused whole.
func TestUpgradeBesideABatchOfTheOldRelay(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t)
	if err := postgres.MigrateTo(t.Context(), pool, postgres.MigrateConfig{}, 3); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `CREATE TABLE effects (at bigint)`)
	subscribe(t, pool, "outbox-relay", "", 5)
	commit := postgres.Expand(oldCommit, "daybook")
	first, second := beginTx(t, postgrestestPool(t, pool, "first")), beginTx(t, postgrestestPool(t, pool, "second"))
	mustExec(t, first, `INSERT INTO effects VALUES (8)`)
	mustExec(t, first, commit, "outbox-relay", 0, 5, 8)
	mustExec(t, second, `INSERT INTO effects VALUES (9)`)
	done := make(chan error, 1)
	go func() { done <- postgres.Migrate(context.Background(), pool, postgres.MigrateConfig{}) }()
	awaitBlocked(t, pool, 1)
	mustCommit(t, first)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if floors := value[string](t, pool, `SELECT string_agg(floor::text, ' ') FROM daybook.segments`); floors != "8 8 8 8" {
		t.Errorf("the new relays begin at %s, the old one had come to 8", floors)
	}
	var pgErr *pgconn.PgError
	if _, err := second.Exec(t.Context(), commit, "outbox-relay", 0, 8, 9); !errors.As(err, &pgErr) || pgErr.Code != "DB006" {
		t.Errorf("got %v", err)
	}
	if err := second.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("got %v", err)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM effects`); n != 1 {
		t.Errorf("%d effects, want that of the first batch", n)
	}
}
