package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

const migrateVariable = "DAYBOOK_TEST_MIGRATE_URL"

// R-OP04: eight programs that migrate at their start, on an empty database and on one that is up to date.
func TestMigrateFromEightProcesses(t *testing.T) {
	if url := os.Getenv(migrateVariable); url != "" {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	pool := postgrestest.Empty(t)
	migrate := func() {
		t.Helper()
		for _, err := range concurrently(8, func(int) error {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMigrateFromEightProcesses$")
			cmd.Env = append(os.Environ(), migrateVariable+"="+postgrestest.URL(pool))
			out, err := cmd.CombinedOutput()
			if err != nil {
				return errors.New(err.Error() + "\n" + string(out))
			}
			return nil
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		if n := value[int](t, pool, `SELECT count(*) FROM daybook.migrations`); n != postgres.Latest() {
			t.Errorf("%d steps were applied, want %d", n, postgres.Latest())
		}
	}
	migrate()
	store := openStore(t, pool, postgres.Config{})
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))

	// With nothing to do no table that is in use is locked: these locks would block even a reader.
	busy := beginTx(t, pool)
	mustExec(t, busy, `LOCK TABLE daybook.events, daybook.outbox, daybook.streams, daybook.segments, daybook.checkpoints, daybook.store, daybook.ranges IN ACCESS EXCLUSIVE MODE`)
	within(t, 2*patience, "migrating what is up to date", migrate)
	if err := busy.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("2")))
}

