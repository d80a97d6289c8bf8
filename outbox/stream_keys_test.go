package outbox

import (
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
)

// queues is a broker with several queues, one chosen by what PartitionKey says.
type queues []chan *message.Message

func (q queues) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		key, err := PartitionKey(topic, msg)
		if err != nil {
			return err
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(key)) // never fails
		q[h.Sum32()%uint32(len(q))] <- msg
	}
	return nil
}

func (queues) Close() error { return nil }

// Twelve events of four users, three queues chosen by the key, and a worker for each: every user's events are done in
// their order, although the first of each takes longest.
func TestStreamOrderByKey(t *testing.T) {
	t.Parallel()
	w := newRelayWorld(t)
	const workers, each = 3, 3
	users := []string{"ann", "bob", "cid", "dee"}
	q := make(queues, workers)
	for i := range q {
		q[i] = make(chan *message.Message, 10_000) // with heads
	}
	for n := range each { // one after the other, all users by turns
		for _, user := range users {
			_, err := w.store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("routed", user), eventstore.AnyVersion,
				eventstore.EventData{Type: "test.stored", ContentType: "text/plain", Data: fmt.Append(nil, n+1)}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := w.start(w.relay(q, Config{}))
	w.sent()
	stop()
	var mu sync.Mutex
	done := map[string][]string{}
	busy := map[int]bool{}
	var all sync.WaitGroup
	for i := range q {
		close(q[i])
		all.Go(func() {
			for msg := range q[i] {
				got, err := decode(msg)
				if err != nil {
					t.Error(err)
					return
				}
				if got.kind == KindHead {
					continue
				}
				user, n := got.event.Stream.ID, string(got.event.Data)
				<-time.After(map[string]time.Duration{"1": 60, "2": 20, "3": 0}[n] * time.Millisecond)
				mu.Lock()
				done[user] = append(done[user], n)
				busy[i] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	want := map[string][]string{}
	for _, user := range users {
		want[user] = []string{"1", "2", "3"}
	}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Error(diff)
	}
	if len(busy) < 2 {
		t.Errorf("%d workers had something to do: the keys do not spread", len(busy))
	}
}
