package outbox

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// A relay that waits because too much is set aside learns what operators do about it.
func TestRelayWaitsUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	keys := keysOf(11, 64, 4)
	var mended atomic.Bool
	b := newPicky(func(got received) error {
		if got.kind.IsMessage() && (got.event.PartitionKey != keys[1] || !mended.Load()) {
			return errTooLarge
		}
		return nil
	})
	for _, key := range keys[:2] {
		w.enqueue("t", key, 1, 2)
	}
	r := w.relay(b, Config{Classify: permanent, MaxParked: 2})
	w.start(r)
	livetest.Eventually(t, "two keys are set aside", func() bool { return w.aside("") == 2 })
	w.enqueue("t", keys[2], 1, 2)
	waits := func() bool { h := r.Health(t.Context()); return !h.Ready && h.State == "waiting" }
	livetest.Eventually(t, "the relay waits", waits)
	letter := relayAsk[uuid.UUID](w, "SELECT letter FROM daybook.letters WHERE sequence = $1", keys[0])
	discarded := relayAsk[int64](w, "SELECT position FROM daybook.letters WHERE letter = $1", letter)
	if _, err := w.letters().Discard(context.Background(), deadletter.One(letter), deadletter.Options{Actor: "ada", Reason: "too large"}); err != nil {
		t.Fatal(err)
	}
	// What is behind it is refused as well, and takes its place.
	livetest.Eventually(t, "the next of the key is tried", func() bool {
		return relayAsk[int](w, "SELECT count(*)::int FROM daybook.letters WHERE sequence = $1 AND position > $2", keys[0], discarded) == 1
	})
	mended.Store(true)
	w.redrive("t", keys[1])
	livetest.Eventually(t, "one key is released, and another has its place", func() bool {
		return w.aside("") == 2 && relayAsk[int](w, "SELECT count(*)::int FROM daybook.parked WHERE sequence = $1", keys[2]) == 1
	})
	same(t, "the key that is mended", b.effects(keys[1]), []string{"1 again", "2 again"})
	w.enqueue("t", keys[3], 1, 2)
	livetest.Eventually(t, "the relay waits again", waits)
	b.mend()
	w.sent()
	same(t, "the last key", b.effects(keys[3]), []string{"1", "2"})
}

// What a page has set aside is written when there is no room any more, also when all of it is in one page: operators can do
// something about it.
func TestRelayWritesWhatItHasSetAsideBeforeItWaits(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	const room = 3
	keys := keysOf(11, 64, 8)
	b := newPicky(func(got received) error {
		if got.kind.IsMessage() && got.event.PartitionKey != keys[1] {
			return errTooLarge
		}
		return nil
	})
	for i, key := range keys {
		for _, topic := range []string{"t", "u"}[:1+i%2] {
			w.enqueue(topic, key, 1, 2)
		}
	}
	r := w.relay(b, Config{Classify: permanent, MaxParked: room})
	w.start(r)
	livetest.Eventually(t, "the relay waits", func() bool { h := r.Health(t.Context()); return !h.Ready && h.State == "waiting" })
	open := func() int {
		return relayAsk[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked'")
	}
	livetest.Eventually(t, "what is set aside is written", func() bool { return open() == room && w.aside("parked") == room })
	same(t, "a key between them", b.effects(keys[1]), []string{"1", "2", "1", "2"}[:len(b.effects(keys[1]))])
	// The relay goes on in the same way when there is room, until all have been refused.
	for range 40 {
		if open() == 0 {
			break
		}
		if _, err := w.letters().Discard(context.Background(), deadletter.Matching(deadletter.Filter{Consumer: relayName, State: deadletter.Parked}),
			deadletter.Options{Actor: "ada", Reason: "too large"}); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "the next take their places, or all is done", func() bool {
			return open() > 0 || relayAsk[int](w, "SELECT count(*)::int FROM daybook.parked") == 0
		})
	}
	w.sent()
	if n := relayAsk[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'discarded'"); n != 20 {
		t.Errorf("%d messages were discarded, want those of seven keys, three of them on two topics: 20", n)
	}
}

// A head that was refused for its topic's sake is published when the topic works, also when nothing new comes.
func TestHeadsThatWereRefusedComeLater(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	var works atomic.Bool
	var refused atomic.Int32
	b := newPicky(func(got received) error {
		if got.topic == "followed" && !works.Load() {
			refused.Add(1)
			return errTooLarge
		}
		return nil
	})
	w.start(w.relay(b, Config{HeadTopics: []string{"followed"}}))
	w.send(1, "other", 11)
	w.sent()
	livetest.Eventually(t, "heads are refused", func() bool { return refused.Load() > 0 })
	head := w.head()
	works.Store(true)
	w.everybodyTold(&b.tape, "followed", head)
}

// What was taken before is no proof that the broker is there now, whenever that is noted.
func TestWhatWasTakenBeforeProvesNothing(t *testing.T) {
	t.Parallel()
	l := openLanes(1, newEncoder(uuid.New(), "daybook"), &tape{})
	defer l.close()
	var took takenTopics
	l.add(job{topic: "other", position: eventstore.PositionAt(7)})
	if _, _, err := l.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	took.note(l)
	if took.since("refused", began) {
		t.Error("it counts as taken since")
	}
	if !took.since("refused", began.Add(-time.Minute)) || took.since("other", began.Add(-time.Minute)) {
		t.Error("it does not count as taken on another topic")
	}
}
