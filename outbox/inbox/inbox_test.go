package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/outbox"
)

func TestEachMessageTakesEffectOnceAndInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inbox(w.config(), write)
	stop := w.start(in)
	want := w.pub.several(300, func(i int) int { return i % 20 })
	w.broker.send(events(want)...)
	w.exact(want)
	w.drained()
	stop()
	if h := in.Health(context.Background()); h.Ready || h.State != "not running" {
		t.Errorf("health %+v", h)
	}
	if got := ask[string](w, "SELECT source FROM daybook.consumers WHERE consumer = 'stock'"); got != "topic "+topic+", epoch "+w.pub.epoch.String() {
		t.Errorf("the record is %q", got)
	}
	if in.Lag().At.IsZero() {
		t.Error("the lag is not known")
	}
}

// The next owner goes on where the one before it ended, and what was not acknowledged comes again.
func TestWhatIsAppliedIsARepeatForTheNextOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.start(w.inbox(w.config(), write))
	want := w.pub.several(50, func(i int) int { return i % 5 })
	w.broker.send(events(want)...)
	w.exact(want)
	stop()
	more := w.pub.several(50, func(i int) int { return i % 5 })
	w.broker.send(events(append(want, more...))...)
	in := w.inbox(w.config(), write)
	w.start(in)
	w.exact(append(want, more...))
	w.drained()
	if s := in.Stats(); s.Repeated < 50 {
		t.Errorf("%d repeats", s.Repeated)
	}
}

// A broker that repeats and shuffles what it brings, over several subscriptions.
func TestBrokerThatRepeatsAndShuffles(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(4) {
		w := newWorld(t)
		w.broker.lanes = 1 + int(seed)
		cfg := w.config()
		cfg.Subscriptions = 1 + int(seed)*2
		random := rand.New(rand.NewPCG(seed, 1))
		want := w.pub.several(400, func(int) int { return random.IntN(30) })
		w.broker.send(shuffled(random, events(want), 10)...)
		w.start(w.inbox(cfg, write))
		w.exact(want)
		w.drained()
	}
}

// shuffled doubles a tenth and moves messages by up to window places.
func shuffled(random *rand.Rand, messages []*message.Message, window int) []*message.Message {
	var all []*message.Message
	for _, m := range messages {
		all = append(all, m)
		if random.IntN(10) == 0 {
			all = append(all, m)
		}
	}
	for i := range all {
		j := i + random.IntN(min(window, len(all)-i))
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// R-OB04: whoever is slow is not taken for dead, and what it has in hand is not handled twice.
func TestHandlerSlowerThanTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Lease = 300 * time.Millisecond
	var running, calls atomic.Int32
	slow := func(ctx context.Context, tx pgx.Tx, m Message) error {
		if running.Add(1) > 1 {
			t.Error("two handlers run at once")
		}
		defer running.Add(-1)
		calls.Add(1)
		for range 9 { // three times the lease, and never at rest for as long as one
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)"); err != nil {
				return err
			}
		}
		return write(ctx, tx, m)
	}
	want := w.pub.several(4, func(int) int { return 1 })
	w.broker.send(events(want)...)
	w.start(w.inbox(cfg, slow))
	w.start(w.inbox(cfg, slow))
	w.exact(want)
	if n := calls.Load(); n != 4 {
		t.Errorf("the handler was called %d times for 4 messages", n)
	}
}

// R-OB07: what a message makes an inbox send is sent once, however often the message comes.
func TestWhatARepeatedMessageSendsIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reply := func(ctx context.Context, tx pgx.Tx, m Message) error {
		if err := write(ctx, tx, m); err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, outbox.Message{Topic: "replies", Key: m.PartitionKey, Type: "reply.sent", Data: m.Data})
	}
	want := w.pub.several(10, func(i int) int { return i % 3 })
	w.broker.send(events(want)...)
	w.broker.send(events(want)...)
	in := w.inbox(w.config(), reply)
	w.start(in)
	w.exact(want)
	w.drained()
	w.exec("DELETE FROM daybook.outbox") // as when all is published
	w.broker.send(events(want)...)
	w.drained()
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.outbox"); n != 0 {
		t.Errorf("%d replies were sent again", n)
	}
}

func TestAFailingMessageSetsItsKeyAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var broken atomic.Bool
	broken.Store(true)
	bad := w.pub.next(3)
	handler := func(ctx context.Context, tx pgx.Tx, m Message) error {
		if broken.Load() && m.Position.Ordinal() == bad.position {
			return errors.New("no such article")
		}
		return write(ctx, tx, m)
	}
	cfg := w.config()
	cfg.Attempts = 1000
	rest := w.pub.several(40, func(i int) int { return 3 + 8*(i%2) }) // two keys of one partition
	w.broker.send(bad.event())
	w.broker.send(events(rest)...)
	w.start(w.inbox(cfg, handler))
	w.applied(20)
	w.drained()
	if n := ask[int](w, "SELECT count(*)::int FROM applied WHERE key = $1", bad.key); n != 0 {
		t.Errorf("%d messages went by the one that failed", n)
	}
	broken.Store(false)
	w.exact(append([]*sent{bad}, rest...))
}

func TestMessagesThatCannotBeReadAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := message.NewMessage("not-ours", []byte("hello\x00"))
	foreign.Metadata.Set("x", "y")
	broken := w.pub.next(1).event()
	broken.Metadata[outbox.HeaderPosition] = "07"
	w.pub.tails[1], w.pub.position = 0, 0
	other := w.pub.next(2).event()
	other.Metadata[outbox.HeaderTopic] = "other"
	w.pub.tails[2] = 0
	want := w.pub.several(20, func(i int) int { return i })
	w.broker.send(foreign, broken, other, foreign)
	w.broker.send(events(want)...)
	in := w.inbox(w.config(), write)
	w.start(in)
	w.applied(len(want))
	w.drained()
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked' AND kind = 'permanent'"); n != 3 {
		t.Errorf("%d letters, want 3", n)
	}
	if data := ask[[]byte](w, "SELECT data FROM daybook.letters WHERE attempts = 2"); string(data) != "hello\x00" {
		t.Errorf("the message that came twice is kept as %q", data)
	}
	if !in.Health(t.Context()).Ready {
		t.Error("health: not ready")
	}
	// Each is a sequence of its own, which tools for letters can close, or try again in vain.
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked WHERE topic = $1 AND state = 'parked' AND queued = 0", foreignTopic); n != 3 {
		t.Errorf("%d sequences are parked, want 3", n)
	}
}
