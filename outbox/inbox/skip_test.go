package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// held counts the places that are kept for messages that their relay has set aside.
func (w *world) awaited() int {
	return ask[int](w, "SELECT count(*)::int FROM daybook.held WHERE topic = '' AND NOT present")
}

// The relay has set one message aside, and what follows of its key: everybody else of the partition goes on.
func TestARefusedMessageHoldsItsKeyAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inbox(w.config(), write)
	stop := w.start(in)
	refused := w.pub.several(3, func(int) int { return 1 })
	others := w.pub.several(20, func(i int) int { return 1 + 8*(1+i%3) }) // of the same partition
	for _, m := range refused {
		w.broker.send(m.skip())
	}
	w.broker.send(events(others)...)
	w.applied(len(others))
	w.drained()
	if n := w.awaited(); n != 3 {
		t.Errorf("%d places are kept, want 3", n)
	}
	joins := w.pub.next(1) // an ordinary message of the key, by a relay that does not know
	w.broker.send(joins.event())
	w.drained()
	stop()
	w.start(w.inbox(w.config(), write)) // the next owner knows what waits
	for _, m := range refused[:2] {
		w.broker.send(m.skip(), m.redriven(), m.redriven(), m.skip())
	}
	w.applied(len(others) + 2)
	w.drained()
	if n := ask[int](w, "SELECT count(*)::int FROM applied WHERE position = $1", joins.position); n != 0 {
		t.Error("an ordinary message went by one that was set aside")
	}
	w.broker.send(refused[2].redriven())
	w.exact(append(append(refused, joins), others...))
	w.broker.send(refused[0].skip(), refused[1].redriven(), joins.event())
	w.drained()
	w.exact(append(append(refused, joins), others...))
}

// A message that somebody has discarded at the relay never comes.
func TestADiscardedMessageIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.inbox(w.config(), write))
	refused := w.pub.several(3, func(int) int { return 1 })
	for _, m := range refused {
		w.broker.send(m.skip())
	}
	w.drained()
	w.broker.send(refused[0].skip(), refused[0].discarded())
	w.broker.send(refused[1].redriven(), refused[2].redriven(), refused[0].discarded())
	w.exact(refused[1:])
	lone := w.pub.next(2)
	w.broker.send(lone.skip())
	w.drained()
	w.broker.send(lone.discarded())
	w.exact(refused[1:])
}

// A redriven message whose marker was lost stands for itself, when it has waited long enough.
func TestALostMarker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.inbox(w.config(), write))
	a, b, c := w.pub.next(1), w.pub.next(1), w.pub.next(9)
	w.broker.send(a.redriven(), b.discarded(), c.event())
	w.exact([]*sent{a, c})
	w.drained()
}

// What the handler refuses and what the relay has set aside of one key keep one order.
func TestAFailureBeforeAndBehindAMarker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.pub.several(6, func(int) int { return 1 })
	var broken atomic.Bool
	broken.Store(true)
	cfg := w.config()
	cfg.Attempts = 1000
	w.start(w.inbox(cfg, func(ctx context.Context, tx pgx.Tx, m Message) error {
		if p := m.Position.Ordinal(); broken.Load() && (p == all[0].position || p == all[4].position) {
			return errors.New("no such article")
		}
		return write(ctx, tx, m)
	}))
	w.broker.send(all[0].event(), all[1].event(), all[2].skip(), all[3].skip(), all[4].event(), all[5].event())
	w.drained()
	w.broker.send(all[3].redriven())
	w.drained()
	broken.Store(false)
	w.applied(2)
	broken.Store(true)
	w.broker.send(all[2].redriven())
	w.applied(4)
	w.drained()
	broken.Store(false)
	w.exact(all)
}

// Redrives that are repeated, shuffled among everything else, and a relay that was frozen and publishes late what was set
// aside meanwhile; with owners that come and go.
func TestHostileRedrives(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.broker.lanes = 3
			random := rand.New(rand.NewPCG(seed, 11))
			cfg := w.config()
			cfg.HoldAtMost, cfg.BatchSize = 10, 9
			want := w.pub.several(300, func(int) int { return random.IntN(24) })
			aside := map[string]bool{}
			var first, second []*message.Message
			for _, m := range want {
				aside[m.key] = aside[m.key] || random.IntN(40) == 0
				if !aside[m.key] {
					first = append(first, m.event())
					continue
				}
				first = append(first, m.skip())
				if random.IntN(8) == 0 { // frozen, and late
					second = append(second, m.event())
				}
				second = append(second, m.skip(), m.redriven())
				if random.IntN(4) == 0 {
					second = append(second, m.redriven(), m.skip())
				}
			}
			stop := w.start(w.inbox(cfg, write))
			w.broker.send(shuffled(random, first, 8)...)
			if random.IntN(2) == 0 {
				w.drained()
			}
			stop()
			stop = w.start(w.inbox(cfg, write))
			w.broker.send(shuffled(random, second, 30)...)
			w.exact(want)
			w.drained()
			stop()
		})
	}
}
