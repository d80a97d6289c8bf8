package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/pgserver"
)

// asProgram makes this test binary be the program, workers included, so that it can kill them.
const asProgram = "CHECKOUT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	// With the race detector, beside other tests, an answer takes its time; no answer is to come from those who give none.
	p := program{out: os.Stdout, notes: os.Stderr, executable: os.Executable, clientPatience: 2 * time.Second}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// limit bounds one run of the program.
const limit = 10 * time.Minute

// shell runs the program as a process of its own on one database.
type shell struct {
	url  string
	pool *pgxpool.Pool
}

// newShell gives the program a database in which the store is installed.
func newShell(t *testing.T) shell {
	t.Helper()
	pool := postgrestest.New(t)
	return shell{url: postgrestest.URL(pool), pool: pool}
}

// result is what a run left behind.
type result struct {
	code       int
	out, notes string
}

func (s shell) command(ctx context.Context, args ...string) (cmd *exec.Cmd, out, notes *bytes.Buffer) {
	out, notes = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", pgserver.RunVariable+"="+s.url)
	// With the race detector a program sleeps for a second before it ends, unless it is told not to.
	cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = out, notes
	// A program that hangs says where.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, out, notes
}

// run waits for the end of the program, however it ends.
func (s shell) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd, out, notes := s.command(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("checkout %v: %v", args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("checkout %v does not end:\n%s", args, notes)
	}
	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), notes: notes.String()}
}

// must is run for what has to succeed.
func (s shell) must(t *testing.T, args ...string) result {
	t.Helper()
	r := s.run(t, args...)
	t.Logf("checkout %v noted\n%s", args, r.notes)
	if r.code != 0 {
		t.Fatalf("checkout %v ended with %d, and printed\n%s", args, r.code, r.out)
	}
	return r
}
