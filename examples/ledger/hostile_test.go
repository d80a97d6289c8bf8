package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/internal/testscale"
)

// hostileSeed puts, in the program that this test binary is, a hostile broker before the channel.
const hostileSeed = "LEDGER_TEST_HOSTILE"

// window is how many messages are held back, to be given out in any order.
const window = 12

// hostile confirms every message. It loses a tenth of them, gives out a tenth twice, and all of them in disorder.
type hostile struct {
	message.Publisher
	mu   sync.Mutex
	rand *rand.Rand
	held []letter

	lost, doubled, overtaken, given int
}

// letter is a message on its way.
type letter struct {
	topic string
	msg   *message.Message
	nth   int
}

// behindHostileBroker returns what says at the end how hostile it was.
func (p *program) behindHostileBroker(seed string) (report func()) {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return func() {}
	}
	h := &hostile{rand: rand.New(rand.NewPCG(n, 0))}
	p.broker = func(b broker) broker {
		h.Publisher = b.Publisher
		return broker{h, b.Subscriber}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		fmt.Fprintf(os.Stderr, "hostile: %d lost, %d doubled, %d overtaken, %d given\n", h.lost, h.doubled, h.overtaken, h.given)
	}
}

func (h *hostile) Publish(topic string, messages ...*message.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, msg := range messages {
		l := letter{topic, msg, h.lost + h.given + len(h.held)}
		switch chance := h.rand.Float64(); {
		case chance < 0.1:
			h.lost++
			continue
		case chance < 0.2:
			h.doubled++
			h.held = append(h.held, l)
		}
		h.held = append(h.held, l)
	}
	for len(h.held) > window {
		i := h.rand.IntN(len(h.held))
		l := h.held[i]
		h.held[i] = h.held[len(h.held)-1]
		h.held = h.held[:len(h.held)-1]
		for _, other := range h.held {
			if other.nth < l.nth {
				h.overtaken++
				break
			}
		}
		h.given++
		// A copy: acknowledging is once for a message, and giving it out again is not.
		if err := h.Publisher.Publish(l.topic, l.msg.Copy()); err != nil {
			return err
		}
	}
	return nil
}

// Whatever the broker does, each entry counts once, and nothing gives up its work.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	path := longJournal(t)
	for seed := range testscale.N(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, pool := newShell(t)
			armed := shell{url: s.url, env: []string{fmt.Sprintf("%s=%d", hostileSeed, seed)}}
			r := armed.run(t, "import", path)
			if r.code != 0 {
				t.Fatalf("the import ended with %d:\n%s", r.code, r.notes)
			}
			var lost, doubled, overtaken, given int
			_, last, _ := strings.Cut(r.notes, "hostile: ")
			if n, err := fmt.Sscanf(last, "%d lost, %d doubled, %d overtaken, %d given", &lost, &doubled, &overtaken, &given); n != 4 {
				t.Fatalf("%v in\n%s", err, r.notes)
			}
			t.Logf("%d lost, %d doubled, %d overtaken, %d given", lost, doubled, overtaken, given)
			if sent := lost + given - doubled; lost < sent/20 || doubled < sent/20 || overtaken < given/4 || sent < eventsOf(t, path)/2 {
				t.Errorf("the broker was not hostile: %d lost, %d doubled, %d overtaken, %d given", lost, doubled, overtaken, given)
			}
			var restarts int
			const leases = "SELECT coalesce(sum(epoch - 1), -1) FROM daybook.segments JOIN daybook.consumers USING (consumer, version) WHERE state = 'running'"
			if err := pool.QueryRow(t.Context(), leases).Scan(&restarts); err != nil || restarts != 0 {
				t.Errorf("leases were taken %d times more than once: %v\n%s", restarts, err, r.notes)
			}
			audit(t, s, pool, path)
		})
	}
}
