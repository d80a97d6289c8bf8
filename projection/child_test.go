package projection

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The crash tests run this test binary again as a process of its own, which runs one projection and can be killed or
// stopped at a named place.
const (
	childEnv  = "DAYBOOK_PROJECTION_TEST_CHILD" // "view", "handlers"
	childURL  = "DAYBOOK_PROJECTION_TEST_URL"
	childAt   = "DAYBOOK_PROJECTION_TEST_AT"   // "place:n:signal": send yourself a signal at the n-th visit of the place
	childOpts = "DAYBOOK_PROJECTION_TEST_OPTS" // lease and batch size
)

var (
	crashView     = counts("crashed")
	crashHandlers = logged("crash_log")
)

func child(what string) error {
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(os.Getenv(childURL))
	if err != nil {
		return err
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return err
	}
	place, visit, signal := "", 0, syscall.SIGKILL
	if at := os.Getenv(childAt); at != "" {
		parts := strings.Split(at, ":")
		place = parts[0]
		visit, _ = strconv.Atoi(parts[1])
		if parts[2] == "stop" {
			signal = syscall.SIGSTOP
		}
	}
	var run Config
	var lease string
	if _, err := fmt.Sscan(os.Getenv(childOpts), &lease, &run.BatchSize); err != nil {
		return err
	}
	if run.Lease, err = time.ParseDuration(lease); err != nil {
		return err
	}
	visits := 0
	run.probe = func(at string) {
		if at != place {
			return
		}
		if visits++; visits == visit {
			fmt.Println("at", at)
			_ = syscall.Kill(os.Getpid(), signal)
			if signal == syscall.SIGKILL {
				select {}
			}
			fmt.Println("awake")
		}
	}
	var def Definition = crashView
	if what == "handlers" {
		def = crashHandlers
	}
	r, err := NewRunner(pool, store.Log(), run, def)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// process is a child with its output by line.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan error
}

func (w *world) spawn(t *testing.T, what, at, opts string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe, "-test.run=^$"), lines: make(chan string, 100), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+what, childURL+"="+w.pool.Config().ConnString(), childAt+"="+at, childOpts+"="+opts)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	go func() { <-read; p.ended <- p.cmd.Wait() }()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // an ended process needs no end
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) says(line string) {
	p.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-p.lines:
			if got == line {
				return
			}
		case <-late:
			p.t.Fatalf("the child did not say %q within %v", line, patience)
		}
	}
}

func (p *process) dies() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the child did not die")
	}
}
