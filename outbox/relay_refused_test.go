package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

var errTooLarge = errors.New("the message is larger than the broker takes")

// picky is a broker that refuses some messages, and keeps what it takes.
type picky struct {
	tape
	mu      sync.Mutex
	refuses func(received) error
	tried   int // messages, refused or not
}

func newPicky(refuses func(received) error) *picky {
	p := &picky{refuses: refuses}
	p.before = func(_ string, got received) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if got.kind.IsMessage() {
			p.tried++
		}
		return p.refuses(got)
	}
	return p
}

// mend makes it take everything from now on.
func (p *picky) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = func(received) error { return nil }
}

func (p *picky) attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// effects are the payloads of a key that a plain subscriber gets, with what is redriven marked.
func (p *picky) effects(key string) (all []string) {
	for _, g := range p.all() {
		switch {
		case g.event.PartitionKey != key:
		case g.kind.IsMessage() && g.redriven:
			all = append(all, g.payload+" again")
		case g.kind.IsMessage():
			all = append(all, g.payload)
		}
	}
	return all
}

// enqueue writes messages of one key with their numbers as payload, in one transaction.
func (w *relayWorld) enqueue(topic, key string, from, to int) {
	w.t.Helper()
	var messages []Message
	for i := from; i <= to; i++ {
		messages = append(messages, Message{Topic: topic, Key: key, Type: "test.sent", ContentType: "text/plain", Data: fmt.Append(nil, i)})
	}
	err := pgx.BeginFunc(context.Background(), w.pool, func(tx pgx.Tx) error { return Enqueue(context.Background(), tx, messages...) })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *relayWorld) aside(state string) int {
	w.t.Helper()
	return relayAsk[int](w, "SELECT count(*)::int FROM daybook.parked WHERE consumer = 'outbox-relay' AND ($1 = '' OR state = $1)", state)
}

func (w *relayWorld) letters() *deadletter.Letters {
	w.t.Helper()
	l, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *relayWorld) redrive(topic, key string) {
	w.t.Helper()
	_, err := w.letters().Redrive(context.Background(), deadletter.Sequence(relayName, 0, topic, key), deadletter.Options{Actor: "ada", Reason: "mended"})
	if err != nil {
		w.t.Fatal(err)
	}
}

func permanent(error) eventstore.FailureKind { return eventstore.Permanent }

func isNumber(key, payload string) func(received) error {
	return func(got received) error {
		if got.event.PartitionKey == key && string(got.event.Data) == payload {
			return errTooLarge
		}
		return nil
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// keysOf are n keys of one partition.
func keysOf(partition, partitions, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("key-", i); eventstore.PartitionOf(key, partitions) == partition {
			keys = append(keys, key)
		}
	}
	return keys
}

// R-OB11: ten messages are due, the oldest on a topic that the broker does not know. Nine arrive, that one is set aside with
// its reason, and nothing is held; in one partition or in several, whether somebody has said what refusals mean or not.
func TestRelayOfAnUnknownTopic(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t) // one after the other, each with a topic of its own
	known := map[string]bool{}
	for n, c := range []struct {
		name     string
		keys     func(i int) string
		classify eventstore.Classifier
	}{
		{"one key", func(int) string { return "a" }, nil},
		{"keys", func(i int) string { return fmt.Sprint("key-", i) }, nil},
		{"one key, classified", func(int) string { return "a" }, permanent},
		{"several, all declared", func(i int) string { return fmt.Sprint("key-", i) }, permanent},
	} {
		unknown := fmt.Sprint("unknown-", n)
		b := newPicky(func(got received) error {
			if strings.HasPrefix(got.topic, "unknown") {
				return errors.New("no such topic: " + got.topic)
			}
			return nil
		})
		for i := range 10 {
			topic := "known"
			if i == 0 {
				topic = unknown
			}
			w.enqueue(topic, c.keys(i), i, i)
		}
		stop := w.start(w.relay(b, Config{Classify: c.classify}))
		w.sent()
		stop()
		if n := len(b.messages()); n != 9 {
			t.Errorf("%s: %d arrived, want 9", c.name, n)
		}
		page, err := w.letters().List(t.Context(), deadletter.Filter{Consumer: relayName})
		if err != nil || len(page.Letters) != n+1 || w.aside("") != n+1 {
			t.Fatalf("%s: %d letters, %v", c.name, len(page.Letters), err)
		}
		for _, l := range page.Letters {
			if !known[l.Topic] && (l.Topic != unknown || l.Sequence != c.keys(0) || !strings.Contains(l.Error, "no such topic: "+unknown)) {
				t.Errorf("%s: the letter is %+v", c.name, l)
			}
		}
		known[unknown] = true
	}
}

