package pgserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// installPatience bounds the package manager.
const installPatience = 10 * time.Minute

// SystemPackages installs PostgreSQL by the system's package manager and then
// opens next, which finds the new binaries. It prints the command to out before
// it runs it, runs it as root or by passwordless sudo only, and lets no cluster
// of the system be made or started. DAYBOOK_NO_INSTALL=1 forbids it.
func SystemPackages(out io.Writer, next Source) Source {
	return installer{
		out:      out,
		isRoot:   os.Geteuid() == 0,
		getenv:   os.Getenv,
		lookPath: exec.LookPath,
		run:      runCommand,
		next:     next,
	}.source()
}

type installer struct {
	out      io.Writer
	isRoot   bool
	getenv   func(string) string
	lookPath func(string) (string, error)
	run      func(ctx context.Context, out io.Writer, argv ...string) error
	next     Source
}

// packageManager says how one system installs the server.
type packageManager struct{ program, script string }

var packageManagers = []packageManager{
	// The drop-in keeps the package from making and starting a cluster on 5432.
	// It is a file of our own, so the user's settings stay as they are, and it
	// is removed again.
	{"apt-get", `set -e
d=/etc/postgresql-common/createcluster.d
f=$d/zz-daybook.conf
if [ -d $d ]; then trap 'rm -f $f' EXIT; else trap 'rm -f $f; rmdir $d' EXIT; fi
mkdir -p $d
echo "create_main_cluster = false" > $f
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y postgresql`},
	{"dnf", `dnf install -y postgresql-server`},
	{"apk", `apk add postgresql`},
	{"pacman", `pacman -S --noconfirm --needed postgresql`},
	{"zypper", `zypper --non-interactive install postgresql-server`},
}

func (i installer) source() Source {
	return Source{Name: "package manager", Open: func(ctx context.Context) (Handle, error) {
		argv, err := i.command(ctx)
		if err != nil {
			return Handle{}, err
		}
		fmt.Fprintf(i.out, "PostgreSQL is not installed; running:\n  %s\n(DAYBOOK_NO_INSTALL=1 forbids this)\n",
			strings.ReplaceAll(strings.Join(argv, " "), "\n", "\n  "))
		ctx, cancel := context.WithTimeout(ctx, installPatience)
		defer cancel()
		if err := i.run(ctx, i.out, argv...); err != nil {
			return Handle{}, notHere("%s failed: %v", argv[0], err)
		}
		return i.next.Open(ctx)
	}}
}

// command is what would be run, or why nothing may be.
func (i installer) command(ctx context.Context) ([]string, error) {
	if i.getenv("DAYBOOK_NO_INSTALL") == "1" {
		return nil, notHere("forbidden by DAYBOOK_NO_INSTALL=1")
	}
	var pm packageManager
	for _, m := range packageManagers {
		if _, err := i.lookPath(m.program); err == nil {
			pm = m
			break
		}
	}
	if pm.program == "" {
		return nil, notHere("none that is known here")
	}
	argv := []string{"sh", "-c", pm.script}
	if i.isRoot {
		return argv, nil
	}
	if _, err := i.lookPath("sudo"); err != nil {
		return nil, notHere("%s needs root, and sudo is not installed", pm.program)
	}
	if err := i.run(ctx, io.Discard, "sudo", "-n", "true"); err != nil {
		return nil, notHere("%s needs root, and sudo asks for a password", pm.program)
	}
	return append([]string{"sudo", "-n"}, argv...), nil
}

func runCommand(ctx context.Context, out io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}
