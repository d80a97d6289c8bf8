//go:build unix

package pgserver_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/pgserver"
)

// fakeEngine puts a docker into PATH that writes down its arguments and runs the
// given shell text. Podman is not to be found.
func fakeEngine(t *testing.T, script string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	text := "#!/bin/sh\necho \"$@\" >> " + log + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func TestContainerEngineThatDoesNotAnswer(t *testing.T) {
	fakeEngine(t, "exec sleep 60\n")
	_, err := pgserver.Container().Open(t.Context())
	var no *pgserver.NotHereError
	if !errors.As(err, &no) || !strings.Contains(no.Reason, "docker does not answer within 3s") ||
		!strings.Contains(no.Reason, "podman is installed, but its engine does not run") {
		t.Errorf("got %v", err)
	}
}

// The engine is fake, the server behind the port it names is real and takes the
// password that came by environment, as the image does.
func TestContainerIsUsedAndRemoved(t *testing.T) {
	s := startIn(t, openFolder(t), pgserver.Options{})
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	calls := fakeEngine(t, `case $1 in
run) echo "$POSTGRES_PASSWORD" > `+secret+`
	"$PSQL" "$ADMIN" -q -c "ALTER ROLE postgres PASSWORD '$POSTGRES_PASSWORD'" ;;
port) echo `+u.Host+` ;;
esac
`)
	t.Setenv("PSQL", filepath.Join(s.Binaries().Dir, "psql"))
	t.Setenv("ADMIN", s.URL())
	h, err := pgserver.Container().Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := query(t, h.URL, "SELECT 'answers'"); got != "answers" {
		t.Errorf("reads %q", got)
	}
	password, err := os.ReadFile(secret)
	if err != nil {
		t.Fatal(err)
	}
	if p := strings.TrimSpace(string(password)); len(p) < 20 || strings.Contains(calls(), p) || strings.Contains(h.Detail, p) {
		t.Errorf("the password has %d characters, or is visible", len(p))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	log := calls()
	for _, want := range []string{"run -d --name daybook-test-", "-p 127.0.0.1::5432", "--rm", "rm -f -v daybook-test-"} {
		if !strings.Contains(log, want) {
			t.Errorf("the engine was not asked for %q:\n%s", want, log)
		}
	}
}