// R-DL08: the broker is down for 30 minutes, and 1,000 messages wait. All of them are delivered, without anybody's doing and
// without an attempt that counts.
func TestRelayThroughALongOutage(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	var down atomic.Bool
	down.Store(true)
	b := newPicky(func(received) error {
		if down.Load() {
			return errors.New("connection refused")
		}
		return nil
	})
	var minutes atomic.Int64
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 20 {
		w.enqueue([]string{"t", "u"}[i%2], fmt.Sprint("key-", i), 1, 50)
	}
	r := w.relay(b, Config{Clock: func() time.Time { return start.Add(time.Duration(minutes.Load()) * time.Minute) }})
	w.start(r)
	for range 30 {
		tried := b.attempts()
		livetest.Eventually(t, "the relay probes", func() bool { return b.attempts() > tried })
		minutes.Add(1)
	}
	if h := r.Health(t.Context()); h.Ready || !strings.Contains(h.Reason, "connection refused") {
		t.Errorf("health is %+v", h)
	}
	// Four ranges, one probe each at a time: far from one attempt for each message.
	if n := b.attempts(); n > 1000 {
		t.Errorf("%d attempts while it was down", n)
	}
	down.Store(false)
	w.sent()
	if n := checkChains(t, b.all()); n != 1000 {
		t.Errorf("%d messages arrived, want 1000", n)
	}
	if n := relayAsk[int](w, "SELECT count(*)::int FROM daybook.letters"); n != 0 || w.aside("") != 0 {
		t.Errorf("%d letters", n)
	}
}

// One message is refused. Plain subscribers get all other keys of its partition at once, and its key when it is mended:
// everything, in order, and then the key goes on as before.
func TestRelayRedrivesInOrder(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	keys := keysOf(3, 64, 3)
	b := newPicky(isNumber(keys[0], "2"))
	for i := 1; i <= 5; i++ {
		for _, key := range keys {
			w.enqueue("t", key, i, i)
		}
	}
	w.start(w.relay(b, Config{Classify: permanent}))
	w.sent()
	same(t, "the refused key", b.effects(keys[0]), []string{"1"})
	for _, key := range keys[1:] {
		same(t, "another key", b.effects(key), []string{"1", "2", "3", "4", "5"})
	}
	if n := checkChains(t, b.all()); n != 15 {
		t.Errorf("%d links, want 15", n)
	}
	if w.aside("parked") != 1 {
		t.Fatal("it is not parked")
	}
	b.mend()
	w.redrive("t", keys[0])
	livetest.Eventually(t, "the sequence is released", func() bool { return w.aside("") == 0 })
	w.enqueue("t", keys[0], 6, 7)
	w.sent()
	same(t, "the refused key", b.effects(keys[0]), []string{"1", "2 again", "3 again", "4 again", "5 again", "6", "7"})
	// What is redriven says what it would have said in its place.
	place := map[eventstore.Position]eventstore.Position{}
	for _, g := range b.all() {
		if g.kind == KindHead {
			continue
		}
		if previous, again := place[g.position]; again && previous != g.previous {
			t.Errorf("%s at %s names %s, and did name %s", g.kind, g.position, g.previous, previous)
		}
		place[g.position] = g.previous
	}
	page, err := w.letters().List(t.Context(), deadletter.Filter{Consumer: relayName, State: deadletter.Applied})
	if err != nil || len(page.Letters) != 1 {
		t.Errorf("%d letters are closed, %v", len(page.Letters), err)
	}
	w.followed(b.all(), 17, rand.Uint64())
}

// A message that is refused now and then is set aside, and tried again by the clock until its attempts are over.
func TestRelayTriesAgain(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	keys := keysOf(5, 64, 2)
	b := newPicky(isNumber(keys[0], "2"))
	w.enqueue("t", keys[0], 1, 3)
	w.enqueue("t", keys[1], 1, 3)
	var seconds atomic.Int64
	start := time.Now()
	w.start(w.relay(b, Config{Attempts: 3, Clock: func() time.Time { return start.Add(time.Duration(seconds.Load()) * time.Second) }}))
	w.sent()
	same(t, "another key", b.effects(keys[1]), []string{"1", "2", "3"})
	if w.aside("retrying") != 1 {
		t.Fatal("nothing is to be tried again")
	}
	attempts := func() int { return relayAsk[int](w, "SELECT attempts FROM daybook.letters") }
	for n := 2; n <= 3; n++ {
		seconds.Add(60)
		livetest.Eventually(t, "it is tried again", func() bool { return attempts() == n })
	}
	if w.aside("parked") != 1 {
		t.Error("it is not parked after its attempts")
	}
	b.mend()
	seconds.Add(3600)
	w.redrive("t", keys[0])
	livetest.Eventually(t, "the sequence is released", func() bool { return w.aside("") == 0 })
	same(t, "the key", b.effects(keys[0]), []string{"1", "2 again", "3 again"})
}

