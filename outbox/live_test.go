package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/eventstore"
)

// listener runs Live until stop is called, and remembers what it got.
type listener struct {
	t      *testing.T
	stop   context.CancelFunc
	ended  chan error
	mu     sync.Mutex
	got    []int64
	handle func(Received) error
}

// subscribed says when Subscribe has returned, from when on nothing that is published is missed.
type subscribed struct {
	message.Subscriber
	done chan struct{}
}

func (s subscribed) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	defer close(s.done)
	return s.Subscriber.Subscribe(ctx, topic)
}

func listen(t *testing.T, sub message.Subscriber, l *listener) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l.t, l.stop, l.ended = t, stop, make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		l.ended <- Live(ctx, subscribed{sub, ready}, "orders", func(_ context.Context, r Received) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.got = append(l.got, int64(r.Version))
			if l.handle != nil {
				return l.handle(r)
			}
			return nil
		})
	}()
	within(t, ready)
}

func (l *listener) end() {
	l.t.Helper()
	l.stop()
	if err := within(l.t, l.ended); err != nil {
		l.t.Errorf("Live ended with %v", err)
	}
}

func (l *listener) saw(want ...int64) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.got, want) {
		l.t.Errorf("got %v, want %v", l.got, want)
	}
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("not within patience")
		panic("unreachable")
	}
}

// orders publishes order after order. With the channel below Publish returns when every listener has acknowledged.
type orders struct {
	t       *testing.T
	channel *gochannel.GoChannel
	encoder *encoder
	last    int64
}

func newOrders(t *testing.T) *orders {
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	t.Cleanup(func() {
		if err := channel.Close(); err != nil {
			t.Error(err)
		}
	})
	return &orders{t: t, channel: channel, encoder: newEncoder(testEpoch, "daybook")}
}

func (o *orders) publish(numbers ...int64) {
	o.t.Helper()
	for _, n := range numbers {
		m := ordinary()
		m.Topic, m.Version, m.Position = "orders", eventstore.Version(n), at(n)
		o.send(o.encoder.encode(m, at(o.last)))
		o.last = n
	}
}

func (o *orders) send(msg *message.Message) {
	o.t.Helper()
	if err := o.channel.Publish("orders", msg); err != nil {
		o.t.Fatal(err)
	}
}

// Eight orders; the search listener is down for 3 to 6. It does not get them later, and the other one notices nothing.
func TestLiveIsLossy(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	search, mail := &listener{}, &listener{}
	listen(t, o.channel, search)
	listen(t, o.channel, mail)
	o.publish(1, 2)
	search.end()
	o.publish(3, 4, 5, 6)
	listen(t, o.channel, search)
	o.publish(7, 8)
	search.end()
	mail.end()
	search.saw(1, 2, 7, 8)
	mail.saw(1, 2, 3, 4, 5, 6, 7, 8)
}

func TestLiveHandsOverWhatWasPublished(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	var got []Received
	l := &listener{handle: func(r Received) error { got = append(got, r); return nil }}
	listen(t, o.channel, l)
	o.publish(4, 9)
	o.send(o.encoder.encodeHead("orders", 17, at(20), at(9))) // tells a listener nothing
	late := ordinary()
	late.Topic, late.Version, late.Position = "orders", 10, at(10)
	o.send(o.encoder.encodeSkip(late, at(9))) // nor does a marker
	o.publish(11)
	o.send(o.encoder.encodeSkip(late, at(9)))
	o.send(o.encoder.encodeRedriven(late, at(9)))
	o.send(o.encoder.encodeDiscarded(late, at(9)))
	l.end()
	l.saw(4, 9, 11, 10)
	if r := got[3]; !r.Redriven || r.Kind != KindEvent || got[2].Redriven {
		t.Errorf("redriven is\n%+v", r)
	}
	m := ordinary()
	m.Topic, m.Version, m.Position = "orders", 9, at(9)
	if r := got[1]; r.Epoch != testEpoch || r.Previous != at(4) || !r.IsEvent() || fmt.Sprint(r.OutboxMessage) != fmt.Sprint(m) {
		t.Errorf("got\n%+v\nwant\n%+v", r, m)
	}
}

// A message that failed is acknowledged: listening again goes on with the next one.
func TestLiveEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	cause := errors.New("browser gone")
	l := &listener{handle: func(r Received) error {
		if r.Version == 2 {
			return cause
		}
		return nil
	}}
	listen(t, o.channel, l)
	o.publish(1, 2)
	if err := within(t, l.ended); !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), `outbox: listen to topic "orders": `) {
		t.Errorf("Live ended with %v", err)
	}
	l.stop()
	listen(t, o.channel, l)
	o.publish(3)
	o.send(message.NewMessage("a stranger's", nil))
	var he *HeaderError
	if err := within(t, l.ended); !errors.As(err, &he) || he.Message != "a stranger's" {
		t.Errorf("Live ended with %v", err)
	}
	l.stop()
	l.saw(1, 2, 3)
}

func TestLiveEndsWithTheSubscriber(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	l := &listener{}
	listen(t, o.channel, l)
	if err := o.channel.Close(); err != nil {
		t.Fatal(err)
	}
	if err := within(t, l.ended); !errors.Is(err, ErrSubscriberClosed) {
		t.Errorf("Live ended with %v", err)
	}
	l.stop()
	handle := func(context.Context, Received) error { return nil }
	if err := Live(t.Context(), o.channel, "orders", handle); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("listening at a closed subscriber: %v", err)
	}
}

// A handler that watches its context ends Live as quickly, and as well, as one that returns by itself.
func TestLiveEndsWithinAHandler(t *testing.T) {
	t.Parallel()
	o := newOrders(t)
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Live(ctx, subscribed{o.channel, ready}, "orders", func(ctx context.Context, _ Received) error {
			cancel()
			<-ctx.Done()
			return fmt.Errorf("push: %w", ctx.Err())
		})
	}()
	within(t, ready)
	o.publish(1)
	if err := within(t, ended); err != nil {
		t.Errorf("Live ended with %v", err)
	}
}

func TestLiveRefuses(t *testing.T) {
	t.Parallel()
	if err := Live(t.Context(), nil, "orders", func(context.Context, Received) error { return nil }); err == nil {
		t.Error("no subscriber is refused")
	}
	if err := Live(t.Context(), newOrders(t).channel, "orders", nil); err == nil {
		t.Error("no handler is refused")
	}
}
