package postgrestest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/pgserver"
)

func value[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

const nameSQL = `SELECT current_database()::text`

func TestNewGivesEachTestAStoreOfItsOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	names, epochs := map[string]bool{}, map[string]bool{}
	t.Run("group", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				pool := postgrestest.New(t)
				store, err := postgres.New(t.Context(), pool, postgres.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				// The same stream in each: a shared database would conflict.
				_, err = store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("account", "1"), eventstore.NoStream,
					eventstore.EventData{Type: "account.opened", Data: []byte("x")}))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				names[value[string](t, pool, nameSQL)] = true
				epochs[store.Epoch().String()] = true
			})
		}
	})
	if len(names) != 4 || len(epochs) != 4 {
		t.Errorf("%d databases and %d epochs, want 4 of each", len(names), len(epochs))
	}
	pool := postgrestest.Empty(t)
	for name := range names {
		if n := value[int](t, pool, `SELECT count(*) FROM pg_database WHERE datname = $1`, name); n != 0 {
			t.Errorf("database %s was not dropped", name)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	const schema = "Day-Book"
	pool := postgrestest.New(t, postgrestest.WithMigrate(postgres.MigrateConfig{Schema: schema, Partitions: 7}),
		postgrestest.WithMaxConns(3),
		postgrestest.WithPoolConfig(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "options" }))
	store, err := postgres.New(t.Context(), pool, postgres.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if store.Partitions() != 7 || pool.Config().MaxConns != 3 {
		t.Errorf("%d partitions, %d connections", store.Partitions(), pool.Config().MaxConns)
	}
	if got := value[string](t, pool, `SELECT current_setting('application_name')`); got != "options" {
		t.Errorf("application_name is %q", got)
	}
}

func TestEmptyAndURL(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Empty(t)
	if n := value[int](t, pool, `SELECT count(*) FROM pg_namespace WHERE nspname = 'daybook'`); n != 0 {
		t.Error("an empty database has the schema")
	}
	other, err := pgxpool.New(t.Context(), postgrestest.URL(pool))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if a, b := value[string](t, pool, nameSQL), value[string](t, other, nameSQL); a != b {
		t.Errorf("URL leads to %s, the pool to %s", b, a)
	}
}

func TestDropEndsWhatATestForgot(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("forgetful", func(t *testing.T) {
		pool := postgrestest.Empty(t)
		name = value[string](t, pool, nameSQL)
		if _, err := pool.Exec(t.Context(), `CREATE TABLE x (i int)`); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), postgrestest.URL(pool)) // stays open
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{`BEGIN`, `INSERT INTO x VALUES (1)`, `PREPARE TRANSACTION 'it''s prepared'`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n := value[int](t, postgrestest.Empty(t), `SELECT count(*) FROM pg_database WHERE datname = $1`, name); n != 0 {
		t.Errorf("database %s was not dropped", name)
	}
}

const childVariable = "DAYBOOK_TEST_CHILD"

// Many test processes begin on one fresh server at once, as go test does.
func TestManyProcessesMakeOneTemplate(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		pool := postgrestest.New(t)
		fmt.Println("database", value[string](t, pool, nameSQL))
		return
	}
	t.Parallel()
	server, err := pgserver.Start(t.Context(), pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const processes = 6
	outputs := make([]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManyProcessesMakeOneTemplate$")
			cmd.Env = append(os.Environ(), childVariable+"=1", pgserver.TestVariable+"="+server.URL())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			outputs[i] = string(out)
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, out := range outputs {
		_, rest, _ := strings.Cut(out, "database ")
		name, _, _ := strings.Cut(rest, "\n")
		seen[name] = true
	}
	if len(seen) != processes {
		t.Errorf("%d processes used %d databases", processes, len(seen))
	}
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	got := value[string](t, pool, `SELECT string_agg(datname, ' ') FROM pg_database WHERE starts_with(datname, 'daybook_')`)
	if !strings.HasPrefix(got, "daybook_template_") || strings.Contains(got, " ") || strings.HasSuffix(got, "_new") {
		t.Errorf("left on the server: %s, want one template", got)
	}
}
