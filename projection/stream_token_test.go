package projection

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// gone counts removals, which are on both topics.
func gone(name string) View[string, count] {
	return View[string, count]{Name: name, Version: 1, Events: testEvents, Folds: []Fold[string, count]{On(ByStream, count.removed)}}
}

// R-RW02: a token of an event that the projection never sees is met: by heads, which the relay sends, or, when the
// broker is away, by asking the store.
func TestStreamTokenOfAnEventNotOnTheTopic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silence time.Duration
		relay   bool
	}{"heads": {far, true}, "silence": {200 * time.Millisecond, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := gone("gone")
			w := newStreamWorld(t, v)
			if c.relay {
				w.run(w.relay(w.channel, outbox.Config{}))
			}
			s := w.subscription(w.channel, outbox.SubscriptionConfig{Topic: topicSome, Silence: c.silence})
			w.follow(s, Config{}, v)
			for n := range int64(5) { // it has never handled any event
				began := time.Now()
				w.wait(w.append("s", added{n}), v)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the wait took %v", took)
				}
			}
			if n := len(rowsOf(w.world, v)); n != 0 {
				t.Errorf("%d rows", n)
			}
			w.wait(w.append("s", removed{7}, added{1}), v)
			if diff := rowsOf(w.world, v)["s"]; diff != (count{Sum: -7, Events: 1, Last: 6}) {
				t.Errorf("the row is %+v", diff)
			}
			if stats := s.Stats(); c.relay && (stats.Silences > 0 || stats.Filled > 0) {
				t.Errorf("the broker did not do: %+v", stats)
			}
			w.wait(eventstore.Token{}, v)
		})
	}
}

// R-RW03: a handler that waits for its own projection is told so at once, and does not block it.
func TestStreamWaitInsideAHandler(t *testing.T) {
	t.Parallel()
	var w *streamWorld
	var p Projection
	var token atomic.Pointer[eventstore.Token]
	told := make(chan error, 10)
	p = logged("inside", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 2 {
			told <- NewWaiter(w.pool, WaiterConfig{}).WaitFor(ctx, *token.Load(), p)
		}
		return nil
	})
	w = newStreamWorld(t, p)
	w.run(w.relay(w.channel, outbox.Config{}))
	w.follow(w.subscription(w.channel, outbox.SubscriptionConfig{Silence: far}), Config{}, p)
	first := w.append("s", added{1})
	token.Store(&first)
	w.wait(first, p)
	w.wait(w.append("s", added{2}), p)
	if err := <-told; !errors.Is(err, ErrInsideHandler) {
		t.Errorf("the handler is told %v", err)
	}
}

// Everything ends within two seconds under load, and leaves no goroutine. Not parallel: it counts.
func TestStreamShutdown(t *testing.T) {
	watching := logged("watching", func(ctx context.Context, _ pgx.Tx, _ Event[added]) error {
		timer := time.NewTimer(10 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	deafTo := logged("deaf_handler", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
		return nil
	})
	v := counts("ended_view")
	w := newStreamWorld(t, watching, deafTo, v)
	w.append("s", added{1}) // warms up what lives as long as the pool
	before := goleak.IgnoreCurrent()
	ctx, endLoad := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		events := make([]any, 20)
		for i := range events {
			events[i] = added{1}
		}
		for ctx.Err() == nil {
			if _, err := w.store.Append(ctx, eventstore.To(stream("s"), eventstore.AnyVersion, encode(t, events...)...)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	for range 3 {
		stopRelay := w.run(w.relay(w.channel, outbox.Config{BatchSize: 20}))
		s := w.subscription(w.channel, outbox.SubscriptionConfig{Buffer: 50})
		stop := w.follow(s, Config{BatchSize: 50}, watching, v)
		was := w.floorOf(v.Name)
		livetest.Eventually(t, "it works", func() bool { return w.floorOf(v.Name) > was && s.Stats().Received > 0 })
		stop() // checks the time, under a relay that publishes
		stopRelay()
	}

	stopRelay := w.run(w.relay(w.channel, outbox.Config{}))
	running, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	r := w.reader(w.subscription(w.channel, outbox.SubscriptionConfig{CatchUp: w.store.Log()}), Config{}, deafTo)
	go func() { done <- r.Run(running) }()
	select {
	case <-entered:
	case <-time.After(patience / 3):
		t.Fatalf("the handler is not reached: %+v", r.Health(t.Context()))
	}
	end()
	began := time.Now()
	select {
	case err := <-done:
		if late := mustBe[*ShutdownError](t, err); len(late.Consumers) != 1 || time.Since(began) > 2500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), late)
		}
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
	close(release)
	stopRelay()
	endLoad()
	<-ended
	if err := goleak.Find(before, readerOfPgx); err != nil {
		t.Error(err)
	}
	if n := len(values(w.world, "deaf_handler")); n != 0 {
		t.Errorf("what did not end in time has committed %d rows", n)
	}
}
