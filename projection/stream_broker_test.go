package projection

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox"
)

var errAway = errors.New("the broker is away")

// moody is a broker that is there or not. When it goes it ends the subscriptions that it has, or leaves them silent.
type moody struct {
	*streamWorld
	silent bool

	mu   sync.Mutex
	away bool
	ends []func()
}

func (m *moody) set(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
	if away && !m.silent {
		for _, end := range m.ends {
			end()
		}
		m.ends = nil
	}
}

func (m *moody) isAway() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away
}

func (m *moody) Publish(topic string, messages ...*message.Message) error {
	if m.isAway() {
		return errAway
	}
	return m.channel.Publish(topic, messages...)
}

func (m *moody) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil, errAway
	}
	ctx, end := context.WithCancel(ctx)
	m.ends = append(m.ends, end)
	return m.channel.Subscribe(ctx, topic)
}

func (m *moody) Close() error { return nil }

// A broker that is away costs latency and nothing else: from the start, or from the middle on, loudly or silently.
func TestStreamBrokerAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fromTheStart, silent bool }{
		"from the start": {true, false}, "in the middle": {false, false}, "silently": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, v := strict("away"), counts("away_view")
			w := newStreamWorld(t, p, v)
			w.expect("tests", p, v)
			m := &moody{streamWorld: w, away: c.fromTheStart, silent: c.silent}
			r := w.relay(m, outbox.Config{})
			w.run(r)
			var lines livetest.Lines
			s := w.subscription(m, outbox.SubscriptionConfig{Silence: 150 * time.Millisecond, Logger: lines.Logger()})
			f := w.traffic()
			if !c.fromTheStart {
				w.follow(s, Config{}, p, v)
				f.append(30)
				f.applied(p, v)
				m.set(true)
			} else {
				w.run(w.reader(s, Config{}, p, v))
			}
			for range 3 {
				f.append(30)
				f.applied(p, v)
			}
			livetest.Eventually(t, "the relay waits", func() bool { return !r.Health(t.Context()).Ready })
			if !c.silent {
				livetest.Eventually(t, "the subscription says that the broker is away", func() bool {
					h := s.Health(t.Context())
					return !h.Ready && h.State == "waiting" && strings.Contains(h.Reason, topicAll) && strings.Contains(h.Reason, errAway.Error())
				})
			}
			m.set(false)
			livetest.Eventually(t, "all is well", func() bool { return r.Health(t.Context()).Ready && s.Health(t.Context()).Ready })
			f.append(30)
			f.applied(p, v)
			want := map[string]int{"subscription following": 1, "subscription waiting": 1}
			switch {
			case c.silent:
				want["subscription waiting"] = 0
			case !c.fromTheStart:
				want["subscription following"] = 2
			}
			for line, n := range want {
				if got := strings.Count(lines.String(), line); got != n {
					t.Errorf("%q is logged %d times, want %d:\n%s", line, got, n, lines.String())
				}
			}
		})
	}
}

// closing ends each subscription after a few messages, and refuses every second one.
type closing struct {
	*streamWorld
	after    int
	attempts atomic.Int64
}

func (c *closing) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if c.attempts.Add(1)%2 == 0 {
		return nil, errAway
	}
	ctx, end := context.WithCancel(ctx)
	in, err := c.channel.Subscribe(ctx, topic)
	if err != nil {
		end()
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		defer end()
		n := 0
		for msg := range in {
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
			if n++; n == c.after {
				return
			}
		}
	}()
	return out, nil
}

func (*closing) Close() error { return nil }

// A subscriber that closes its channel again and again is subscribed to again.
func TestStreamSubscriberCloses(t *testing.T) {
	t.Parallel()
	p, v := strict("closing"), counts("closing_view")
	w := newStreamWorld(t, p, v)
	w.run(w.relay(w.channel, outbox.Config{}))
	c := &closing{streamWorld: w, after: 5}
	s := w.subscription(c, outbox.SubscriptionConfig{Silence: 150 * time.Millisecond})
	w.follow(s, Config{}, p, v)
	f := w.traffic()
	livetest.Eventually(t, "it has subscribed ten times", func() bool {
		f.append(3)
		<-time.After(10 * time.Millisecond)
		return c.attempts.Load() >= 10
	})
	f.applied(p, v)
}

// deaf never ends a subscription by itself, whatever its context says.
type deaf chan *message.Message

func (d deaf) Subscribe(context.Context, string) (<-chan *message.Message, error) { return d, nil }

func (deaf) Close() error { return nil }

// A subscriber that ignores the end of its context keeps nobody: the runner ends, and its lease is free.
func TestStreamSubscriberIgnoresTheEnd(t *testing.T) {
	t.Parallel()
	p, v := strict("deaf"), counts("deaf_view")
	w := newStreamWorld(t, p, v)
	d := make(deaf)
	defer close(d)
	s := w.subscription(d, outbox.SubscriptionConfig{Silence: 100 * time.Millisecond})
	stop := w.follow(s, Config{}, p, v)
	f := w.traffic()
	f.append(20)
	f.applied(p, v)
	stop() // checks the time
	if owner := ask[string](w.world, "SELECT string_agg(owner, '') FROM daybook.segments WHERE consumer = 'deaf'"); owner != "" {
		t.Errorf("the lease is still %q", owner)
	}
	if h := s.Health(t.Context()); h.State != "standby" {
		t.Errorf("the subscription is %+v", h)
	}
}
