package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// recorder is a test that fails without failing ours.
type recorder struct {
	testing.TB
	text    strings.Builder
	fatal   bool
	cleanup []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(...any)                {}
func (r *recorder) Cleanup(f func())          { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(f string, a ...any) { fmt.Fprintf(&r.text, f+"\n", a...) }
func (r *recorder) Fatalf(f string, a ...any) {
	r.fatal = true
	r.Errorf(f, a...)
	runtime.Goexit()
}

// runRecorded runs f as the body of a test, to its end or its Fatal.
func runRecorded(t *testing.T, f func(*recorder)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for _, c := range r.cleanup {
		c()
	}
	return r
}

func TestWithoutAServerTheTestFailsWithTheRemedies(t *testing.T) {
	t.Parallel()
	none := func(name, reason string) pgserver.Source {
		return pgserver.Source{Name: name, Open: func(context.Context) (pgserver.Handle, error) {
			return pgserver.Handle{}, &pgserver.NotHereError{Reason: reason}
		}}
	}
	s := &server{sources: func() []pgserver.Source {
		return []pgserver.Source{none(pgserver.TestVariable, "not set"), none("own server", "no binaries"), none("container engine", "none")}
	}}
	for range 2 { // the second test of the process says the same
		r := runRecorded(t, func(r *recorder) { s.open(r, true, nil) })
		if !r.fatal {
			t.Fatal("the test went on without a server")
		}
		for _, want := range []string{"postgrestest: ", "own server: no binaries", "apt-get install postgresql", "DAYBOOK_TEST_DATABASE_URL=postgres://"} {
			if !strings.Contains(r.text.String(), want) {
				t.Errorf("the text lacks %q:\n%s", want, r.text.String())
			}
		}
	}
}

func TestSourcesInOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range sources() {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, ", "); got != "DAYBOOK_TEST_DATABASE_URL, own server, container engine" {
		t.Errorf("order: %s", got)
	}
}

func TestBadMigrationFailsTheTestAndLeavesNoTemplate(t *testing.T) {
	t.Parallel()
	bad := postgres.MigrateConfig{Partitions: -1}
	r := runRecorded(t, func(r *recorder) { New(r, WithMigrate(bad)) })
	if !r.fatal || !strings.Contains(r.text.String(), "Partitions") {
		t.Errorf("fatal %v: %s", r.fatal, r.text.String())
	}
	pool := Empty(t)
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE starts_with(datname, $1)`, templateName(bad)).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d templates left, %v", n, err)
	}
}

func TestAConnectionThatIsNotGivenBackIsReported(t *testing.T) {
	t.Parallel()
	pool := Empty(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if closeWithin(pool, 50*time.Millisecond) {
		t.Error("a pool with a connection in use was closed")
	}
	conn.Release()
}

// Connections are used again, and one that has broken meanwhile is replaced.
func TestAdminConnectionsAreKept(t *testing.T) {
	t.Parallel()
	url := URL(Empty(t))
	kept := adminConns{idle: map[string][]*pgx.Conn{}}
	pid := func() (pid uint32) {
		if err := kept.with(t.Context(), url, func(conn *pgx.Conn) error {
			pid = conn.PgConn().PID()
			return conn.Ping(t.Context())
		}); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	first := pid()
	if second := pid(); second != first {
		t.Errorf("connected again: %d, then %d", first, second)
	}
	if err := withAdmin(t.Context(), url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, int64(first))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	third := pid()
	if third == first {
		t.Error("a session that was ended goes on")
	}
	failed := errors.New("failed")
	if err := kept.with(t.Context(), url, func(*pgx.Conn) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if fourth := pid(); fourth == third {
		t.Error("a connection is kept after an error")
	}
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 5 {
		all.Go(func() {
			if err := kept.with(t.Context(), url, func(*pgx.Conn) error { <-start; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	if n := len(kept.idle[url]); n < 1 || n > keptAdmins {
		t.Errorf("%d connections are kept, at most %d should be", n, keptAdmins)
	}
	for _, conn := range kept.idle[url] {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAbandonedDatabases(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old, fresh := newName(now.Add(-abandoned-time.Minute)), newName(now.Add(-time.Hour))
	pool := Empty(t)
	err := withAdmin(t.Context(), URL(pool), func(conn *pgx.Conn) error {
		for _, name := range []string{old, fresh} {
			if err := create(t.Context(), conn, name, "template0"); err != nil {
				return err
			}
		}
		dropAbandoned(t.Context(), conn, now)
		for name, want := range map[string]int{old: 0, fresh: 1} {
			var n int
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname = $1`, name).Scan(&n); err != nil {
				return err
			}
			if n != want {
				t.Errorf("%s: %d databases, want %d", name, n, want)
			}
		}
		return drop(t.Context(), conn, fresh)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:p%40@h:1/a?sslmode=disable": "postgres://u:p%40@h:1/b?sslmode=disable",
		"postgresql://h":  "postgresql://h/b",
		"host=h dbname=a": "host=h dbname=a dbname=b",
	} {
		if got := withDatabase(in, "b"); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	cfg, err := pgx.ParseConfig(withDatabase("host=h dbname=a", "b"))
	if err != nil || cfg.Database != "b" {
		t.Errorf("the last dbname does not count: %v, %v", cfg, err)
	}
}
