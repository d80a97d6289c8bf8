package inbox

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/outbox"
)

// feedOf opens a feed as a worker does, whose broker brings these messages at once.
func feedOf(w *world, in *Inbox, messages ...*message.Message) *feed {
	w.t.Helper()
	if err := in.install(w.t.Context(), w.pool); err != nil {
		w.t.Fatal(err)
	}
	w.exec("UPDATE daybook.consumers SET source = $1", source{in}.Carries())
	in.db.Store(w.pool)
	d, err := in.open(w.t.Context(), consumer.Follower{Ref: in.ref, Limit: 10})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(d.Close)
	d.receiver.close() // nothing but the messages of the test
	d.receiver.out = make(chan delivery, len(messages))
	for _, m := range messages {
		got, err := outbox.Decode(m)
		d.receiver.out <- delivery{m, got, err}
	}
	return d
}

func acked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}

// What is said about the rows of a key in one batch is not asked for before it is committed; and nothing is acknowledged
// before that.
func TestAMarkerAndItsMessageAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, m := w.pub.next(1), w.pub.next(1)
	first, skip, redriven := before.event(), m.skip(), m.redriven()
	d := feedOf(w, w.inbox(w.config(), write), first, skip, redriven)
	next := func() consumer.Batch {
		t.Helper()
		b, err := d.Next(t.Context(), time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := next()
	if len(b.Events) != 1 || len(b.Held) != 0 || len(b.Marks) != 1 || b.Marks[0].Position.Ordinal() != before.position || !b.More {
		t.Errorf("first %+v", b)
	}
	if acked(first) {
		t.Error("a message was acknowledged that is not committed")
	}
	b = next()
	if !acked(first) || acked(skip) {
		t.Error("it is not acknowledged when it is committed, or what follows is")
	}
	if len(b.Events) != 0 || len(b.Held) != 1 || b.Held[0].Kind != consumer.Awaited || len(b.Marks) != 1 || !b.More {
		t.Errorf("then %+v", b)
	}
	w.exec(`INSERT INTO daybook.held (consumer, version, sequence, position, partition, present) VALUES ('stock', 1, $1, $2, 1, false)`, m.key, m.position)
	b = next()
	if len(b.Held) != 1 || b.Held[0].Kind != consumer.Redelivered || len(b.Marks) != 0 || b.More {
		t.Errorf("then %+v", b)
	}
}

// A batch ends with what it has room for, and the rest follows without the broker.
func TestWhatIsHeldFollowsPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.pub.several(25, func(int) int { return 1 })
	messages := events(append(all[1:], all[0]))
	d := feedOf(w, w.inbox(w.config(), write), messages...)
	var got []eventstore.RecordedEvent
	for len(got) < len(all) {
		b, err := d.Next(t.Context(), time.Now().Add(patience))
		if err != nil || len(b.Events) == 0 || len(b.Events) > 10 {
			t.Fatalf("%d events: %v", len(b.Events), err)
		}
		got = append(got, b.Events...)
	}
	for i, e := range got {
		if e.Position.Ordinal() != all[i].position {
			t.Fatalf("event %d is at %s, want %d", i, e.Position, all[i].position)
		}
	}
}

// A marker waits behind a gap, and then its message does: the message stands for both.
func TestAMarkerAndItsMessageBehindAGap(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"marker", "message"} {
		w := newWorld(t)
		w.start(w.inbox(w.config(), write))
		lost, m, discarded, last := w.pub.next(1), w.pub.next(9), w.pub.next(9), w.pub.next(9)
		pair := []*message.Message{m.skip(), m.redriven()}
		if first == "message" {
			pair[0], pair[1] = pair[1], pair[0]
		}
		w.broker.send(discarded.skip())
		w.drained()
		for _, one := range append(pair, discarded.discarded(), last.event(), w.pub.head(1), w.pub.head(1)) {
			w.broker.send(one)
			w.drained() // it is stored
		}
		if n := ask[int](w, "SELECT count(*)::int FROM daybook.held WHERE topic = 'gap'"); n != 4 {
			t.Errorf("%d rows are stored, want 4: %s", n, w.dump())
		}
		w.broker.send(lost.event())
		w.exact([]*sent{lost, m, last})
		if n := ask[int64](w, "SELECT applied FROM daybook.checkpoints WHERE consumer = 'stock' AND partition = 1"); n != w.pub.position {
			t.Errorf("the partition is at %d, want that of the head, %d", n, w.pub.position)
		}
	}
}
