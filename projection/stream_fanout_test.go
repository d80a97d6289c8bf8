package projection

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

// subscribed tells when somebody has subscribed.
type subscribed struct {
	message.Subscriber
	told chan struct{}
}

func (s subscribed) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	messages, err := s.Subscriber.Subscribe(ctx, topic)
	s.told <- struct{}{}
	return messages, err
}

// listener writes down what a live listener gets.
type listener struct {
	mu  sync.Mutex
	got []int64
}

func (l *listener) heard() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64(nil), l.got...)
}

// listen returns when the listener is reached by the broker.
func (l *listener) listen(w *streamWorld) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	told, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- outbox.Live(ctx, subscribed{w.channel, told}, topicAll, func(_ context.Context, r outbox.Received) error {
			payload, err := testEvents.Decode(r.RecordedEvent)
			l.mu.Lock()
			defer l.mu.Unlock()
			if err == nil {
				l.got = append(l.got, payload.(added).N)
			}
			return err
		})
	}()
	<-told
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// backlog is how many messages of the topic a group has not passed.
func (w *streamWorld) backlog(group string) int {
	w.t.Helper()
	return ask[int](w.world, `
SELECT count(*)::int FROM daybook.outbox o
  JOIN daybook.subscribers s ON s.topic = o.topic AND s.group_name = $1
  JOIN daybook.segments g ON g.consumer = s.consumer AND g.version = s.version
  LEFT JOIN daybook.checkpoints c ON c.consumer = s.consumer AND c.version = s.version AND c.partition = o.partition
 WHERE o.last_position > greatest(g.floor, coalesce(c.applied, 0))`, group)
}

// Eight orders and three groups, each with its own progress; one of them, and a live listener, are down for orders 3 to
// 6. The group gets them afterwards, the listener does not, and nobody else notices anything.
func TestStreamFanOut(t *testing.T) {
	t.Parallel()
	shipping, billing, search := logged("shipping"), logged("billing"), logged("search")
	w := newStreamWorld(t, shipping, billing, search)
	w.run(w.relay(w.channel, outbox.Config{}))
	groups := map[string]*outbox.Subscription{}
	begin := func(p Projection) (stop func()) {
		groups[p.Name] = w.subscription(w.channel, outbox.SubscriptionConfig{Group: p.Name, Silence: far})
		return w.follow(groups[p.Name], Config{}, p)
	}
	begin(shipping)
	begin(billing)
	stopSearch := begin(search)
	var live listener
	stopLive := live.listen(w)
	peak := 0
	var all eventstore.Token // of the orders so far, which are in several partitions
	for order := int64(1); order <= 8; order++ {
		switch order {
		case 3:
			livetest.Eventually(t, "the listener has heard both", func() bool { return len(live.heard()) == 2 })
			stopSearch()
			stopLive()
		case 7:
			stopSearch = begin(search)
			stopLive = live.listen(w)
		}
		token := w.append(fmt.Sprint("order", order), added{order})
		w.wait(token, shipping, billing) // before the next order, and brought by the broker
		var err error
		if all, err = all.Merge(token); err != nil {
			t.Fatal(err)
		}
		if order < 3 || order > 6 {
			w.wait(all, search)
		}
		left := w.backlog("search")
		peak = max(peak, left)
		if want := map[int64]int{3: 1, 4: 2, 5: 3, 6: 4}[order]; left != want {
			t.Errorf("after order %d search has a backlog of %d, want %d", order, left, want)
		}
		if others := w.backlog("shipping") + w.backlog("billing"); others != 0 {
			t.Errorf("after order %d the others have a backlog of %d", order, others)
		}
	}
	livetest.Eventually(t, "the listener has heard the last", func() bool { h := live.heard(); return len(h) > 0 && h[len(h)-1] == 8 })
	stopLive()
	if peak != 4 {
		t.Errorf("the backlog of search peaks at %d, want 4", peak)
	}
	for _, p := range []Projection{shipping, billing, search} {
		if diff := gocmp.Diff(oneTo(8), values(w.world, p.Name)); diff != "" {
			t.Errorf("%s: %s", p.Name, diff)
		}
	}
	if diff := gocmp.Diff([]int64{1, 2, 7, 8}, live.heard()); diff != "" {
		t.Errorf("live: %s", diff)
	}
	for _, name := range []string{"shipping", "billing"} {
		if s := groups[name].Stats(); s.Filled != 0 || s.Silences != 0 || s.Refused != 0 || s.Overruns != 0 {
			t.Errorf("%s noticed something: %+v", name, s)
		}
	}
}
