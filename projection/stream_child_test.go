package projection

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/livetest"
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
	pool, err := livetest.Pool(ctx, os.Getenv(childURL), 4)
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
	if run.Lease, run.BatchSize, _, err = livetest.LeaseAndBatch(os.Getenv(childOpts)); err != nil {
		return err
	}
	var awake batchTeller
	run.Observer = &awake
	reached := livetest.Reaching(os.Getenv(childAt), awake.tell)
	run.probe = func(place string) {
		if s.Stats().Received > 0 { // visits count from when the broker has brought something
			reached(place)
		}
	}
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
func (w *streamWorld) spawnFollower(t *testing.T, b *pipes, what, at, opts string) *livetest.Process {
	t.Helper()
	return livetest.Spawn(t, livetest.Child{
		Env: append(w.childEnv(at, opts), streamChild+"="+what), Input: func(in io.WriteCloser) { b.join(t, in) },
	})
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
