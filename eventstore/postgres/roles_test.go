package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// rolePool gives a pool on the same database as a role that has what GrantsScript gives, and nothing else.
func rolePool(t testing.TB, owner *pgxpool.Pool, schema string) *pgxpool.Pool {
	t.Helper()
	role, password := "App-"+uuid.NewString()[:8], uuid.NewString()
	grants, err := postgres.GrantsScript(schema, role)
	if err != nil {
		t.Fatal(err)
	}
	quoted := pgx.Identifier{role}.Sanitize()
	mustExec(t, owner, `CREATE ROLE `+quoted+` LOGIN PASSWORD '`+password+`'`)
	mustExec(t, owner, grants, pgx.QueryExecModeSimpleProtocol)
	u, err := url.Parse(postgrestest.URL(owner))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	cfg, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = owner.Config().MaxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		// Roles belong to the server, which may live longer than the test.
		mustExec(t, owner, `DROP OWNED BY `+quoted)
		mustExec(t, owner, `DROP ROLE `+quoted)
	})
	return pool
}

func TestRoleWithoutDDLRights(t *testing.T) {
	t.Parallel()
	const schema = "Day-Book"
	owner := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{Schema: schema, RangeSize: 100}))
	pool := rolePool(t, owner, schema)
	store := openStore(t, pool, postgres.Config{Schema: schema})
	id := newStream("s")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1")))
	mustAppend(t, store, eventstore.To(newStream("many"), eventstore.NoStream, manyEvents(500)...)) // needs new ranges
	if err := store.EnsureRanges(t.Context()); err != nil {
		t.Errorf("EnsureRanges: %v", err)
	}
	if got := len(logEvents(t, store, eventstore.Position{})); got != 501 {
		t.Errorf("%d events", got)
	}
	if h := store.Health(t.Context()); !h.Ready {
		t.Errorf("health: %+v", h)
	}
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{Schema: schema}); err != nil {
		t.Errorf("Migrate with nothing to do: %v", err)
	}
	for _, sql := range []string{
		`UPDATE "Day-Book".events SET data = ''`,
		`DELETE FROM "Day-Book".events`,
		`TRUNCATE "Day-Book".events`,
		`UPDATE "Day-Book".events_1 SET data = ''`,
		`DELETE FROM "Day-Book".events_1`,
		`INSERT INTO "Day-Book".events_1 SELECT * FROM "Day-Book".events_1`,
		`DELETE FROM "Day-Book".streams`,
		`UPDATE "Day-Book".store SET partitions = 1`,
		`DELETE FROM "Day-Book".outbox`,
		`UPDATE "Day-Book".ranges SET next_position = 5`,
		`INSERT INTO "Day-Book".migrations (version, name) VALUES (99, 'x')`,
		`CREATE TABLE "Day-Book".mine ()`,
		`CREATE SCHEMA mine`,
		`DROP TABLE "Day-Book".events`,
		`ALTER TABLE "Day-Book".events DISABLE TRIGGER ALL`,
		`CALL "Day-Book".add_range(1000000, 1000100)`,
		`SELECT setval('"Day-Book".log_position', 1)`,
		`ALTER SEQUENCE "Day-Book".log_position RESTART`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("%s: got %v, want no permission", sql, err)
		}
	}
}

func TestGrantsScriptRefusesBadNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"", ""}, {"", "a\"b"}, {"a'b", "app"}} {
		if _, err := postgres.GrantsScript(names[0], names[1]); err == nil {
			t.Errorf("accepted %q", names)
		}
	}
	script, err := postgres.GrantsScript("", `O'Neill`)
	if err != nil || !strings.Contains(script, `"O'Neill"`) {
		t.Errorf("%v, %s", err, script)
	}
}
