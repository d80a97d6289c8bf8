package commands

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// sender sends numbers to tills, each in order from 1, and knows what it sent.
type sender struct {
	*world
	next map[string]int64
	ids  []uuid.UUID
}

func newSender(w *world) *sender { return &sender{world: w, next: map[string]int64{}} }

func (s *sender) put(till string) {
	s.t.Helper()
	s.next[till]++
	c, err := s.bus.Encode(put{till, s.next[till]}, bus.ReplyTo("replies"))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.next[till]%3 == 0 {
		s.inTx(func(tx pgx.Tx) error { return Enqueue(s.t.Context(), tx, c) })
	} else if _, err := s.queue.Enqueue(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
	s.ids = append(s.ids, c.ID)
}

// allDone waits for the end of everything, and wants each command to have taken effect once, in order, and its sender to
// have been told once.
func (s *sender) allDone() {
	s.t.Helper()
	livetest.Eventually(s.t, "every command ends", func() bool {
		return ask[int](s.world, "SELECT count(*) FROM daybook.operations WHERE finished_at IS NOT NULL") == len(s.ids)
	})
	if n := ask[int](s.world, "SELECT count(*) FROM daybook.operations WHERE state = 'done'"); n != len(s.ids) {
		s.t.Errorf("%d commands are done, want %d; one is %s", n, len(s.ids),
			ask[string](s.world, "SELECT state || ' ' || code || ' ' || reason FROM daybook.operations WHERE state <> 'done' LIMIT 1"))
	}
	for till, n := range s.next {
		s.wantNumbers(till, int(n))
	}
	var replies map[uuid.UUID]Reply
	livetest.Eventually(s.t, "every end is told, as far as an append that goes on lets readers see", func() bool {
		replies = s.replies("replies")
		return len(replies) == len(s.ids)
	})
	for _, id := range s.ids {
		if replies[id].State != bus.OperationDone {
			s.t.Errorf("the reply to %s is %+v", id, replies[id])
		}
	}
}

// A dispatcher killed at every place where it hurts, again and again.
func TestKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	rounds, n := 3, max(testscale.N(1000)/3, 30)
	if testscale.Factor() < 1 {
		rounds = 2
	}
	for _, place := range []string{
		consumer.ProbeTaken, atDeciding, atAppended, probeTold, probeRan, probeReplied, consumer.ProbeApplied, consumer.ProbeCommitted,
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := newSender(w)
			for round := range rounds {
				for i := range n {
					s.put(fmt.Sprint(i % 5))
				}
				visit := 1
				switch place {
				case atDeciding, atAppended:
					visit = 7 + 9*round
				case consumer.ProbeTaken, probeTold:
				default:
					visit = 1 + round%2
				}
				w.spawn(t, fmt.Sprintf("%s:%d:kill", place, visit), "300ms 20").Dies()
			}
			began := time.Now()
			w.run(Config{Lease: 300 * time.Millisecond, BatchSize: 20})
			s.allDone()
			t.Logf("%d commands after %d deaths, %v", len(s.ids), rounds, time.Since(began))
		})
	}
}

// Dispatchers killed at random moments, always two of them at work.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	s := newSender(w)
	var standby *livetest.Process
	for range testscale.N(60) {
		p := standby
		standby = w.spawn(t, "", "200ms 7")
		standby.Says("running")
		for range 10 {
			s.put(fmt.Sprint(random.IntN(6)))
		}
		<-time.After(time.Duration(random.IntN(150)) * time.Millisecond)
		if p != nil {
			p.Kill()
			p.Dies()
		}
	}
	s.allDone()
	standby.Kill()
	standby.Dies()
}

// A dispatcher frozen with its batch carried out, and another that takes over: the frozen one tells nobody anything, and
// takes no effect, when it wakes.
func TestFrozenAndOvertaken(t *testing.T) {
	t.Parallel()
	for _, place := range []string{atDeciding, probeRan, probeReplied} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			const lease = 500 * time.Millisecond
			w := newWorld(t)
			s := newSender(w)
			for i := range 20 {
				s.put(fmt.Sprint(i % 3))
			}
			frozen := w.spawn(t, place+":1:stop", lease.String()+" 50")
			frozen.Says("at " + place)
			if place == probeReplied { // its transaction is open, and the server ends it with the lease
				w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
			}
			asleep := time.Now()
			w.run(Config{}) // with a lease that no load makes late
			s.allDone()
			if took := time.Since(asleep); took > lease+4*time.Second {
				t.Errorf("the takeover took %v with a lease of %v", took, lease)
			}
			epoch := ask[int64](w, "SELECT epoch FROM daybook.segments WHERE consumer = 'commands'")
			frozen.Signal(syscall.SIGCONT)
			frozen.Says("awake")
			frozen.Says("consumer standby")
			s.put("0")
			s.allDone()
			if now := ask[int64](w, "SELECT epoch FROM daybook.segments WHERE consumer = 'commands'"); now != epoch {
				t.Errorf("epoch is %d, was %d: the frozen process took over again", now, epoch)
			}
		})
	}
}
