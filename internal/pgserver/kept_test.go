//go:build unix

package pgserver_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/internal/pgserver"
)

func openKept(t *testing.T, dir string) pgserver.Handle {
	t.Helper()
	h, err := pgserver.Kept(pgserver.KeptOptions{Dir: dir}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func stopKept(t *testing.T, dir string) bool {
	t.Helper()
	ran, err := pgserver.StopKept(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

func TestKeptFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgserver.Kept(pgserver.KeptOptions{Dir: filepath.Join(file, "kept")}).Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "set DAYBOOK_SERVER_DIR to a folder that you may write to, or DAYBOOK_DATABASE_URL") {
		t.Errorf("got %v, want the remedy", err)
	}
}

func TestKeptServerIsSharedAndKeepsItsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), "kept")
	if stopKept(t, dir) {
		t.Error("a server that was never made was stopped")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("stop made the folder: %v", err)
	}
	defer stopKept(t, dir)

	// Many commands at once at the first time: one server, one URL.
	const commands = 6
	handles := make([]pgserver.Handle, commands)
	var wg sync.WaitGroup
	for i := range commands {
		wg.Go(func() {
			h, err := pgserver.Kept(pgserver.KeptOptions{Dir: dir}).Open(t.Context())
			if err != nil {
				t.Error(err)
			}
			handles[i] = h
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	started := 0
	for _, h := range handles {
		if h.URL != handles[0].URL {
			t.Error("two commands got different servers")
		}
		if strings.HasPrefix(h.Detail, "started") {
			started++
		}
		if h.Close != nil {
			t.Error("closing would stop a server that others use")
		}
	}
	if started != 1 {
		t.Errorf("started %d times, want once", started)
	}
	first := handles[0]
	u, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	if password, _ := u.User.Password(); u.Path != "/daybook" || password == "" || strings.Contains(first.Detail, password) {
		t.Errorf("path %q, or the password is missing or printed", u.Path)
	}
	if got := query(t, first.URL, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	exec(t, first.URL, `CREATE TABLE entries AS SELECT 'still here' AS text`)

	if !stopKept(t, dir) || stopKept(t, dir) {
		t.Error("the first stop must find it running, the second must not")
	}

	// Its port may be taken while it is down.
	l, err := net.Listen("tcp4", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	second := openKept(t, dir)
	if second.URL == first.URL {
		t.Error("the port that another program has taken was not replaced")
	}
	if got := query(t, second.URL, `SELECT text FROM entries`); got != "still here" {
		t.Errorf("reads %q", got)
	}
	if third := openKept(t, dir); third.URL != second.URL || !strings.HasPrefix(third.Detail, "found running") {
		t.Errorf("not found running: %s", third.Detail)
	}
}

func TestKeptServerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	data := filepath.Join(dir, "pg", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		filepath.Join(data, "PG_VERSION"): "9\n",
		filepath.Join(dir, "server.json"): `{"port":1,"password":"p"}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := pgserver.Kept(pgserver.KeptOptions{Dir: dir}).Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "of version 9, of which no binaries are installed") {
		t.Errorf("got %v", err)
	}
}

func TestForRunPrintsOneLineAndFindsTheServerAgain(t *testing.T) {
	dir := filepath.Join(openFolder(t), "kept")
	t.Setenv("DAYBOOK_SERVER_DIR", dir)
	t.Setenv(pgserver.RunVariable, "")
	defer stopKept(t, dir)
	var out strings.Builder
	first, release, err := pgserver.ForRun(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	release()
	second, release, err := pgserver.ForRun(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if first != second {
		t.Error("the second program got another server")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "PostgreSQL: own kept server, started") ||
		!strings.HasPrefix(lines[1], "PostgreSQL: own kept server, found running") ||
		!strings.Contains(lines[1], "; not DAYBOOK_DATABASE_URL: not set") {
		t.Errorf("printed:\n%s", out.String())
	}

	// The URL of a running server wins over the kept one.
	t.Setenv(pgserver.RunVariable, first)
	out.Reset()
	if got, release, err := pgserver.ForRun(t.Context(), &out); err != nil || got != first {
		t.Errorf("got %v", err)
	} else {
		release()
	}
	u, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	if !strings.HasPrefix(out.String(), "PostgreSQL: DAYBOOK_DATABASE_URL, version ") || strings.Contains(out.String(), password) {
		t.Errorf("printed %q", out.String())
	}
}
