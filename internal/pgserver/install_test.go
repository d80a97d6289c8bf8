package pgserver

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fakeSystem records what would be run.
type fakeSystem struct {
	programs []string
	env      map[string]string
	fail     string // argv[0]+" "+argv[1] that fails
	ran      []string
	out      strings.Builder
}

func (f *fakeSystem) source(root bool) Source {
	return installer{
		out: &f.out, isRoot: root,
		getenv: func(k string) string { return f.env[k] },
		lookPath: func(p string) (string, error) {
			for _, have := range f.programs {
				if have == p {
					return "/bin/" + p, nil
				}
			}
			return "", exec.ErrNotFound
		},
		run: func(_ context.Context, _ io.Writer, argv ...string) error {
			if f.out.Len() == 0 && argv[len(argv)-1] != "true" {
				return errors.New("run before it was printed")
			}
			line := strings.Join(argv, " ")
			f.ran = append(f.ran, line)
			if f.fail != "" && strings.HasPrefix(line, f.fail) {
				return errors.New("exit status 100")
			}
			return nil
		},
		next: Source{Name: "own server", Open: func(context.Context) (Handle, error) { return Handle{Detail: "fresh"}, nil }},
	}.source()
}

func TestInstallReasons(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		system fakeSystem
		root   bool
		reason string
	}{
		"forbidden":         {fakeSystem{programs: []string{"apt-get"}, env: map[string]string{"DAYBOOK_NO_INSTALL": "1"}}, true, "forbidden by DAYBOOK_NO_INSTALL=1"},
		"no manager":        {fakeSystem{}, true, "none that is known here"},
		"user without sudo": {fakeSystem{programs: []string{"dnf"}}, false, "dnf needs root, and sudo is not installed"},
		"sudo asks":         {fakeSystem{programs: []string{"apk", "sudo"}, fail: "sudo -n true"}, false, "apk needs root, and sudo asks for a password"},
		"install fails":     {fakeSystem{programs: []string{"apk"}, fail: "sh -c"}, true, "sh failed: exit status 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.system.source(c.root).Open(t.Context())
			var no *NotHereError
			if !errors.As(err, &no) || no.Reason != c.reason {
				t.Errorf("got %v, want %q", err, c.reason)
			}
		})
	}
}

func TestInstallPrintsRunsAndOpens(t *testing.T) {
	t.Parallel()
	f := fakeSystem{programs: []string{"sudo", "apt-get"}}
	h, err := f.source(false).Open(t.Context())
	if err != nil || h.Detail != "fresh" {
		t.Fatalf("got %+v, %v", h, err)
	}
	if len(f.ran) != 2 || !strings.HasPrefix(f.ran[1], "sudo -n sh -c ") || !strings.Contains(f.ran[1], "apt-get install -y postgresql") {
		t.Errorf("ran %q", f.ran)
	}
	if !strings.Contains(f.out.String(), "apt-get install -y postgresql") {
		t.Errorf("the command was not printed:\n%s", f.out.String())
	}
}

// The Debian script, with a fake apt-get: the drop-in is there while the package
// is installed, forbids the cluster, and is gone afterwards.
func TestInstallOnDebianForbidsTheClusterAndCleansUp(t *testing.T) {
	t.Parallel()
	root, bin := t.TempDir(), t.TempDir()
	fake := "#!/bin/sh\n[ \"$1\" = update ] || cat " + root + "/createcluster.d/*.conf\n"
	if err := os.WriteFile(bin+"/apt-get", []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(packageManagers[0].script, "/etc/postgresql-common", root)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "create_main_cluster = false\n" {
		t.Fatalf("got %q, %v", out, err)
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
