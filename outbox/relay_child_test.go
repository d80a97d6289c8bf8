package outbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The crash tests run this test binary again as a process of its own, which runs a relay and can be killed or stopped at
// a named place. Its broker is its standard output.
const (
	relayChildURL  = "DAYBOOK_OUTBOX_TEST_URL"
	relayChildAt   = "DAYBOOK_OUTBOX_TEST_AT"   // "place:n:signal": send yourself a signal at the n-th visit of the place
	relayChildOpts = "DAYBOOK_OUTBOX_TEST_OPTS" // lease and batch size, and if there is a third word, the payload that is refused
)

// atBroker is the place within Publish, before the broker has the message.
const atBroker = "broker"

// wireMessage is a line of the child: a message that the broker has.
type wireMessage struct {
	Topic, UUID string
	Payload     []byte
	Metadata    message.Metadata
}

// wireBroker writes each message in one piece, so that a process that is killed leaves whole lines.
type wireBroker struct {
	reached func(place string)
	refuses string // a payload
}

func (b wireBroker) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if m.Metadata[HeaderKind] != string(KindHead) { // heads go in lanes of their own, and would be counted by chance
			b.reached(atBroker)
		}
		if b.refuses != "" && string(m.Payload) == b.refuses {
			return errTooLarge
		}
		line, err := json.Marshal(wireMessage{topic, m.UUID, m.Payload, m.Metadata})
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (wireBroker) Close() error { return nil }

func relayChild() error {
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(os.Getenv(relayChildURL))
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
	if at := os.Getenv(relayChildAt); at != "" {
		parts := strings.Split(at, ":")
		place = parts[0]
		visit, _ = strconv.Atoi(parts[1])
		if parts[2] == "stop" {
			signal = syscall.SIGSTOP
		}
	}
	run := Config{Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)), Classify: permanent}
	var lease, refuses string
	if n, err := fmt.Sscan(os.Getenv(relayChildOpts), &lease, &run.BatchSize, &refuses); n < 2 {
		return err
	}
	if run.Lease, err = time.ParseDuration(lease); err != nil {
		return err
	}
	var mu sync.Mutex
	visits := 0
	reached := func(at string) {
		mu.Lock()
		visiting := at == place
		if visiting {
			visits++
			visiting = visits == visit
		}
		mu.Unlock()
		if !visiting {
			return
		}
		woken := make(chan os.Signal, 1)
		ossignal.Notify(woken, syscall.SIGCONT)
		fmt.Println("at", at)
		_ = syscall.Kill(os.Getpid(), signal)
		<-woken // the signal may be taken by another thread, and this one would go on for a moment; killed, it never comes
		fmt.Println("awake")
	}
	run.probe = reached
	r, err := NewRelay(pool, store.Outbox(), wireBroker{reached, refuses}, run)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// relayProcess is a child with its output by line.
type relayProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan error
}

// spawnRelay starts a child whose messages go to b.
func (w *relayWorld) spawnRelay(t *testing.T, b *tape, at, opts string) *relayProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &relayProcess{t: t, cmd: exec.Command(exe, "-test.run=^$"), lines: make(chan string, 1000), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), relayChildURL+"="+w.pool.Config().ConnString(), relayChildAt+"="+at, relayChildOpts+"="+opts)
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
			line := s.Text()
			var m wireMessage
			switch {
			case !strings.HasPrefix(line, "{"):
				p.lines <- line
			case json.Unmarshal([]byte(line), &m) != nil:
				p.lines <- "broken: " + line
			default:
				msg := message.NewMessage(m.UUID, m.Payload)
				msg.Metadata = m.Metadata
				if err := b.Publish(m.Topic, msg); err != nil {
					p.lines <- "broken: " + err.Error()
				}
			}
		}
	}()
	go func() { <-read; p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.kill()
		<-read
	})
	return p
}

func (p *relayProcess) kill() {
	_ = p.cmd.Process.Kill() // an ended process needs no end
}

func (p *relayProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// says waits for a line that contains a text, and returns it.
func (p *relayProcess) says(text string) string {
	p.t.Helper()
	late := time.After(relayPatience)
	for {
		select {
		case got := <-p.lines:
			if strings.Contains(got, "broken: ") {
				p.t.Fatal(got)
			}
			if strings.Contains(got, text) {
				return got
			}
		case <-late:
			p.t.Fatalf("the child did not say %q within %v", text, relayPatience)
		}
	}
}

func (p *relayProcess) dies() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(relayPatience):
		p.t.Fatal("the child did not die")
	}
}
