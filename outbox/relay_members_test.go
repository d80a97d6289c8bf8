package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// Relays that come and go in order share the segments fairly, soon, and each message is sent once.
func TestRelaysJoinAndLeave(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // with heartbeats of 2 s
	numbers := []int{2, 3, 4, 7}
	if testscale.Factor() < 1 { // one that does not divide the segments, and more than there are
		numbers = []int{3, 7}
	}
	for _, n := range numbers {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			w.keep()
			b := &tape{}
			soon := func(what string, limit time.Duration, do func()) {
				t.Helper()
				began := time.Now()
				do()
				if took := time.Since(began); took > limit {
					t.Errorf("%s took %v", what, took)
				}
				for p := range 64 {
					w.send(2, "t", p)
				}
			}
			var stops []func()
			join := func() { stops = append(stops, w.start(w.relay(b, Config{Lease: lease}))) }
			join()
			soon("the first", 2*time.Second, func() { w.balanced(1) })
			for range n - 1 {
				join()
			}
			soon("the balance", 2*lease/3+time.Second, func() { w.balanced(n) })
			owners := w.owners()
			stops[0]()
			soon("a departure", lease/2, func() { w.balanced(n - 1) })
			join()
			soon("another", 2*lease/3+time.Second, func() { w.balanced(n) })
			if now := w.owners(); n < segments && slices.Equal(owners, now) {
				t.Errorf("the owners are still %q", now)
			}
			w.sent()
			if got, sent, want := checkRepeats(t, b.all()), len(b.messages()), w.stored(); got != want || sent != want {
				t.Errorf("%d messages were sent, %d of them different, want %d once each", sent, got, want)
			}
			for _, stop := range stops {
				stop()
			}
			if left := relayAsk[int](w, "SELECT count(*)::int FROM daybook.members"); left != 0 {
				t.Errorf("%d members are left", left)
			}
		})
	}
}

