//go:build unix

package brokertest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/outbox"
)

// witness is a plain subscriber: what others than a Subscription get from the broker.
type witness struct {
	mu       sync.Mutex
	versions map[string]map[string]bool // by stream: the versions that came
	events   int                        // that came for the first time
	repeats  int
	shuffled int // came for the first time behind a later one of its stream
	skipped  int // stand for messages that a relay has set aside
	refused  int // are no relay's
}

// watch subscribes the witness; nil when the broker has none.
func watch(t *testing.T, c Clients, address string) *witness {
	t.Helper()
	if c.Witness == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	subscriber, err := Connect(ctx, func() (message.Subscriber, error) { return c.Witness(address) })
	if err != nil {
		t.Fatal(err)
	}
	following, stop := context.WithCancel(context.Background())
	messages, err := Connect(ctx, func() (<-chan *message.Message, error) { return subscriber.Subscribe(following, Topic) })
	if err != nil {
		stop()
		t.Fatal(err)
	}
	w := &witness{versions: map[string]map[string]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		for following.Err() == nil {
			for m := range messages {
				w.see(m)
				m.Ack()
			}
			// A subscriber may end with its connection. It goes on where it was, by what the broker keeps for it.
			messages, err = Connect(following, func() (<-chan *message.Message, error) { return subscriber.Subscribe(following, Topic) })
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait() // clients do not expect to be closed while somebody subscribes
		if err := subscriber.Close(); err != nil {
			t.Errorf("close the witness: %v", err)
		}
	})
	return w
}

func (w *witness) see(m *message.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Metadata[outbox.HeaderKind] {
	case "head":
		return
	case "event":
	case "skip":
		w.skipped++
		return
	default:
		w.refused++
		return
	}
	stream, version := m.Metadata[outbox.HeaderSubject], m.Metadata[outbox.HeaderStreamVersion]
	if w.versions[stream] == nil {
		w.versions[stream] = map[string]bool{}
	}
	if w.versions[stream][version] {
		w.repeats++
		return
	}
	w.versions[stream][version] = true
	w.events++
	if strconv.Itoa(len(w.versions[stream])) != version {
		w.shuffled++
	}
}

// judge waits until every event has come.
func (w *witness) judge(t *testing.T, want int) {
	t.Helper()
	if w == nil {
		t.Log("a plain subscriber was not watched: this broker keeps nothing for one")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		w.mu.Lock()
		events := w.events
		w.mu.Unlock()
		if events >= want {
			break
		}
		if !pause(ctx, 20*time.Millisecond) {
			t.Errorf("a plain subscriber got %d of %d events within %v: the broker lost what it had confirmed", events, want, patience)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.skipped > 0 {
		t.Errorf("relays have set aside %d messages, want none: the broker was away, it refused no message for its own sake", w.skipped)
	}
	t.Logf("a plain subscriber got %d events, %d repeats, %d out of order at first sight, %d that are no relay's", w.events, w.repeats, w.shuffled, w.refused)
}
