package commands

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The crash tests run this test binary again as a process of its own, which runs a dispatcher and can be killed or stopped
// at a named place.
const (
	childURL   = "DAYBOOK_COMMANDS_TEST_URL"
	childAt    = "DAYBOOK_COMMANDS_TEST_AT"    // "place:n:signal": send yourself a signal at the n-th visit of the place
	childLease = "DAYBOOK_COMMANDS_TEST_LEASE" // and the size of batches
)

// slowly is how long every fourth command takes, so that batches tell of the others before.
const slowly = 2 * tellEvery

func child() error {
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(os.Getenv(childURL))
	if err != nil {
		return err
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	w, err := openWorld(ctx, pool)
	if err != nil {
		return err
	}
	reached := reaching(os.Getenv(childAt))
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding && c.N%4 == 0 {
			<-time.After(slowly)
		}
		reached(place)
	})
	run := Config{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)), probe: reached}
	var lease string
	if _, err := fmt.Sscan(os.Getenv(childLease), &lease, &run.BatchSize); err != nil {
		return err
	}
	if run.Lease, err = time.ParseDuration(lease); err != nil {
		return err
	}
	d, err := NewDispatcher(pool, Local(w.store.Outbox()), w.bus, run)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return d.Run(ctx)
}

// reaching sends this process a signal at the n-th visit of a place.
func reaching(at string) func(place string) {
	if at == "" {
		return func(string) {}
	}
	parts := strings.Split(at, ":")
	visit, _ := strconv.Atoi(parts[1])
	kill := syscall.SIGKILL
	if parts[2] == "stop" {
		kill = syscall.SIGSTOP
	}
	var mu sync.Mutex
	visits := 0
	return func(place string) {
		if place != parts[0] {
			return
		}
		mu.Lock()
		defer mu.Unlock() // others of this place stand still too
		if visits++; visits != visit {
			return
		}
		woken := make(chan os.Signal, 1)
		signal.Notify(woken, syscall.SIGCONT)
		fmt.Println("at", place)
		_ = syscall.Kill(os.Getpid(), kill)
		<-woken // the signal may be taken by another thread, and this one would go on for a moment; killed, it never comes
		fmt.Println("awake")
	}
}

// process is a child with its output by line.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan struct{}
}

func (w *world) spawn(t *testing.T, at, lease string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe, "-test.run=^$"), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childURL+"="+w.pool.Config().ConnString(), childAt+"="+at, childLease+"="+lease)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default: // nobody reads them
			}
		}
		_ = p.cmd.Wait() // it was killed
	}()
	t.Cleanup(func() {
		p.kill()
		<-p.ended
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an ended process needs no end
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// says waits for a line that contains a text, and returns it.
func (p *process) says(text string) string {
	p.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-p.lines:
			if strings.Contains(got, text) {
				return got
			}
		case <-late:
			p.t.Fatalf("the child did not say %q within %v", text, patience)
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
