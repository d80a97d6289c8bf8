package projection

import (
	"bufio"
	"context"
	"encoding/json"
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

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
)

// streamChild names the projection that this process follows the published stream with; empty in the test itself. Its
// broker is its standard input. The other settings are those of the children that read the log.
const streamChild = "DAYBOOK_PROJECTION_TEST_STREAM"

var (
	crashStrict = strict("crash_strict")
	crashCounts = counts("crash_counts")
)

func init() {
	if what := os.Getenv(streamChild); what != "" {
		if err := followInChild(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
}

// letter is a message on its way to another process.
type letter struct {
	Topic, UUID string
	Payload     []byte
	Metadata    message.Metadata
}

// letters are what comes in, for who has subscribed; there is one subscription at a time.
type letters struct{ in chan *message.Message }

func (l letters) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one letter
		if json.Unmarshal(lines.Bytes(), &one) != nil {
			continue
		}
		msg := message.NewMessage(one.UUID, one.Payload)
		msg.Metadata = one.Metadata
		select {
		case l.in <- msg:
		default: // nobody takes it
		}
	}
	os.Exit(4) // the test has ended
}

func (l letters) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			select {
			case msg := <-l.in:
				select {
				case out <- msg:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (letters) Close() error { return nil }

func followInChild(what string) error {
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
	broker := letters{make(chan *message.Message, 1000)}
	go broker.read(os.Stdin)
	s, err := outbox.NewSubscription(store.Outbox(), broker, outbox.SubscriptionConfig{Topic: topicAll, Group: what, Silence: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	var run Config
	var lease string
	if _, err := fmt.Sscan(os.Getenv(childOpts), &lease, &run.BatchSize); err != nil {
		return err
	}
	if run.Lease, err = time.ParseDuration(lease); err != nil {
		return err
	}
	var awake batchTeller
	run.Observer = &awake
	run.probe = dieAt(os.Getenv(childAt), s, &awake)
	var def Definition = crashCounts
	if what == crashStrict.Name {
		def = crashStrict
	}
	r, err := NewRunner(pool, s, run, def)
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(ctx)
}

// dieAt sends this process a signal at a visit of a place. Visits count from when the broker has brought something.
func dieAt(at string, s *outbox.Subscription, awake *batchTeller) func(string) {
	place, visit, signal := "", 0, syscall.SIGKILL
	if at != "" {
		parts := strings.Split(at, ":")
		place = parts[0]
		visit, _ = strconv.Atoi(parts[1])
		if parts[2] == "stop" {
			signal = syscall.SIGSTOP
		}
	}
	visits := 0
	return func(at string) {
		if at != place || s.Stats().Received == 0 {
			return
		}
		if visits++; visits == visit {
			woken := make(chan os.Signal, 1)
			ossignal.Notify(woken, syscall.SIGCONT)
			fmt.Println("at", at)
			_ = syscall.Kill(os.Getpid(), signal)
			<-woken // killed, it never comes
			awake.tells.Store(true)
			fmt.Println("awake")
		}
	}
}

// pipes is a broker whose subscribers are processes: each gets every message, or, when they share, one of them does.
// What a process does not take is lost.
type pipes struct {
	shared bool

	mu   sync.Mutex
	to   []chan []byte
	turn int
}

func (p *pipes) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		line, err := json.Marshal(letter{topic, msg.UUID, msg.Payload, msg.Metadata})
		if err != nil {
			return err
		}
		to := p.to
		if p.shared && len(to) > 0 {
			p.turn++
			to = to[p.turn%len(to):][:1]
		}
		for _, one := range to {
			select {
			case one <- append(line, '\n'):
			default:
			}
		}
	}
	return nil
}

func (*pipes) Close() error { return nil }

// join adds a process, until the test ends.
func (p *pipes) join(t *testing.T, stdin io.WriteCloser) {
	lines := make(chan []byte, 1000)
	p.mu.Lock()
	p.to = append(p.to, lines)
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for line := range lines {
			if _, err := stdin.Write(line); err != nil {
				return // it is dead
			}
		}
		_ = stdin.Close() // the process may be gone
	}()
	t.Cleanup(func() { // after the process was killed, and the relay has ended
		p.mu.Lock()
		p.to = nil
		p.mu.Unlock()
		close(lines)
		<-ended
	})
}

// spawnFollower starts a process that follows the stream that b brings it.
func (w *streamWorld) spawnFollower(t *testing.T, b *pipes, what, at, opts string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(exe, "-test.run=^$"), lines: make(chan string, 100), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), streamChild+"="+what, childURL+"="+w.pool.Config().ConnString(), childAt+"="+at, childOpts+"="+opts)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.join(t, in)
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

// everywhere publishes to several brokers.
type everywhere []message.Publisher

func (e everywhere) Publish(topic string, messages ...*message.Message) error {
	for _, p := range e {
		for _, msg := range messages {
			if err := p.Publish(topic, msg.Copy()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (everywhere) Close() error { return nil }
