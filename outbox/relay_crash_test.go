package outbox

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// R-OB03, R-OB08: a relay killed at every place where it hurts, again and again: everything arrives, in order, and what
// arrives twice is the same message.
func TestRelayKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	const page = 20
	rounds, n := 4, testscale.N(5000)/4
	if testscale.Factor() < 1 {
		rounds = 2
	}
	for _, place := range []string{"taken", atBroker, probePublished, probeCommitted} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			w.keep()
			var tapes relayTapes
			for round := range rounds {
				for p := range 5 {
					w.send(n/10, "t", p)
					w.append("routed", fmt.Sprint("s", p), 1+n/10)
				}
				visit := 1
				switch place {
				case atBroker:
					visit = 40 + 30*round
				case probePublished, probeCommitted:
					visit = 1 + round
				}
				w.spawnRelay(t, tapes.add(), fmt.Sprintf("%s:%d:kill", place, visit), fmt.Sprint("300ms ", page)).Dies()
			}
			w.append("routed", "last", 1)
			began := time.Now()
			last := w.spawnRelay(t, tapes.add(), "", "300ms 100")
			w.sent()
			last.Kill()
			last.Dies()
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the last relay took %v with a lease of 300 ms", took)
			}
			if got, want := checkRepeats(t, tapes.all()...), w.stored(); got != want {
				t.Errorf("%d messages arrived, want %d", got, want)
			}
			least, most := 0, 0
			switch place {
			case atBroker, probePublished:
				least, most = 1, math.MaxInt
			case probeCommitted: // of the segment that died there nothing, of the others a page each
				most = rounds * (segments - 1) * page
			}
			if repeated := tapes.messages() - w.stored(); repeated < least || repeated > most {
				t.Errorf("%d messages were repeated, want %d to %d", repeated, least, most)
			}
		})
	}
}

// Relays killed at random moments, always two of them at work.
func TestRelaysKilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newRelayWorld(t)
	w.keep()
	var tapes relayTapes
	var standby *livetest.Process
	for range testscale.N(60) {
		p := standby
		standby = w.spawnRelay(t, tapes.add(), "", "200ms 7")
		standby.Says("running")
		for range 10 {
			w.send(1+random.IntN(5), "t", random.IntN(6))
		}
		<-time.After(time.Duration(random.IntN(80)) * time.Millisecond)
		if p != nil {
			p.Kill()
			p.Dies()
		}
	}
	w.sent()
	standby.Kill()
	standby.Dies()
	if got, want := checkRepeats(t, tapes.all()...), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// R-OB01: two relays, one of them frozen in the middle of a page for twice its lease. The other takes over; the frozen
// one cannot move the cursor when it wakes, and what it still publishes says the same as before.
func TestRelayFrozen(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	w := newRelayWorld(t)
	w.keep()
	b, late := &tape{}, &tape{}
	w.send(30, "t", 1)
	w.append("routed", "s", 20)
	frozen := w.spawnRelay(t, late, atBroker+":15:stop", lease.String()+" 100")
	frozen.Says("at " + atBroker)
	asleep := time.Now()
	stop := w.start(w.relay(b, Config{Lease: lease}))
	w.sent()
	w.send(10, "t", 1)
	w.sent()
	if took := time.Since(asleep); took > 2*lease+time.Second {
		t.Errorf("the takeover took %v with a lease of %v", took, lease)
	}
	owners := w.owners()
	<-time.After(time.Until(asleep.Add(2 * lease)))
	before := len(late.messages())
	frozen.Signal(syscall.SIGCONT)
	frozen.Says("awake")
	frozen.Says("another owner has taken over")
	w.balanced(2) // it is there again, and has its part
	livetest.Eventually(t, "its message in hand arrives late", func() bool { return len(late.messages()) > before })
	w.send(10, "t", 1)
	w.sent()
	if slices.Compact(slices.Sorted(slices.Values(owners)))[0] == "" || len(slices.Compact(owners)) != 1 {
		t.Errorf("the owners were %q while one was frozen", owners)
	}
	stop()
	if got, want := checkRepeats(t, b.all(), late.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// A relay that wakes so soon that it does not know yet that another has taken over publishes the rest of its page, and
// the fence alone keeps it from moving the cursor and the tails.
func TestRelayOvertakenIsFenced(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	b, late := &tape{}, &tape{}
	frozen := w.spawnRelay(t, late, atBroker+":15:stop", "5m 100") // nothing runs out or is renewed while the test lasts
	w.balanced(1)
	w.send(30, "t", 1)
	frozen.Says("at " + atBroker)
	if n := w.exec("UPDATE daybook.segments SET expires_at = '-infinity' WHERE consumer = 'outbox-relay'"); n != segments {
		t.Fatalf("%d leases ran out, want %d", n, segments)
	}
	w.exec("DELETE FROM daybook.members")
	w.start(w.relay(b, Config{}))
	w.sent()
	w.send(5, "t", 1)
	w.sent()
	cursor, tail := w.cursor(), relayAsk[int64](w, "SELECT position FROM daybook.outbox_tails")
	frozen.Signal(syscall.SIGCONT)
	frozen.Says("awake")
	if line := frozen.Says("another owner has taken over"); !strings.Contains(line, "DB002") {
		t.Errorf("%s: want it refused by the fence", line)
	}
	if n := len(late.messages()); n != 30 {
		t.Errorf("the frozen relay published %d messages of its page, want 30", n)
	}
	if now := w.cursor(); now != cursor {
		t.Errorf("the cursor went from %d to %d", cursor, now)
	}
	if now := relayAsk[int64](w, "SELECT position FROM daybook.outbox_tails"); now != tail || tail != cursor {
		t.Errorf("the tail went from %d to %d, with the cursor at %d", tail, now, cursor)
	}
	if got, want := checkRepeats(t, b.all(), late.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// relayTapes are the brokers of several children, one each: what they wrote is read at any time.
type relayTapes []*tape

func (r *relayTapes) add() *tape {
	b := &tape{}
	*r = append(*r, b)
	return b
}

func (r *relayTapes) all() (all [][]taken) {
	for _, b := range *r {
		all = append(all, b.all())
	}
	return all
}

func (r *relayTapes) messages() (n int) {
	for _, b := range *r {
		n += len(b.messages())
	}
	return n
}
