package outbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// told is how far each partition of a topic was told to be complete.
func told(all []taken, topic string) map[int]int64 {
	to := map[int]int64{}
	for _, g := range all {
		if g.topic == topic {
			to[g.partition] = max(to[g.partition], g.position.Ordinal())
		}
	}
	return to
}

// everybodyTold waits until all partitions of a topic were told of a position.
func (w *relayWorld) everybodyTold(b *tape, topic string, position int64) {
	w.t.Helper()
	livetest.Eventually(w.t, fmt.Sprintf("all partitions of %q are told of %d", topic, position), func() bool {
		to := told(b.all(), topic)
		for p := range w.store.Partitions() {
			if to[p] < position {
				return false
			}
		}
		return true
	})
}

// listened makes a consumer of topics.
func (w *relayWorld) listened(topics ...string) {
	w.t.Helper()
	w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('listener', 1, 'projection')")
	w.exec("INSERT INTO daybook.subscribers (topic, group_name, consumer, version) SELECT unnest($1::text[]), 'listeners', 'listener', 1", topics)
}

// Heads are for who follows: topics that were used once, and are followed by nobody, cost nothing.
func TestRelayHeadsAreForFollowersOnly(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.listened("t")
	b := &tape{}
	w.start(w.relay(b, Config{HeadEvery: time.Millisecond}))
	for i := range 20 {
		w.send(1, fmt.Sprint("once", i), i)
	}
	w.send(1, "t", 1)
	w.everybodyTold(b, "t", w.head())
	for _, h := range b.heads() {
		if h.topic != "t" {
			t.Fatalf("a head of topic %q, which nobody follows", h.topic)
		}
	}
}

// An inbox is not known to the store: its topic is named by the relay's configuration.
func TestRelayHeadsOfATopicThatIsNamed(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	w.start(w.relay(b, Config{HeadEvery: time.Millisecond, HeadTopics: []string{"inboxes", "inboxes"}}))
	w.send(1, "other", 1)
	w.everybodyTold(b, "inboxes", w.head())
	for _, h := range b.heads() {
		if h.topic != "inboxes" {
			t.Errorf("a head of topic %q", h.topic)
		}
	}
	if _, err := NewRelay(w.pool, w.store.Outbox(), b, Config{HeadTopics: []string{""}}); err == nil || !strings.Contains(err.Error(), "Config.HeadTopics") {
		t.Errorf("%v", err)
	}
}

// Heads tell every partition of every topic that is followed how far it is complete, also when only others write, and when the system
// goes idle right after a message; when nothing moves there are none.
func TestRelayHeads(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	const every = 100 * time.Millisecond
	w.start(w.relay(b, Config{HeadEvery: every}))
	w.append("foreign", "f", 3)
	w.sent()
	if n := len(b.all()); n != 0 {
		t.Errorf("%d messages were published before there was a topic", n)
	}
	w.listened("t", "u")
	w.send(1, "t", 3)
	w.everybodyTold(b, "t", w.head())
	for range 5 { // the second is put off: heads were just sent
		w.send(1, "t", 4)
		w.send(1, "t", 5)
		w.everybodyTold(b, "t", w.head())
	}
	w.append("foreign", "f", 3)
	w.everybodyTold(b, "t", w.head())
	w.send(1, "u", 3)
	w.everybodyTold(b, "t", w.head())
	w.everybodyTold(b, "u", w.head())
	w.sent()
	idle := len(b.all())
	const committed = "SELECT committed_at FROM daybook.segments WHERE consumer = 'outbox-relay'"
	at := relayAsk[time.Time](w, committed)
	<-time.After(3 * every)
	if now := relayAsk[time.Time](w, committed); now != at {
		t.Errorf("the cursor was committed again while nothing moved, %v later", now.Sub(at))
	}
	if n := len(b.all()); n != idle {
		t.Errorf("%d messages were published while nothing moved", n-idle)
	}
	if n := checkChains(t, b.all()); n != 12 {
		t.Errorf("%d messages arrived, want 12", n)
	}
	for _, h := range b.heads() {
		if h.payload != "" || h.id == "" {
			t.Errorf("the head is %+v", h)
		}
	}
}

