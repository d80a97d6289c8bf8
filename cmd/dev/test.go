package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/internal/testscale"
)

func (d *dev) testCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test [-- ARGS]",
		Short: "Run all tests with the race detector; ARGS go to go test",
		Long: `Run all tests with the race detector. ARGS go to go test, packages included:

  go run ./cmd/dev test -- -run TestAppend ./eventstore/...

The server is the one that DAYBOOK_TEST_DATABASE_URL names, else a throw-away
server, which all packages share and which is gone afterwards, also after Ctrl-C.
DAYBOOK_DATABASE_URL is never looked at. Long tests run at a tenth of their size;
FULL=1 runs them at full size, and lets each package take an hour.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.test(cmd.Context(), args)
		},
	}
}

func (d *dev) test(ctx context.Context, args []string) error {
	race, why := raceDetector(ctx)
	err := d.withTestServer(ctx, func(env []string) error {
		return d.command(ctx, ".", env, testArgs(race, timeLimit(), args)...)
	})
	if !race {
		fmt.Fprintln(d.out, "NOTE: the tests ran WITHOUT the race detector:", why)
	}
	return err
}

// withTestServer calls run with the environment of tests, while there is a server for them.
func (d *dev) withTestServer(ctx context.Context, run func(env []string) error) (err error) {
	own := pgserver.Own(pgserver.Options{})
	found, err := pgserver.Find(ctx,
		pgserver.FromEnv(pgserver.TestVariable), own, pgserver.Container(), pgserver.SystemPackages(d.out, own))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	fmt.Fprintln(d.out, found)
	// The variable for running is emptied: no test may reach a database that
	// somebody needs.
	return run([]string{pgserver.TestVariable + "=" + found.URL(), pgserver.RunVariable + "="})
}

// timeLimit is how long the tests of a package may take.
func timeLimit() string {
	if testscale.Factor() >= 1 {
		return "60m"
	}
	return "18m"
}

// testArgs is the whole command. What the caller says comes last, so it counts;
// without packages all are tested.
func testArgs(race bool, limit string, args []string) []string {
	argv := []string{"go", "test"}
	if race {
		argv = append(argv, "-race")
	}
	argv = append(argv, "-shuffle=on", "-count=1", "-timeout="+limit)
	argv = append(argv, args...)
	for _, a := range args {
		if strings.HasPrefix(a, "./") || a == "." || strings.HasPrefix(a, "github.com/") {
			return argv
		}
	}
	return append(argv, "./...")
}

// raceDetector says whether it can be used: it needs cgo and a C compiler.
func raceDetector(ctx context.Context) (ok bool, why string) {
	out, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		return false, "go env does not work: " + err.Error()
	}
	enabled, cc, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return cgoWorks(enabled, cc, func(p string) bool { _, err := exec.LookPath(p); return err == nil })
}

func cgoWorks(enabled, cc string, installed func(string) bool) (ok bool, why string) {
	// CC may carry flags.
	fields := strings.Fields(cc)
	switch {
	case len(fields) == 0 || !installed(fields[0]):
		return false, "no C compiler is installed (e.g. apt-get install gcc)"
	case enabled != "1":
		return false, "cgo is switched off (CGO_ENABLED=" + enabled + ")"
	default:
		return true, ""
	}
}
