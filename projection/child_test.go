package projection

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The crash tests run this test binary again as a process of its own, which runs one projection and can be killed or
// stopped at a named place.
const (
	childEnv  = "DAYBOOK_PROJECTION_TEST_CHILD" // "view", "handlers", "failing"
	childURL  = "DAYBOOK_PROJECTION_TEST_URL"
	childAt   = "DAYBOOK_PROJECTION_TEST_AT"   // "place:n:signal": send yourself a signal at the n-th visit of the place; awake, tell of the next batch
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
	var awake batchTeller
	run.Observer = &awake
	run.probe = func(at string) {
		if at != place {
			return
		}
		if visits++; visits == visit {
			woken := make(chan os.Signal, 1)
			ossignal.Notify(woken, syscall.SIGCONT)
			fmt.Println("at", at)
			_ = syscall.Kill(os.Getpid(), signal)
			<-woken // the signal may be taken by another thread, and this one would go on for a moment; killed, it never comes
			awake.tells.Store(true)
			fmt.Println("awake")
		}
	}
	var def Definition = crashView
	switch what {
	case "handlers":
		def = crashHandlers
	case "failing":
		def, run = crashFailing, soon(run)
	}
	r, err := NewRunner(pool, store.Log(), run, def)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// batchTeller says what became of the batch that a process had in hand when it woke: it was committed or given up, and
// nothing of it is still to come.
type batchTeller struct {
	eventstore.NopObserver
	tells atomic.Bool
}

const batchLine = "batch: "

func (b *batchTeller) ObserveBatch(o eventstore.BatchObservation) {
	if b.tells.CompareAndSwap(true, false) {
		fmt.Println(batchLine + strings.ReplaceAll(fmt.Sprint(o.Err), "\n", " "))
	}
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
	if got := p.begins(line); got != line {
		p.t.Fatalf("the child said %q, want %q", got, line)
	}
}

// begins waits for a line that begins so, and returns it.
func (p *process) begins(line string) string {
	p.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-p.lines:
			if strings.HasPrefix(got, line) {
				return got
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
