package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/projection"
)

// A relay stands still with a message in hand. Another takes over, and the broker refuses that message: its key is set aside.
// Then the first goes on, and publishes what it had in hand, from before the parking. After the redrive a subscription has
// everything once and in order, however the broker shuffles, and a plain subscriber has the late one in addition.
func TestRelayFrozenSinceBeforeTheParking(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	w.keep()
	key := keysOf(9, 64, 1)[0]
	b, late := newPicky(isNumber(key, "2")), &tape{}
	w.enqueue("t", key, 1, 5)
	frozen := w.spawnRelay(t, late, atBroker+":2:stop", "1s 100")
	frozen.Says("at " + atBroker)
	w.start(w.relay(b, Config{Classify: permanent, Lease: time.Second}))
	livetest.Eventually(t, "the sequence is parked", func() bool { return w.aside("parked") == 1 })
	before := len(late.messages())
	frozen.Signal(syscall.SIGCONT)
	frozen.Says("awake")
	livetest.Eventually(t, "its message in hand arrives late", func() bool { return len(late.messages()) > before })
	frozen.Kill()
	frozen.Dies()
	b.mend()
	w.redrive("t", key)
	livetest.Eventually(t, "the sequence is released", func() bool { return w.aside("") == 0 })
	w.enqueue("t", key, 6, 6)
	w.sent()
	got := b.effects(key)
	if want := []string{"2 again", "3 again", "4 again", "5 again", "6"}; len(got) < len(want) || !slices.Equal(got[len(got)-len(want):], want) {
		t.Errorf("the second has sent %v", got)
	}
	for range 5 {
		w.followed(append(b.all(), late.all()...), 6, rand.Uint64())
	}
}

// touched is an event of a stream.
type touched struct{ N int }

// One message is refused, of a hundred of one partition. All others reach a projection that follows the topic, and a plain
// listener, at once: nobody waits for the redrive. The projection has what is set aside as well.
func TestOneRefusedMessageHoldsNobody(t *testing.T) {
	t.Parallel()
	const streams, each = 20, 5
	w := newRelayWorld(t)
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	t.Cleanup(func() { _ = channel.Close() })
	catalog := eventstore.NewCatalog(eventstore.TypeOf[touched]("account.touched"))
	var mu sync.Mutex
	applied, heard := map[string][]int{}, map[string][]int{}
	note := func(to map[string][]int, stream eventstore.StreamID, n int) {
		mu.Lock()
		defer mu.Unlock()
		to[stream.ID] = append(to[stream.ID], n)
	}
	count := func(of map[string][]int) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, numbers := range of {
			n += len(numbers)
		}
		return n
	}
	numbers := projection.Projection{
		Name: "numbers", Version: 1, Events: catalog,
		Handlers: []projection.Handler{projection.Handle(func(_ context.Context, _ pgx.Tx, e projection.Event[touched]) error {
			note(applied, e.Stream, e.Payload.N)
			return nil
		})},
	}
	if err := projection.Install(t.Context(), w.pool, numbers); err != nil {
		t.Fatal(err)
	}
	s, err := NewSubscription(w.store.Outbox(), channel, SubscriptionConfig{Topic: "events", Group: "numbers"})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := projection.NewRunner(w.pool, s, projection.Config{}, numbers)
	if err != nil {
		t.Fatal(err)
	}
	beside(t, func(ctx context.Context) {
		if err := runner.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	beside(t, func(ctx context.Context) {
		err := Live(ctx, channel, "events", func(_ context.Context, r Received) error {
			e, err := catalog.Decode(r.RecordedEvent)
			if err == nil {
				note(heard, r.Stream, e.(touched).N)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	livetest.Eventually(t, "the projection follows", func() bool { return s.Health(t.Context()).State == "following" })

	ids := idsOf(3, streams)
	b := newPicky(func(got received) error {
		if got.kind.IsMessage() && got.event.Stream.ID == ids[0] && got.event.Version == 2 {
			return errTooLarge
		}
		return nil
	})
	for n := 1; n <= each; n++ {
		for _, id := range ids {
			data, err := catalog.Encode(touched{n})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("routed", id), eventstore.AnyVersion, data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	w.start(w.relay(forward{b, channel}, Config{Classify: permanent}))
	livetest.Eventually(t, "the projection has everything", func() bool { return count(applied) >= streams*each })
	livetest.Eventually(t, "the listener has the other keys", func() bool { return count(heard) >= streams*each-4 })
	t.Logf("after %v", time.Since(began))
	if n := w.aside("parked"); n != 1 {
		t.Errorf("%d sequences are parked", n)
	}
	b.mend()
	w.redrive("events", "routed-"+ids[0])
	livetest.Eventually(t, "the listener has everything", func() bool { return count(heard) >= streams*each })
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		for who, of := range map[string]map[string][]int{"projection": applied, "listener": heard} {
			if want := []int{1, 2, 3, 4, 5}; !slices.Equal(of[id], want) {
				t.Errorf("the %s has %v of %s", who, of[id], id)
			}
		}
	}
}

// idsOf are of streams of category routed in one partition.
func idsOf(partition, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if eventstore.PartitionOf(fmt.Sprint("routed-s", i), 64) == partition {
			ids = append(ids, fmt.Sprint("s", i))
		}
	}
	return ids
}

// forward publishes on a second broker what the first takes.
type forward struct {
	*picky
	to message.Publisher
}

// Publish asks the picky one first.
func (f forward) Publish(topic string, messages ...*message.Message) error {
	if err := f.picky.Publish(topic, messages...); err != nil {
		return err
	}
	return f.to.Publish(topic, messages...)
}

// When too much is set aside it is the broker's set-up and not the messages: the relay waits, says so, and goes on by itself.
func TestRelayWaitsWhenTooMuchIsSetAside(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	keys := keysOf(11, 64, 3)
	b := newPicky(func(got received) error {
		if got.kind.IsMessage() {
			return errTooLarge
		}
		return nil
	})
	for _, key := range keys {
		w.enqueue("t", key, 1, 2)
	}
	r := w.relay(b, Config{Classify: permanent, MaxParked: 2})
	w.start(r)
	livetest.Eventually(t, "the relay waits", func() bool { h := r.Health(t.Context()); return !h.Ready && h.State == "waiting" })
	if n := len(b.messages()); n > 4 {
		t.Errorf("%d markers, for two keys of two messages", n)
	}
	b.mend()
	w.sent()
	if w.aside("parked") != 2 {
		t.Error("two sequences should be parked")
	}
	same(t, "the third key", b.effects(keys[2]), []string{"1", "2"})
	for _, key := range keys[:2] {
		w.redrive("t", key)
	}
	livetest.Eventually(t, "the sequences are released", func() bool { return w.aside("") == 0 })
	same(t, "the first key", b.effects(keys[0]), []string{"1 again", "2 again"})
}