// What a killed relay owned is taken over within a lease and the time between two looks, and its row goes.
func TestRelayDies(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	w := newRelayWorld(t)
	w.keep()
	b, of := &tape{}, &tape{}
	w.start(w.relay(b, Config{Lease: lease}))
	dying := w.spawnRelay(t, of, "", lease.String()+" 100")
	w.balanced(2)
	for p := range 64 {
		w.send(5, "t", p)
	}
	w.sent()
	if len(of.messages()) == 0 || len(b.messages()) == 0 {
		t.Errorf("one of them has published %d messages, the other %d", len(of.messages()), len(b.messages()))
	}
	dying.Kill()
	dying.Dies()
	began := time.Now()
	for p := range 64 {
		w.send(5, "t", p)
	}
	w.balanced(1)
	if took := time.Since(began); took > lease+time.Second {
		t.Errorf("the takeover took %v with a lease of %v", took, lease)
	}
	w.sent()
	livetest.Eventually(t, "its row is gone", func() bool { return relayAsk[int](w, "SELECT count(*)::int FROM daybook.members") == 1 })
	if got, want := checkRepeats(t, b.all(), of.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// Relays that are killed, frozen and woken at random: each tenure of a segment has one owner, whose commits are over when
// the next one's begin, and everything arrives.
func TestRelaysFrozenAndKilledAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newRelayWorld(t)
	w.keep()
	w.exec(`CREATE TABLE daybook.commits (n bigint GENERATED ALWAYS AS IDENTITY, segment int, epoch bigint, owner text)`)
	w.exec(`CREATE FUNCTION daybook.note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO daybook.commits (segment, epoch, owner) VALUES (new.segment, new.epoch, new.owner); RETURN NULL; END $$`)
	w.exec(`CREATE TRIGGER note AFTER UPDATE OF floor ON daybook.segments FOR EACH ROW WHEN (new.consumer = 'outbox-relay') EXECUTE FUNCTION daybook.note_commit()`)
	var tapes relayTapes
	spawn := func() *livetest.Process {
		p := w.spawnRelay(t, tapes.add(), "", "300ms 20")
		p.Says("running")
		return p
	}
	relays := []*livetest.Process{spawn(), spawn(), spawn()}
	frozen := -1
	for range testscale.N(40) {
		for range 10 {
			w.send(1+random.IntN(5), "t", random.IntN(64))
		}
		switch i := random.IntN(len(relays)); {
		case frozen >= 0:
			relays[frozen].Signal(syscall.SIGCONT)
			frozen = -1
		case random.IntN(2) == 0:
			relays[i].Signal(syscall.SIGSTOP)
			frozen = i
		default:
			relays[i].Kill()
			relays[i].Dies()
			relays[i] = spawn()
		}
		<-time.After(time.Duration(100+random.IntN(500)) * time.Millisecond)
	}
	if frozen >= 0 {
		relays[frozen].Signal(syscall.SIGCONT)
	}
	w.sent()
	w.balanced(len(relays))
	for _, p := range relays {
		p.Kill()
		p.Dies()
	}
	if got, want := checkRepeats(t, tapes.all()...), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
	if two := relayAsk[int](w, `SELECT count(*)::int FROM (SELECT FROM daybook.commits GROUP BY segment, epoch HAVING count(DISTINCT owner) > 1) x`); two != 0 {
		t.Errorf("%d tenures have two owners", two)
	}
	if back := relayAsk[int](w, `SELECT count(*)::int FROM (SELECT epoch < max(epoch) OVER (PARTITION BY segment ORDER BY n) AS back FROM daybook.commits) x WHERE back`); back != 0 {
		t.Errorf("%d commits are of a tenure that was over", back)
	}
	if n := relayAsk[int](w, `SELECT count(DISTINCT owner)::int FROM daybook.commits`); n < 3 {
		t.Errorf("only %d relays have committed", n)
	}
}

// A relay that stood still between two pages for longer than its lease publishes no further one, although it has it in
// memory.
func TestRelayAwakePublishesNoFurtherPage(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	w := newRelayWorld(t)
	w.keep()
	b, late := &tape{}, &tape{}
	w.send(60, "t", 1)
	frozen := w.spawnRelay(t, late, probeCommitted+":1:stop", lease.String()+" 20")
	frozen.Says("at " + probeCommitted)
	w.start(w.relay(b, Config{Lease: lease}))
	w.sent()
	before := len(late.messages())
	frozen.Signal(syscall.SIGCONT)
	frozen.Says("awake")
	frozen.Says("another owner has taken over")
	w.balanced(2)
	if n := len(late.messages()); n != before || n != 20 {
		t.Errorf("it published %d messages before and %d after it stood still", before, n-before)
	}
	if got, want := checkRepeats(t, b.all(), late.all()), w.stored(); got != want {
		t.Errorf("%d messages arrived, want %d", got, want)
	}
}

// lookedRows counts how often somebody looks.
type lookedRows struct {
	Rows
	looks atomic.Int64
}

func (l *lookedRows) ReadPage(ctx context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	l.looks.Add(1)
	return l.Rows.ReadPage(ctx, q)
}

// A process that owns all segments looks once for an append, not once for each.
func TestRelayLooksOnceForAll(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	b := &tape{}
	rows := &lookedRows{Rows: w.store.Outbox()}
	r, err := NewRelay(w.pool, rows, b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.start(r)
	w.balanced(1)
	w.append("routed", "first", 1)
	w.sent()
	before := rows.looks.Load()
	const n = 50
	for i := range n {
		w.append("routed", fmt.Sprint(i), 1)
		w.sent()
	}
	if looks := rows.looks.Load() - before; looks > 3*n { // one that finds it, one at the end of the quiet time perhaps
		t.Errorf("%d looks for %d appends", looks, n)
	}
	if got := checkChains(t, b.all()); got != n+1 {
		t.Errorf("%d messages arrived, want %d", got, n+1)
	}
}
