//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

func startServer(t testing.TB) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(context.Background(), pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func poolAt(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func database(t testing.TB, serverURL, name string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// client runs a client program of the server's installation.
func client(t testing.TB, server *pgserver.Server, program string, args ...string) {
	t.Helper()
	path := filepath.Join(server.Binaries().Dir, program)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("this test needs %s of the PostgreSQL client programs: %v", program, err)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func openQuietly(pool *pgxpool.Pool) (*postgres.Store, error) {
	return postgres.New(context.Background(), pool, postgres.Config{Logger: slog.New(slog.DiscardHandler)})
}

func TestOtherClusters(t *testing.T) {
	t.Parallel()
	from, to := startServer(t), startServer(t)
	t.Run("dump and restore", func(t *testing.T) { testDumpAndRestore(t, from, to) })
	t.Run("copy", func(t *testing.T) { testCopiedDatabase(t, to) })
	t.Run("standby", func(t *testing.T) { testStandby(t, from) })
}

// R-OP06: a dump that is restored elsewhere is noticed, settled by the operator, and works on.
func testDumpAndRestore(t *testing.T, from, to *pgserver.Server) {
	t.Helper()
	source := poolAt(t, from.URL())
	if err := postgres.Migrate(t.Context(), source, postgres.MigrateConfig{RangeSize: 1000}); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, source, postgres.Config{})
	n := testscale.N(1000)
	var old eventstore.AppendResult
	for range n {
		old = mustAppend(t, store, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("x")))
	}
	checkpoint := safeHead(t, store)
	dump := filepath.Join(t.TempDir(), "dump")
	client(t, from, "pg_dump", "--format=custom", "--file="+dump, "--dbname="+from.URL())

	for name, action := range map[string]postgres.EpochAction{"keep": postgres.EpochKeep, "new": postgres.EpochNew} {
		admin := poolAt(t, to.URL())
		mustExec(t, admin, `CREATE DATABASE restored_`+name)
		pool := poolAt(t, database(t, to.URL(), "restored_"+name))
		client(t, to, "pg_restore", "--exit-on-error", "--dbname="+pool.Config().ConnString(), dump)

		_, err := openQuietly(pool)
		var history *eventstore.HistoryError
		if !errors.As(err, &history) || !strings.Contains(history.Remedy, "daybook epoch keep") || !strings.Contains(history.Remedy, "daybook epoch new") {
			t.Fatalf("%s: got %v, want a HistoryError that names both remedies", name, err)
		}
		info, err := postgres.ReadEpoch(t.Context(), pool, "")
		if err != nil || info.Settled() || info.Epoch != store.Epoch() || info.MadeFor == info.Found {
			t.Errorf("%s: epoch before: %+v, %v", name, info, err)
		}
		// A logical copy leaves the sequence behind the rows.
		mustExec(t, pool, `SELECT setval('daybook.log_position', 1)`)
		if info, err = postgres.SetEpoch(t.Context(), pool, "", action); err != nil || !info.Settled() {
			t.Fatalf("%s: SetEpoch: %+v, %v", name, info, err)
		}
		if (info.Epoch == store.Epoch()) != (action == postgres.EpochKeep) {
			t.Errorf("%s: the epoch is %s, before it was %s", name, info.Epoch, store.Epoch())
		}
		restored := openStore(t, pool, postgres.Config{})
		result := mustAppend(t, restored, eventstore.To(newStream("s"), eventstore.NoStream, newEvent("new")))
		page, err := restored.Log().ReadPage(t.Context(), checkpoint, eventstore.Filter{}, 10)
		if err != nil || len(page.Events) != 1 || string(page.Events[0].Data) != "new" {
			t.Errorf("%s: after the checkpoint come %d events, %v", name, len(page.Events), err)
		}
		if got := len(logEvents(t, restored, eventstore.Position{})); got != n+1 {
			t.Errorf("%s: %d events, want %d", name, got, n+1)
		}
		_, err = old.Token.Merge(result.Token)
		if kept := action == postgres.EpochKeep; (err == nil) != kept || !kept && !errors.Is(err, eventstore.ErrHistory) {
			t.Errorf("%s: merging an old token with a new one: %v", name, err)
		}
	}
	if _, err := postgres.SetEpoch(t.Context(), source, "", 0); err == nil {
		t.Error("SetEpoch accepts no action")
	}
}

// A copy within one cluster is another history too.
func testCopiedDatabase(t *testing.T, server *pgserver.Server) {
	t.Helper()
	admin := poolAt(t, server.URL())
	mustExec(t, admin, `CREATE DATABASE original`)
	original, err := pgxpool.New(t.Context(), database(t, server.URL(), "original"))
	if err != nil {
		t.Fatal(err)
	}
	err = postgres.Migrate(t.Context(), original, postgres.MigrateConfig{})
	original.Close()
	if err != nil {
		t.Fatal(err)
	}
	await(t, "connections gone", func() bool {
		_, err = admin.Exec(context.Background(), `CREATE DATABASE copy TEMPLATE original`)
		return err == nil
	})
	pool := poolAt(t, database(t, server.URL(), "copy"))
	if _, err := openQuietly(pool); !errors.Is(err, eventstore.ErrHistory) {
		t.Errorf("got %v, want a HistoryError", err)
	}
	if _, err := openQuietly(poolAt(t, database(t, server.URL(), "original"))); err != nil {
		t.Errorf("the original: %v", err)
	}
}

// A process that runs while the operator changes the epoch says so.
func TestHealthNoticesANewEpoch(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	if h := store.Health(t.Context()); !h.Ready {
		t.Fatalf("health %+v", h)
	}
	if _, err := postgres.SetEpoch(t.Context(), pool, "", postgres.EpochNew); err != nil {
		t.Fatal(err)
	}
	if h := store.Health(t.Context()); h.Ready || h.State != "moved" || !strings.Contains(h.Reason, "restart") {
		t.Errorf("health %+v", h)
	}
}

// A standby has no locks of writers, so its log has no safe head: the store refuses it.
func testStandby(t *testing.T, primary *pgserver.Server) {
	t.Helper()
	pool := poolAt(t, primary.URL())
	if err := postgres.Migrate(t.Context(), pool, postgres.MigrateConfig{}); err != nil {
		t.Fatal(err)
	}
	standby := poolAt(t, startStandby(t, primary))
	await(t, "the standby to have the store", func() bool {
		var n int
		err := standby.QueryRow(context.Background(), `SELECT count(*) FROM daybook.migrations`).Scan(&n)
		return err == nil && n == postgres.Latest()
	})
	for _, pooler := range []bool{false, true} {
		_, err := postgres.New(t.Context(), standby, postgres.Config{TransactionPooler: pooler, Logger: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, postgres.ErrStandby) {
			t.Errorf("pooler %v: got %v, want ErrStandby", pooler, err)
		}
	}
	if _, err := openQuietly(pool); err != nil {
		t.Errorf("the primary: %v", err)
	}
}

// startStandby makes a streaming standby of a server and returns its URL.
func startStandby(t testing.TB, primary *pgserver.Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "daybook-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 { // a server refuses to run as root
		who, err := user.Lookup("postgres")
		if err != nil {
			if who, err = user.Lookup("nobody"); err != nil {
				t.Fatal(err)
			}
		}
		uid, uidErr := strconv.Atoi(who.Uid)
		gid, gidErr := strconv.Atoi(who.Gid)
		if err := errors.Join(uidErr, gidErr, os.Chown(dir, uid, gid)); err != nil {
			t.Fatal(err)
		}
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	program := func(name string, args ...string) *exec.Cmd {
		path := filepath.Join(primary.Binaries().Dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("this test needs %s of the PostgreSQL programs: %v", name, err)
		}
		cmd := exec.Command(path, args...)
		cmd.SysProcAttr, cmd.Dir = attributes, dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := program("pg_basebackup", "--pgdata="+data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname="+primary.URL()).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	// What the primary has on its command line a standby must have as well.
	server := program("postgres", "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "hot_standby=on", "-c", "max_connections=300", "-c", "max_prepared_transactions=100", "-c", "fsync=off")
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // an error means that it has ended
		_ = server.Wait()
	})
	u, err := url.Parse(primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	await(t, "the standby to answer", func() bool {
		conn, err := pgx.Connect(context.Background(), u.String())
		return err == nil && conn.Close(context.Background()) == nil
	})
	return u.String()
}
