//go:build unix

package livetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Reaching returns a function that sends this process a signal when it is called for a place the nth time. at is
// "place:n:kill" or "place:n:stop"; empty: never. A process that was stopped and goes on says "awake" before the call
// returns; then is called before that.
func Reaching(at string, then ...func()) func(place string) {
	if at == "" {
		return func(string) {}
	}
	parts := strings.Split(at, ":")
	visit, _ := strconv.Atoi(parts[1])
	signal := syscall.SIGKILL
	if parts[2] == "stop" {
		signal = syscall.SIGSTOP
	}
	var mu sync.Mutex
	visits := 0
	return func(place string) {
		if place != parts[0] {
			return
		}
		mu.Lock()
		visits++
		reached := visits == visit
		mu.Unlock()
		if !reached {
			return
		}
		woken := make(chan os.Signal, 1)
		ossignal.Notify(woken, syscall.SIGCONT)
		fmt.Println("at", place)
		_ = syscall.Kill(os.Getpid(), signal)
		<-woken // the signal may be taken by another thread, and this one would go on for a moment; killed, it never comes
		for _, f := range then {
			f()
		}
		fmt.Println("awake")
	}
}

// Pool opens connections for such a process, at most n.
func Pool(ctx context.Context, url string, n int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = n
	return pgxpool.NewWithConfig(ctx, cfg)
}

// LeaseAndBatch reads a text such as "300ms 20", and returns what follows.
func LeaseAndBatch(text string) (lease time.Duration, batch int, rest string, err error) {
	words := append(strings.SplitN(text, " ", 3), "", "")
	if lease, err = time.ParseDuration(words[0]); err == nil {
		batch, err = strconv.Atoi(words[1])
	}
	return lease, batch, words[2], err
}

// Process is this test's binary, run again as a process of its own, with its output by line.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string
	ended chan struct{}
}

// Child says how a process is started. The zero value is fine.
type Child struct {
	// Env is added to the environment, by which TestMain or an init function knows what the process is to do; it runs no tests.
	Env []string
	// Takes is given each line, and takes those that it returns true for.
	Takes func(line string) bool
	// Input is given what the process reads as its standard input.
	Input func(io.WriteCloser)
}

// Spawn starts a process, which is killed when the test ends.
func Spawn(t testing.TB, c Child) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.Command(exe, "-test.run=^$"), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.Input != nil {
		in, err := p.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Input(in)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			line := s.Text()
			if c.Takes != nil && c.Takes(line) {
				continue
			}
			select {
			case p.lines <- line:
			default: // nobody reads them
			}
		}
		_ = p.cmd.Wait() // it was killed
	}()
	t.Cleanup(func() {
		p.Kill()
		<-p.ended
	})
	return p
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an ended process needs no end
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Says waits for a line that contains a text, and returns it.
func (p *Process) Says(text string) string {
	p.t.Helper()
	late := time.After(Patience)
	for {
		select {
		case got := <-p.lines:
			if strings.Contains(got, text) {
				return got
			}
		case <-late:
			p.t.Fatalf("the child did not say %q within %v", text, Patience)
		}
	}
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Dies waits for the end of the process.
func (p *Process) Dies() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.t.Fatal("the child did not die")
	}
}
