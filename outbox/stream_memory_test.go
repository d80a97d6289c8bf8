package outbox

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/livetest"
)

// timedPublisher knows how long the broker was held by one message.
type timedPublisher struct {
	message.Publisher
	longest atomic.Int64
}

func (p *timedPublisher) Publish(topic string, messages ...*message.Message) error {
	began := time.Now()
	err := p.Publisher.Publish(topic, messages...)
	for took := int64(time.Since(began)); ; {
		if was := p.longest.Load(); took <= was || p.longest.CompareAndSwap(was, took) {
			return err
		}
	}
}

// drain reads a feed until it has had n events, and calls look now and then.
func drain(t *testing.T, f consumer.Feed, n int, look func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	last := map[int]eventstore.Position{}
	for got, batches := 0, 0; got < n; batches++ {
		batch, err := f.Next(ctx, time.Time{})
		if err != nil {
			t.Fatalf("after %d of %d: %v", got, n, err)
		}
		for _, e := range batch.Events {
			if !e.Position.After(last[e.Partition]) {
				t.Fatalf("partition %d: %s comes after %s", e.Partition, e.Position, last[e.Partition])
			}
			last[e.Partition] = e.Position
		}
		if got += len(batch.Events); got > n {
			t.Fatalf("%d events, want %d", got, n)
		}
		if batches%20 == 0 {
			look()
		}
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}

// However long the backlog is, a consumer that reads it, while the relay publishes it, has two pages and a buffer in
// memory. Not parallel: it measures the heap.
func TestStreamMemoryIsFlat(t *testing.T) {
	w := newRelayWorld(t)
	n := manyMessages()
	for left := n; left > 0; left -= 25_000 {
		w.send(min(left, 25_000), "t", left%64)
	}
	w.exec("UPDATE daybook.outbox SET data = data || convert_to(repeat('x', 300), 'UTF8') WHERE first_position % 2 = 0")
	w.follow("reader", 0) // the outbox waits for it
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	defer func() { _ = channel.Close() }()
	s, err := NewSubscription(w.store.Outbox(), channel, SubscriptionConfig{Topic: "t", Group: "tests", Buffer: 500})
	if err != nil {
		t.Fatal(err)
	}
	base := heap()
	f := s.follow(t.Context(), consumer.Follower{Ref: consumer.Ref{Store: "daybook", Name: "reader", Version: 7}, Limit: 500})
	defer f.Close()
	w.start(w.relay(channel, Config{}))
	most, held := 0, 0
	drain(t, f, n, func() {
		most = max(most, heap()-base)
		s.mu.Lock()
		held = max(held, s.receiver.buffer.held(), len(f.held.items))
		s.mu.Unlock()
	})
	t.Logf("%d messages: at most %d MiB beyond the %d MiB before, %d in the buffer, %+v", n, most, base, held, s.Stats())
	if most > 20 || held > 500 {
		t.Errorf("memory grew by %d MiB, and %d messages waited", most, held)
	}
}

// A consumer that stands still holds the broker for about a second, once, and nobody else on the same channel after
// that. When it goes on, it finds what passed by.
func TestStreamConsumerThatStandsStill(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	const n = 2000
	w.follow("still", 0)
	w.follow("quick", 0)
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	t.Cleanup(func() { _ = channel.Close() })
	feeds := map[string]*feed{}
	for _, name := range []string{"still", "quick"} {
		s, err := NewSubscription(w.store.Outbox(), channel, SubscriptionConfig{Topic: "t", Group: name, Buffer: 100, Silence: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		f := s.follow(t.Context(), consumer.Follower{Ref: consumer.Ref{Store: "daybook", Name: name, Version: 7}, Limit: 50})
		t.Cleanup(f.Close)
		feeds[name] = f
		if _, err := f.Next(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, name+" follows", func() bool { return s.Health(t.Context()).State == "following" })
	}
	p := &timedPublisher{Publisher: channel}
	w.start(w.relay(p, Config{BatchSize: 100}))
	began := time.Now()
	w.send(n, "t", 3)
	drain(t, feeds["quick"], n, func() {})
	took := time.Since(began)
	t.Logf("the other took %v; the longest that a message was held is %v", took, time.Duration(p.longest.Load()))
	if took < heldBack {
		t.Errorf("the broker was not held back: %v", took)
	}
	if took > heldBack+15*time.Second || time.Duration(p.longest.Load()) > 2*heldBack {
		t.Errorf("the other took %v, and a message was held for %v", took, time.Duration(p.longest.Load()))
	}
	if stats := feeds["quick"].sub.Stats(); stats.Filled > 0 {
		t.Errorf("the other missed something: %+v", stats)
	}
	w.send(10, "t", 3) // shows the hole
	drain(t, feeds["still"], n+10, func() {})
}