// catalog describes every object of a schema.
func catalog(t testing.TB, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
SELECT x FROM (
  SELECT format('relation %s %s %s', relname, relkind, reloptions) FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  UNION ALL SELECT format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  UNION ALL SELECT format('function %s %s %s', proname, pg_get_function_identity_arguments(oid), prosrc) FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
  UNION ALL SELECT format('trigger %s', pg_get_triggerdef(t.oid)) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND NOT tgisinternal
) AS all_objects(x) ORDER BY x`, schema)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// R-OP01: all at once, and as one script inside one transaction, with the same result.
func TestMigrateAndTheScriptGiveTheSame(t *testing.T) {
	t.Parallel()
	cfg := postgres.MigrateConfig{Schema: "Day-Book", Partitions: 16, RangeSize: 500}
	migrated := postgrestest.New(t, postgrestest.WithMigrate(cfg))
	scripted := postgrestest.Empty(t)
	script, err := postgres.MigrationScript(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, scripted)
	mustExec(t, tx, script, pgx.QueryExecModeSimpleProtocol)
	mustCommit(t, tx)
	want := catalog(t, migrated, cfg.Schema)
	if diff := cmp.Diff(want, catalog(t, scripted, cfg.Schema)); diff != "" || len(want) < 100 {
		t.Errorf("%d objects; the script gives others:\n%s", len(want), diff)
	}
	if err := postgres.Migrate(t.Context(), scripted, cfg); err != nil {
		t.Errorf("Migrate after the script: %v", err)
	}
	store := openStore(t, scripted, postgres.Config{Schema: cfg.Schema})
	if store.Partitions() != 16 {
		t.Errorf("%d partitions", store.Partitions())
	}
	mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("1")))
	again := cfg
	again.Partitions, again.RangeSize = 8, 1000 // ignored
	if err := postgres.Migrate(t.Context(), migrated, again); err != nil {
		t.Error(err)
	}
	if got := openStore(t, migrated, postgres.Config{Schema: cfg.Schema}).Partitions(); got != 16 {
		t.Errorf("the number of partitions became %d", got)
	}
}

// R-OP02: two stores in one database, whatever the search path, and nothing anywhere else.
func TestTwoStoresInOneDatabase(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"default": `"$user", public`, "empty": ``, "first": `a, "B-x y"`, "second": `"B-x y", a, public`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.Empty(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["search_path"] = path
			}))
			stores := map[string]*postgres.Store{}
			for _, schema := range []string{"a", "B-x y"} {
				if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{Schema: schema, RangeSize: 100}); err != nil {
					t.Fatal(err)
				}
				stores[schema] = openStore(t, pool, postgres.Config{Schema: schema})
			}
			a, b := stores["a"], stores["B-x y"]
			id := newStream("same")
			mustAppend(t, a, eventstore.To(id, eventstore.NoStream, newEvent("a1"), newEvent("a2")))
			// An open append of one store does not hold the head of the other, but both are registered.
			tx := beginTx(t, pool)
			mustAppend(t, a.WithTx(tx), eventstore.To(id, eventstore.Exactly(2), newEvent("a3")))
			mustAppend(t, b, eventstore.To(id, eventstore.NoStream, newEvent("b1")))
			if got := dataOf(logEvents(t, b, eventstore.Position{})); !cmp.Equal(got, []string{"b1"}) {
				t.Errorf("b has %q while a is held", got)
			}
			mustAppend(t, b.WithTx(tx), eventstore.To(id, eventstore.Exactly(1), newEvent("b2")))
			mustAppend(t, b, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("behind")))
			if got := len(logEvents(t, b, eventstore.Position{})); got != 1 {
				t.Errorf("b has %d events while the transaction appends to both", got)
			}
			mustCommit(t, tx)
			if got := dataOf(logEvents(t, a, eventstore.Position{})); !cmp.Equal(got, []string{"a1", "a2", "a3"}) {
				t.Errorf("a has %q", got)
			}
			if got := dataOf(logEvents(t, b, eventstore.Position{})); !cmp.Equal(got, []string{"b1", "b2", "behind"}) {
				t.Errorf("b has %q", got)
			}
			mustAppend(t, b, eventstore.To(newStream("large"), eventstore.NoStream, manyEvents(400)...)) // new ranges in b
			for _, s := range stores {
				if h := s.Health(t.Context()); !h.Ready {
					t.Errorf("health %+v", h)
				}
			}
			if a.Epoch() == b.Epoch() {
				t.Error("both have one epoch")
			}
			if n := value[int](t, pool, `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`) +
				value[int](t, pool, `SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace`); n != 0 {
				t.Errorf("%d objects in public", n)
			}
		})
	}
}

func TestSchemaError(t *testing.T) {
	t.Parallel()
	quiet := postgres.Config{Logger: slog.New(slog.DiscardHandler)}
	want := func(pool *pgxpool.Pool, have int, remedy string) {
		t.Helper()
		_, err := postgres.New(t.Context(), pool, quiet)
		var schema *postgres.SchemaError
		if !errors.As(err, &schema) || schema.Have != have || schema.Want != postgres.Latest() || schema.Schema != "daybook" || !strings.Contains(err.Error(), remedy) {
			t.Errorf("got %v, want a SchemaError with %d that says %q", err, have, remedy)
		}
	}
	empty := postgrestest.Empty(t)
	want(empty, 0, "run `daybook migrate`")
	want(empty, 0, "check the URL")
	var none *postgres.SchemaError
	if _, err := postgres.ReadEpoch(t.Context(), empty, ""); !errors.As(err, &none) || none.Have != 0 {
		t.Errorf("ReadEpoch without a store: %v", err)
	}
	if _, err := postgres.SetEpoch(t.Context(), empty, "", postgres.EpochNew); !errors.As(err, &none) || none.Have != 0 {
		t.Errorf("SetEpoch without a store: %v", err)
	}
	if n, err := postgres.SchemaVersion(t.Context(), empty, ""); n != 0 || err != nil {
		t.Errorf("version %d, %v without a store", n, err)
	}
	if n := value[int](t, empty, `SELECT count(*) FROM pg_namespace WHERE nspname = 'daybook'`); n != 0 {
		t.Error("New made a schema")
	}
	pool := postgrestest.New(t)
	if n, err := postgres.SchemaVersion(t.Context(), pool, ""); n != postgres.Latest() || err != nil {
		t.Errorf("version %d, %v, want %d", n, err, postgres.Latest())
	}
	if serves := value[string](t, pool, `SELECT string_agg(serves::text, ',' ORDER BY version) FROM daybook.migrations`); serves != "1,1,1,4,4,4,4,4" {
		t.Errorf("the steps serve programs from versions %s on", serves)
	}
	// A newer schema says whom it serves: programs may be started again while a new release is rolled out.
	next := postgres.Latest() + 1
	mustExec(t, pool, `INSERT INTO daybook.migrations (version, name, serves) VALUES ($1, 'future', $2)`, next, postgres.Latest())
	if store, err := postgres.New(t.Context(), pool, quiet); err != nil {
		t.Errorf("a newer schema that serves this release: %v", err)
	} else {
		store.Close()
	}
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
		t.Errorf("Migrate of a newer schema that serves this release: %v", err)
	}
	mustExec(t, pool, `INSERT INTO daybook.migrations (version, name, serves) VALUES ($1, 'far future', $1)`, next+1)
	want(pool, next+1, "newer")
	var schema *postgres.SchemaError
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); !errors.As(err, &schema) {
		t.Errorf("Migrate of a newer schema: %v", err)
	}
	mustExec(t, pool, `DELETE FROM daybook.migrations`)
	want(pool, 0, "daybook migrate")
}

func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t)
	for _, schema := range []string{"a'b", `a"b`, `a\b`, "a\x00b", "{schema}", "a$b", "pg_mine", "50%", "a\nb", "a\xff", "information_schema", strings.Repeat("x", 64)} {
		if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{Schema: schema}); err == nil || !strings.Contains(err.Error(), "schema name") {
			t.Errorf("Migrate into %q: %v", schema, err)
		}
		if _, err := postgres.New(t.Context(), pool, postgres.Config{Schema: schema}); err == nil || !strings.Contains(err.Error(), "schema name") {
			t.Errorf("New on %q: %v", schema, err)
		}
	}
	for _, cfg := range []postgres.MigrateConfig{{Partitions: -1}, {Partitions: 5000}, {RangeSize: 99}, {RangeSize: -1}} {
		if err := postgres.Migrate(t.Context(), pool, cfg); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
	_, err := postgres.New(t.Context(), pool, postgres.Config{MaxConns: -1, Hooks: []postgres.Hook{nil}, Schema: "a'b"})
	for _, part := range []string{"MaxConns", "Hooks[0]", "Schema"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}

// R-OP05: a later migration adds and widens columns while connections are warm.
func TestRunningStoreSurvivesAMigration(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Hooks: []postgres.Hook{
		func(context.Context, pgx.Tx, []eventstore.RecordedEvent) error { return nil },
	}})
	plain := openStore(t, pool, postgres.Config{MaxConns: 3})
	id := newStream("s")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("0")))
	n := eventstore.Version(1)
	deeds := []func(s *postgres.Store) error{
		func(s *postgres.Store) error {
			_, err := s.Append(t.Context(), eventstore.To(id, eventstore.Exactly(n), newEvent("x")))
			n++
			return err
		},
		func(s *postgres.Store) error {
			_, err := s.Append(t.Context(), eventstore.To(newStream("new"), eventstore.NoStream, newEvent("x")), eventstore.Check(id, eventstore.Exactly(n)))
			return err
		},
		func(s *postgres.Store) error {
			if got := len(streamEvents(t, s, id)); got != int(n) {
				t.Errorf("%d events, want %d", got, n)
			}
			return nil
		},
		func(s *postgres.Store) error {
			logEvents(t, s, eventstore.Position{})
			return nil
		},
		func(s *postgres.Store) error {
			_, list, err := s.Snapshots().Load(t.Context(), id, "f", 0)
			if err == nil {
				for range list {
				}
			}
			return err
		},
		func(s *postgres.Store) error {
			if h := s.Health(t.Context()); !h.Ready {
				t.Errorf("health: %+v", h)
			}
			return nil
		},
	}
	use := func(what string, first int) { // each change is met by another deed first
		t.Helper()
		for i := range 2 * len(deeds) {
			for _, s := range []*postgres.Store{store, plain} {
				if err := deeds[(first+i)%len(deeds)](s); err != nil {
					t.Fatalf("%s: deed %d: %v", what, (first+i)%len(deeds), err)
				}
			}
		}
	}
	use("before", 0)
	for i, sql := range []string{
		`ALTER TABLE daybook.events ADD COLUMN extra text NOT NULL DEFAULT ''`,
		`ALTER TABLE daybook.streams ADD COLUMN extra text NOT NULL DEFAULT ''`,
		`ALTER TABLE daybook.store ADD COLUMN extra text NOT NULL DEFAULT ''`,
		`ALTER TABLE daybook.snapshots ADD COLUMN extra text NOT NULL DEFAULT ''`,
		`ALTER TABLE daybook.events ALTER COLUMN flags TYPE bigint`,
		`ALTER TABLE daybook.events ALTER COLUMN schema_version TYPE bigint`,
		`ALTER TABLE daybook.streams ALTER COLUMN partition TYPE bigint`,
		`ALTER TABLE daybook.events ALTER COLUMN partition TYPE bigint`,
	} {
		mustExec(t, pool, sql)
		use("after "+sql, i)
	}
}
