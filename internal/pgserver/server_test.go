//go:build unix

package pgserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/internal/pgserver"
)

func startIn(t *testing.T, dir string, opts pgserver.Options) *pgserver.Server {
	t.Helper()
	opts.Dir = dir
	s, err := pgserver.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// openFolder is a temporary folder that the user of the server can enter.
func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestServerKeepsCommitsOverKill(t *testing.T) {
	t.Parallel()
	s := startIn(t, openFolder(t), pgserver.Options{Fsync: true})
	url, pid := s.URL(), s.PID()
	exec(t, url, `CREATE TABLE kept AS SELECT 'yes' AS text`)

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.PID() != 0 {
		t.Errorf("PID is %d after Kill", s.PID())
	}
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context())
		t.Error("a killed server still answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url || s.PID() == pid || s.PID() == 0 {
		t.Errorf("after Restart: same URL %v, pid %d, before %d", s.URL() == url, s.PID(), pid)
	}
	if got := query(t, url, `SELECT text FROM kept`); got != "yes" {
		t.Errorf("kept row reads %q", got)
	}

	// A test may also send the signal itself.
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("after a signal of the test's own: %v", err)
	}
	// And a running server is simply restarted.
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, url, `SELECT text FROM kept`); got != "yes" {
		t.Errorf("kept row reads %q", got)
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	s := startIn(t, openFolder(t), pgserver.Options{Settings: map[string]string{"wal_level": "logical", "max_connections": "50"}})
	for setting, want := range map[string]string{
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
		"max_prepared_transactions": "100", "wal_level": "logical", "max_connections": "50",
	} {
		if got := query(t, s.URL(), "SHOW "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if !strings.HasPrefix(query(t, s.URL(), "SHOW server_version"), s.Version()) {
		t.Errorf("Version says %s", s.Version())
	}
	// The password is not there as such, nor made hard to guess at each connection's cost.
	if got := query(t, s.URL(), "SELECT rolpassword FROM pg_authid WHERE rolname = current_user"); !strings.HasPrefix(got, "SCRAM-SHA-256$1:") {
		t.Errorf("the server keeps %q", got)
	}
	if got := query(t, s.URL(), "SELECT string_agg(DISTINCT auth_method, ' ') FROM pg_hba_file_rules"); got != "scram-sha-256" {
		t.Errorf("it is asked for as %s", got)
	}
	wrong := strings.Replace(s.URL(), "postgres:", "postgres:x", 2)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password is accepted")
	}
}

func TestServerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	s := startIn(t, dir, pgserver.Options{})
	pid := s.PID()
	if len(entries(t, dir)) != 1 {
		t.Fatalf("running: %v", entries(t, dir))
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v", pid, err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a closed server restarts")
	}

	// A start that fails cleans up too.
	if _, err := pgserver.Start(t.Context(), pgserver.Options{Dir: dir, Settings: map[string]string{"no_such_setting": "1"}}); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("bad setting: %v", err)
	}
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("a failed start left behind: %v", left)
	}
}

func TestStartSweepsFoldersOfDeadOwners(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	living := startIn(t, dir, pgserver.Options{})
	lives := entries(t, dir)[0]

	dead, young := filepath.Join(dir, "daybook-pg-dead"), filepath.Join(dir, "daybook-pg-young")
	owner, err := os.Stat(filepath.Join(dir, lives))
	if err != nil {
		t.Fatal(err)
	}
	uid := int(owner.Sys().(*syscall.Stat_t).Uid)
	for _, d := range []string{dead, young} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour)
	for _, d := range []string{dead, filepath.Join(dir, lives)} {
		if err := os.Chtimes(d, hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}

	startIn(t, dir, pgserver.Options{})
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead owner is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a young folder was swept: %v", err)
	}
	query(t, living.URL(), `SELECT 'answers'`)
}

// Not parallel: it looks at all goroutines. Tests that hunt leaks use servers.
func TestServerNeedsNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := startIn(t, openFolder(t), pgserver.Options{})
	if err := goleak.Find(before); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
