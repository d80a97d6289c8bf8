package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// R-OB02: a message that the broker refused is repeated before those that follow it, and others are not held back.
func TestRelayRepeatsBeforeSuccessors(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	var failed atomic.Bool
	b := &tape{before: func(_ string, got received) error {
		if got.partition == 3 && got.kind != KindHead && failed.CompareAndSwap(false, true) {
			return errors.New("the broker is not itself")
		}
		return nil
	}}
	for range 5 {
		w.send(1, "t", 3)
		w.send(1, "t", 4)
	}
	w.start(w.relay(b, Config{}))
	w.sent()
	if n := checkChains(t, b.all()); n != 10 || !failed.Load() {
		t.Errorf("%d messages arrived, want 10, and one was refused: %v", n, failed.Load())
	}
}

// Events and messages, on several topics and partitions, arrive once and in order, each linked to the one before it.
func TestRelayPublishesEverything(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	for i := range 40 {
		w.append("routed", fmt.Sprint("s", i%7), 1+i%5)
		w.append("foreign", "f", 2)
		w.send(1+i%3, []string{"t", "u"}[i%2], i%9)
	}
	b := &tape{}
	w.start(w.relay(b, Config{BatchSize: 13, Lanes: 3}))
	for i := range 40 {
		w.append("routed", fmt.Sprint("s", i%7), 1+i%5)
	}
	w.sent()
	if got, want := checkChains(t, b.all()), w.stored(); got != want || want == 0 {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// Through the Go channel of Watermill, which confirms when it is told to, messages arrive as they were published.
func TestRelayThroughGoChannel(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	defer func() {
		if err := channel.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := &tape{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	for _, topic := range []string{"events", "t"} {
		messages, err := channel.Subscribe(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		listening.Go(func() {
			for m := range messages {
				if err := b.Publish(topic, m); err != nil {
					t.Error(err)
				}
				m.Ack()
			}
		})
	}
	stop := w.start(w.relay(channel, Config{BatchSize: 7}))
	for i := range 30 {
		w.append("routed", fmt.Sprint("s", i%7), 1+i%5)
		w.send(1, "t", i%5)
	}
	w.sent()
	stop()
	if got, want := checkChains(t, b.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// A transaction that writes only a message tells nobody, and is published within the poll bound of an idle system.
func TestRelayPolls(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	w.start(w.relay(b, Config{}))
	w.send(1, "t", 0)
	w.sent()
	for range 3 {
		<-time.After(300 * time.Millisecond) // the polling becomes rare
		began := time.Now()
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := Enqueue(t.Context(), tx, Message{Topic: "t", Key: "k", Type: "mail.send", Data: []byte("hello")}); err != nil {
			t.Fatal(err)
		}
		before := len(b.messages())
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "it arrives", func() bool { return len(b.messages()) > before })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v, and the poll bound is 1 s", took)
		}
	}
}

// Errors and panics of the broker are waited out, without a word of the payload; Health says so while it lasts.
func TestRelayWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no route to the broker") },
		"panic": func() error { panic("no route to the broker") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			var down atomic.Bool
			b := &tape{before: func(_ string, got received) error {
				if down.Load() && got.kind != KindHead {
					return fail()
				}
				return nil
			}}
			var lines relayLines
			r := w.relay(b, Config{Logger: lines.logger()})
			if h := r.Health(t.Context()); h.Ready || h.State != "not running" {
				t.Errorf("before Run the health is %+v", h)
			}
			w.start(r)
			w.send(1, "t", 5)
			w.sent()
			if h := r.Health(t.Context()); !h.Ready || h.State != "running" || h.Reason != "" {
				t.Errorf("the health is %+v", h)
			}
			down.Store(true)
			w.exec(`WITH n AS (SELECT nextval('daybook.log_position') AS p)
				INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, data)
				SELECT p, p, 5, 't', 'k', gen_random_uuid(), 'test.secret', 'text/plain', 'payload-secret' FROM n`)
			position := w.head()
			livetest.Eventually(t, "health says so", func() bool { h := r.Health(t.Context()); return !h.Ready && strings.Contains(h.Reason, "attempt 3") })
			h := r.Health(t.Context())
			for _, want := range []string{`topic "t"`, fmt.Sprintf("position %d ", position), "no route to the broker"} {
				if !strings.Contains(h.Reason, want) {
					t.Errorf("the reason does not name %s: %s", want, h.Reason)
				}
			}
			if h.State != "waiting" || h.Since.IsZero() {
				t.Errorf("the health is %+v", h)
			}
			if lag, err := r.Lag(t.Context()); err != nil || lag.Behind < 1 || lag.Age <= 0 || lag.Owner == "" || lag.Head.Ordinal() != position {
				t.Errorf("the lag is %+v, %v", lag, err)
			}
			down.Store(false)
			w.sent()
			livetest.Eventually(t, "health is ready", func() bool { return r.Health(t.Context()).Ready })
			if n := checkChains(t, b.all()); n != 2 {
				t.Errorf("%d messages arrived", n)
			}
			if lag, err := r.Lag(t.Context()); err != nil || lag.Behind != 0 || lag.Age != 0 || lag.Cursor != lag.Head {
				t.Errorf("the lag is %+v, %v", lag, err)
			}
			if text := lines.String(); strings.Contains(text, "payload-secret") || !strings.Contains(text, "waits for the broker") {
				t.Errorf("the log says:\n%s", text)
			}
		})
	}
}

// R-OB12: while a broker blocks, no transaction is open, the lease is kept and nobody else publishes.
func TestRelayHoldsNoTransaction(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t, postgrestest.WithPoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "relay"
	}))
	entered, release := make(chan struct{}, 100), make(chan struct{})
	b := &tape{before: func(string, received) error {
		entered <- struct{}{}
		<-release
		return nil
	}}
	const lease = 300 * time.Millisecond
	w.start(w.relay(b, Config{Lease: lease, Lanes: 2}))
	w.start(w.relay(b, Config{Lease: lease, Lanes: 2}))
	w.balanced(2)
	w.send(5, "t", 1)
	<-entered
	watcher, err := pgxpool.New(t.Context(), w.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	type sight struct {
		Open    int
		Expires time.Time
		Epoch   int64
	}
	look := func() (s sight) {
		t.Helper()
		err := watcher.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'relay'
			         AND xact_start < clock_timestamp() - interval '200 milliseconds')::int, expires_at, epoch
			  FROM daybook.segments WHERE consumer = 'outbox-relay' AND segment = 0`).Scan(&s.Open, &s.Expires, &s.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := look()
	livetest.Eventually(t, "the lease is renewed for ten leases", func() bool {
		s := look()
		if s.Open > 0 {
			t.Fatalf("%d transactions of the relay are open while the broker blocks", s.Open)
		}
		return s.Expires.Sub(first.Expires) > 10*lease
	})
	if s := look(); s.Epoch != first.Epoch {
		t.Errorf("the lease was lost: epoch %d became %d", first.Epoch, s.Epoch)
	}
	if len(entered) > 0 {
		t.Error("another message of the partition is on its way")
	}
	close(release)
	w.sent()
	if n := checkChains(t, b.all()); n != 5 {
		t.Errorf("%d messages arrived", n)
	}
}

// A relay that takes over goes on with the chains of the one before it.
func TestRelayTailsSurviveTakeover(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	for round := range 4 {
		stop := w.start(w.relay(b, Config{}))
		w.send(2, "t", 1)
		w.send(1, "u", round)
		w.sent()
		stop()
	}
	if n := checkRepeats(t, b.all()); n != 12 || len(b.messages()) != 12 {
		t.Errorf("%d messages arrived, %d different, want 12", len(b.messages()), n)
	}
}

// Run ends within two seconds under load, and leaves no goroutine. Not parallel: it counts.
func TestRelayShutdownUnderLoad(t *testing.T) {
	w := newRelayWorld(t)
	w.keep()
	w.send(1, "t", 0)
	before := goleak.IgnoreCurrent()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := w.pool.Exec(ctx, relaySendSQL, 20, "t", i%8); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	b := &tape{}
	for range 5 {
		stop := w.start(w.relay(b, Config{BatchSize: 50}))
		from := w.cursor()
		livetest.Eventually(t, "it works", func() bool { return w.cursor() > from })
		stop() // checks the time
		if owner := relayAsk[string](w, "SELECT string_agg(owner, '') FROM daybook.segments WHERE consumer = 'outbox-relay'"); owner != "" {
			t.Errorf("the lease is still %q after the stop", owner)
		}
	}
	end()
	<-ended
	// The driver reads ahead on a connection of the pool that was slow to write to.
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead")); err != nil {
		t.Error(err)
	}
	w.start(w.relay(b, Config{}))
	w.sent()
	if got, want := checkRepeats(t, b.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// R-RL05: a publisher that ignores the end of its context cannot keep Run, nor move the cursor afterwards.
func TestRelayWithADeafPublisher(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b := &tape{before: func(string, received) error {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	}}
	w.send(3, "t", 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r := w.relay(b, Config{Lease: 500 * time.Millisecond})
	go func() { done <- r.Run(ctx) }()
	<-entered
	cancel()
	began := time.Now()
	select {
	case err := <-done:
		var late *ShutdownError
		if !errors.As(err, &late) || !strings.Contains(err.Error(), relayName) {
			t.Errorf("Run returns %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Run took %v", took)
		}
	case <-time.After(relayPatience):
		t.Fatal("Run does not return")
	}
	close(release)
	if c := w.cursor(); c != 0 {
		t.Errorf("the cursor is at %d", c)
	}
	w.start(w.relay(b, Config{}))
	w.sent()
	if n := checkRepeats(t, b.all()); n != 3 {
		t.Errorf("%d messages arrived", n)
	}
}

// The context of a message ends with the relay, so that a publisher can give up in time.
func TestRelayWithAnAttentivePublisher(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	entered := make(chan struct{})
	w.send(1, "t", 1)
	stop := w.start(w.relay(waitingBroker{entered}, Config{}))
	<-entered
	stop() // checks the time
	if owner := relayAsk[string](w, "SELECT string_agg(owner, '') FROM daybook.segments WHERE consumer = 'outbox-relay'"); owner != "" || w.cursor() != 0 {
		t.Errorf("the lease is %q and the cursor at %d", owner, w.cursor())
	}
}

// waitingBroker takes nothing, and gives up when the message's context ends.
type waitingBroker struct{ entered chan struct{} }

func (b waitingBroker) Publish(_ string, messages ...*message.Message) error {
	ctx := messages[0].Context()
	select {
	case b.entered <- struct{}{}:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return ctx.Err()
}

func (waitingBroker) Close() error { return nil }

func TestRelayRunTwice(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	r := w.relay(b, Config{})
	stop := w.start(r)
	w.send(1, "t", 0)
	w.sent()
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second Run gives %v", err)
	}
	stop()
	stop = w.start(r) // again, after it has ended
	w.send(1, "t", 0)
	w.sent()
	stop()
	if n := checkRepeats(t, b.all()); n != 2 {
		t.Errorf("%d messages arrived", n)
	}
}

func TestRelayConfig(t *testing.T) {
	t.Parallel()
	_, err := NewRelay(nil, nil, nil, Config{
		Lease: 1, BatchSize: -1, Lanes: -1, HeadEvery: -1, Retention: -1, CleanEvery: -1,
	})
	for _, want := range []string{
		"pool is nil", "rows is nil", "publisher is nil", "Config.Lease", "Config.BatchSize", "Config.Lanes", "Config.HeadEvery",
		"Config.Retention", "Config.CleanEvery",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestRelayWithoutTables(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	r := w.relay(&tape{}, Config{})
	var missing *NotInstalledError
	if lag, err := r.Lag(t.Context()); err != nil || lag.State != "not started" || !lag.Cursor.IsZero() {
		t.Errorf("the lag before any relay has run: %+v, %v", lag, err)
	}
	w.exec("DROP TABLE daybook.outbox_tails")
	if err := r.Run(t.Context()); !errors.As(err, &missing) || missing.Missing != "table outbox_tails" {
		t.Errorf("Run gives %v", err)
	}
}

// A history that changed under the program stops the relay, and Health says what to do.
func TestRelayStopsAtAnotherHistory(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	r := w.relay(b, Config{})
	w.start(r)
	w.send(1, "t", 0)
	w.sent()
	w.exec("UPDATE daybook.store SET epoch = gen_random_uuid()")
	livetest.Eventually(t, "it stops", func() bool {
		h := r.Health(t.Context())
		return !h.Ready && h.State == "stopped" && strings.Contains(h.Reason, "restart the program")
	})
}