// What somebody has discarded is told to those who wait for it, and what is queued behind goes on.
func TestRelayTellsOfWhatIsDiscarded(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	b := newPicky(isNumber("a", "2"))
	w.start(w.relay(b, Config{Classify: permanent}))
	discard := func() {
		t.Helper()
		w.sent()
		livetest.Eventually(t, "it is parked", func() bool { return w.aside("parked") == 1 })
		_, err := w.letters().Discard(t.Context(), deadletter.Sequence(relayName, 0, "t", "a"), deadletter.Options{Actor: "ada", Reason: "of no use"})
		if err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "the sequence is released", func() bool { return w.aside("") == 0 })
	}
	w.enqueue("t", "a", 1, 4)
	discard()
	w.enqueue("t", "a", 2, 2) // nothing is behind it
	discard()
	w.enqueue("t", "a", 5, 5)
	w.sent()
	same(t, "the key", b.effects("a"), []string{"1", "3 again", "4 again", "5"})
	var told []string
	for _, g := range b.all() {
		if g.kind == KindSkip && g.redriven {
			told = append(told, g.position.String())
		}
	}
	if len(told) != 2 {
		t.Errorf("%v are told of as discarded", told)
	}
}

// Broken off between the broker's word for a marker and the commit, by another owner: what follows is the message or the
// marker again, and a subscription applies everything once.
func TestRelayFencedBehindAMarker(t *testing.T) {
	t.Parallel()
	for _, mended := range []bool{false, true} {
		t.Run(fmt.Sprint("mended ", mended), func(t *testing.T) {
			t.Parallel()
			w := newRelayWorld(t)
			keys := keysOf(7, 64, 2)
			b := newPicky(isNumber(keys[0], "2"))
			w.enqueue("t", keys[0], 1, 3)
			w.enqueue("t", keys[1], 1, 3)
			var once sync.Once
			cfg := Config{Classify: permanent, probe: func(place string) {
				if place == probePublished {
					once.Do(func() {
						w.exec("UPDATE daybook.segments SET epoch = epoch + 1, owner = '', expires_at = '-infinity' WHERE consumer = 'outbox-relay'")
						if mended {
							b.mend()
						}
					})
				}
			}}
			w.start(w.relay(b, cfg))
			w.sent()
			if got, want := w.aside(""), map[bool]int{false: 1, true: 0}[mended]; got != want {
				t.Errorf("%d sequences are set aside, want %d", got, want)
			}
			if !mended {
				b.mend()
				w.redrive("t", keys[0])
				livetest.Eventually(t, "the sequence is released", func() bool { return w.aside("") == 0 })
			}
			w.followed(b.all(), 6, rand.Uint64())
		})
	}
}

// followed gives a subscription what a broker has taken, lost, doubled and shuffled: it hands out the n messages of topic t,
// each once, and those of a partition in order.
func (w *relayWorld) followed(sent []taken, n int, seed uint64) {
	w.t.Helper()
	var raw []*message.Message
	for _, g := range sent {
		m := message.NewMessage(g.id, []byte(g.payload))
		m.Metadata = g.headers
		raw = append(raw, m)
	}
	t := w.t.(*testing.T)
	rows, err := w.store.Outbox().ReadPage(t.Context(), eventstore.OutboxQuery{Topic: "t", Partition: eventstore.AllPartitions, Limit: 10 * n})
	if err != nil || len(rows.Messages) != n {
		t.Fatalf("%d messages are stored, want %d: %v", len(rows.Messages), n, err)
	}
	fake := newFakeBroker()
	s, err := NewSubscription(w.store.Outbox(), fake, SubscriptionConfig{Topic: "t", Group: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 3))
	beside(t, func(ctx context.Context) {
		select {
		case <-fake.subs:
			fake.send(ctx, worsened(random, raw)...)
		case <-ctx.Done(): // all was found in the store, before anything was subscribed to
		}
	})
	f := &follower{t: t, partitions: 64}
	ctx, cancel := context.WithTimeout(t.Context(), relayPatience)
	defer cancel()
	if err := f.follow(ctx, s, 10, func() bool { return len(f.events) >= n }); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	f.complete(rows.Messages)
}
