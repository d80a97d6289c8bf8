package projection

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox"
)

// mischief is a broker that takes every message, loses a tenth, delivers a tenth twice, and all of them in disorder.
type mischief struct {
	message.Publisher
	mu                    sync.Mutex
	random                *rand.Rand
	late                  []*message.Message
	lost, doubled, passed int
}

func (m *mischief) Publish(topic string, messages ...*message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range messages {
		switch m.random.IntN(10) {
		case 0:
			m.lost++
			continue
		case 1:
			m.doubled++
			m.late = append(m.late, msg.Copy())
		}
		m.passed++
		m.late = append(m.late, msg)
	}
	m.random.Shuffle(len(m.late), func(i, j int) { m.late[i], m.late[j] = m.late[j], m.late[i] })
	for len(m.late) > 8 {
		msg := m.late[0]
		m.late = m.late[1:]
		if err := m.Publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// Whatever the broker does, rows are exact, and no projection begins anew or stops.
func TestStreamHostileBroker(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(2, testscale.N(20))) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p, v := strict("hostile"), counts("hostile_view")
			w := newStreamWorld(t, p, v)
			m := &mischief{Publisher: w.channel, random: rand.New(rand.NewPCG(seed, 1))}
			w.run(w.relay(m, outbox.Config{BatchSize: 50}))
			var lines livetest.Lines
			s := w.subscription(w.channel, outbox.SubscriptionConfig{Silence: 300 * time.Millisecond, Buffer: 40})
			stop := w.follow(s, Config{OnFailure: Stop, Attempts: 1, BatchSize: 20, Logger: lines.Logger()}, p, v)
			f := w.traffic()
			f.append(max(testscale.N(500), 200))
			f.applied(p, v)
			if n := ask[int](w.world, "SELECT max(epoch)::int FROM daybook.segments"); n != 1 {
				t.Errorf("a lease was taken %d times", n)
			}
			stop()
			if got := strings.Count(lines.String(), "\n"); got != 4 { // running and standby of each
				t.Errorf("%d log lines:\n%s", got, lines.String())
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			stats := s.Stats()
			t.Logf("%d lost, %d doubled of %d; %+v", m.lost, m.doubled, m.passed, stats)
			if m.lost == 0 || m.doubled == 0 || stats.Filled == 0 || stats.Repeated == 0 {
				t.Error("the broker was not hostile")
			}
		})
	}
}