// Heads come at most every Config.HeadEvery, and never for what is not published.
func TestRelayHeadsAreRare(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.listened("t")
	var rounds []time.Time
	var n, written atomic.Int64
	b := &tape{before: func(_ string, got received) error {
		if got.kind == KindHead && got.partition == 0 {
			rounds = append(rounds, time.Now()) // one lane, one goroutine
			n.Add(1)
		}
		if got.position.Ordinal() > written.Load()+1 { // the append that runs now
			t.Errorf("%s at %s, and the log ends at %d", got.kind, got.position, written.Load()+1)
		}
		return nil
	}}
	const every = 80 * time.Millisecond
	w.send(1, "t", 1)
	written.Store(w.head())
	stop := w.start(w.relay(b, Config{HeadEvery: every, Lanes: 1}))
	livetest.Eventually(t, "heads come four times", func() bool {
		w.append("foreign", "f", 1)
		written.Store(w.head())
		return n.Load() >= 4
	})
	w.everybodyTold(b, "t", w.head())
	stop()
	for i := 1; i < len(rounds); i++ {
		if gap := rounds[i].Sub(rounds[i-1]); gap < every-5*time.Millisecond {
			t.Errorf("heads came %v after the ones before", gap)
		}
	}
	checkChains(t, b.all())
}

// deafRows wait until they are told of a position, and never poll.
type deafRows struct {
	Rows
	mu    sync.Mutex
	known int64
	told  chan struct{}
}

func (d *deafRows) tell(position int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = position
	close(d.told)
	d.told = make(chan struct{})
}

func (d *deafRows) Wait(ctx context.Context, after eventstore.Position) error {
	for {
		d.mu.Lock()
		known, told := d.known, d.told
		d.mu.Unlock()
		if known > after.Ordinal() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-told:
		}
	}
}

// Heads and moves of the cursor that were put off are done in time, without a look at the database.
func TestRelayDoesWhatItPutOff(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	rows := &deafRows{Rows: w.store.Outbox(), told: make(chan struct{})}
	w.listened("t")
	w.send(1, "t", 1)
	r, err := NewRelay(w.pool, rows, b, Config{HeadEvery: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.start(r)
	w.everybodyTold(b, "t", w.head())
	for i := range 5 {
		w.send(1, "t", i)
		rows.tell(w.head())
		w.append("foreign", "f", 1)
		rows.tell(w.head())
		w.append("foreign", "f", 1)
		rows.tell(w.head())
		w.everybodyTold(b, "t", w.head())
		w.sent()
	}
	checkChains(t, b.all())
}

// A topic that nobody has published on has heads as soon as somebody follows it, also on an idle system.
func TestRelayHeadsForFollowers(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := &tape{}
	w.start(w.relay(b, Config{}))
	w.append("foreign", "f", 1)
	w.sent()
	w.exec("INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('c', 1, 'projection')")
	w.exec("INSERT INTO daybook.subscribers (topic, group_name, consumer, version) VALUES ('quiet', 'g', 'c', 1)")
	began := time.Now()
	w.everybodyTold(b, "quiet", w.head())
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, h := range b.heads() {
		if !h.previous.IsZero() {
			t.Errorf("the head names %s as the message before", h.previous)
		}
	}
}

// A relay that takes over tells everybody where it is.
func TestRelayHeadsAfterTakeover(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	first, second := &tape{}, &tape{}
	w.listened("t")
	stop := w.start(w.relay(first, Config{}))
	w.send(3, "t", 3)
	w.sent()
	stop()
	w.start(w.relay(second, Config{}))
	w.everybodyTold(second, "t", w.head()-3) // and partition 3 by the message that it had
	for _, h := range second.heads() {
		if want := told(first.messages(), "t")[h.partition]; h.previous.Ordinal() != want {
			t.Errorf("the head of partition %d names %s as the message before, want %d", h.partition, h.previous, want)
		}
	}
}
