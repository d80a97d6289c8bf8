package commands

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// published is the topic of commands over a broker within the process, with a relay that publishes on it.
func (w *world) published() Source {
	w.t.Helper()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	relay, err := outbox.NewRelay(w.pool, w.store.Outbox(), channel, outbox.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := relay.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := channel.Close(); err != nil {
			w.t.Error(err)
		}
	})
	s, err := outbox.NewSubscription(w.store.Outbox(), channel, outbox.SubscriptionConfig{Topic: Topic, Group: "broker"})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A program goes from one source to the other and back while commands flow: each takes effect once, and in order.
func TestSwitchingSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newSender(w)
	published := w.published()
	stopped := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		pace := time.NewTicker(5 * time.Millisecond) // all of them are looked at in the end
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-stopped:
				return
			case <-pace.C:
				s.put(fmt.Sprint(n % 7))
			}
		}
	})
	carried := func() int {
		return ask[int](w, "SELECT count(*) FROM daybook.operations WHERE finished_at IS NOT NULL")
	}
	for turn := range 6 {
		source := published
		if turn%2 == 0 {
			source = Local(w.store.Outbox())
		}
		before := carried()
		stop := w.start(w.dispatcher(source, Config{BatchSize: 10}))
		livetest.Eventually(t, "commands are carried out", func() bool { return carried() > before+20 })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	close(stopped)
	sending.Wait()
	if got := ask[string](w, "SELECT source FROM daybook.consumers WHERE consumer = 'commands'"); got != "topic commands" {
		t.Errorf("the consumer follows %q", got)
	}
	if stats := published.(*outbox.Subscription).Stats(); stats.Received == 0 {
		t.Error("nothing came through the broker")
	}
	w.start(w.dispatcher(published, Config{}))
	s.allDone()
}

// Sources that would lose commands are refused.
func TestSourcesThatWouldLoseCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, cfg := range map[string]outbox.SubscriptionConfig{
		"another topic":   {Topic: "orders", Group: "g"},
		"without CatchUp": {Topic: Topic, Group: "g", CatchUp: w.store.Log()},
		"StartAt":         {Topic: Topic, Group: "g", StartAt: outbox.AtHead},
	} {
		s, err := outbox.NewDirect(w.store.Outbox(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewDispatcher(w.pool, s, w.bus, Config{}); err == nil || !strings.Contains(err.Error(), "the source") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// Of several dispatchers, of whichever sources, one works; when it goes another takes over at once, and when it falls
// silent, within its lease.
func TestOneDispatcherWorks(t *testing.T) {
	t.Parallel()
	const lease = 600 * time.Millisecond
	w := newWorld(t)
	s := newSender(w)
	var most, now atomic.Int32
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-time.After(time.Millisecond)
			now.Add(-1)
		}
	})
	published := w.published()
	var all []*Dispatcher
	var stops []func() error
	for n := range 4 {
		source := published
		if n%2 == 0 {
			source = Local(w.store.Outbox())
		}
		d := w.dispatcher(source, Config{Lease: lease, Workers: 1})
		all, stops = append(all, d), append(stops, w.start(d))
	}
	for n := range 100 {
		s.put(fmt.Sprint(n % 10))
	}
	s.allDone()
	if n := most.Load(); n != 1 {
		t.Errorf("%d commands were carried out at once by dispatchers with one worker each", n)
	}
	working := func() (at int) {
		at = -1
		for n, d := range all {
			h := d.Health(t.Context())
			switch h.State {
			case string(consumer.Running):
				at = n
			case string(consumer.Standby), "not running":
			default:
				t.Errorf("dispatcher %d is %+v", n, h)
			}
		}
		return at
	}
	first := working()
	if first < 0 {
		t.Fatal("none works")
	}
	if err := stops[first](); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.put("0")
	s.allDone()
	if took := time.Since(began); took > lease+2*time.Second {
		t.Errorf("the takeover took %v", took)
	}
	if next := working(); next == first || next < 0 {
		t.Errorf("dispatcher %d works", next)
	}
}

// A dispatcher runs once at a time, and says so.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.dispatcher(nil, Config{})
	if h := d.Health(t.Context()); h.Ready || h.State != "not running" {
		t.Errorf("health before Run is %+v", h)
	}
	stop := w.start(d)
	w.ends(w.send(add{"a", 1}), bus.OperationDone)
	if err := d.Run(t.Context()); err == nil {
		t.Error("it ran twice at once")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	w.start(d)
	w.ends(w.send(add{"a", 2}), bus.OperationDone)
	w.wantNumbers("a", 2)
}
