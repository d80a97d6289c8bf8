package consumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// topic is a source that is not the whole log: what it hands out can be had only once.
type topic struct {
	mu      sync.Mutex
	batches []Batch
	came    chan struct{}
}

func newTopic() *topic { return &topic{came: make(chan struct{}, 1)} }

// message is one of the topic. All of them are in partition 0.
func message(key string, at int64) eventstore.RecordedEvent {
	return eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			ID: uuid.New(), Type: "test.sent", SchemaVersion: 1, ContentType: "text/plain", Data: fmt.Appendf(nil, "%s%d", key, at),
			Metadata: eventstore.Metadata{Tenant: "t", Headers: map[string]string{"h": key}},
		},
		Stream: eventstore.StreamID{Category: "s", ID: key}, Version: eventstore.Version(at), Position: eventstore.PositionAt(at),
		PartitionKey: "s-" + key, RecordedAt: time.Unix(at, 0).UTC(),
	}
}

func (s *topic) publish(b Batch) {
	for _, e := range b.Events {
		b.Marks = append(b.Marks, eventstore.Mark{Partition: e.Partition, Position: e.Position})
	}
	for _, h := range b.Held {
		if h.Kind != Redelivered {
			b.Marks = append(b.Marks, eventstore.Mark{Partition: h.Event.Partition, Position: h.Event.Position})
		}
	}
	s.mu.Lock()
	s.batches = append(s.batches, b)
	s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
}

// Carries implements [Carrier].
func (s *topic) Carries() string { return "topic test" }

// ReadPage implements [Source].
func (s *topic) ReadPage(context.Context, eventstore.Position, eventstore.Filter, int) (eventstore.Page, error) {
	return eventstore.Page{}, fmt.Errorf("this is no log")
}

// Wait implements [Source].
func (s *topic) Wait(ctx context.Context, _ eventstore.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// Follow implements [Stream].
func (s *topic) Follow(context.Context, Follower) (Feed, error) { return s, nil }

// Close implements [Feed].
func (s *topic) Close() {}

// Next implements [Feed].
func (s *topic) Next(ctx context.Context, until time.Time) (Batch, error) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	for {
		s.mu.Lock()
		if len(s.batches) > 0 {
			b := s.batches[0]
			s.batches = s.batches[1:]
			s.mu.Unlock()
			return b, nil
		}
		s.mu.Unlock()
		select {
		case <-s.came:
		case <-ctx.Done():
			return Batch{}, nil
		}
	}
}

func (w *world) applied(at int64) {
	w.t.Helper()
	w.eventually(fmt.Sprint("partition 0 comes to ", at), func() bool {
		return ask[int64](w, "SELECT coalesce(max(applied), 0) FROM daybook.checkpoints WHERE consumer = $1 AND partition = 0", testConsumer) >= at
	})
}

func (w *world) kept() int { return ask[int](w, "SELECT count(*)::int FROM daybook.held") }

// What is queued behind a letter of a topic is kept with all that it had, and goes on in order.
func TestTopicKeepsWhatIsQueued(t *testing.T) {
	t.Parallel()
	w, bad, source := newWorld(t), turned("a1"), newTopic()
	w.failing(bad)
	stop := w.run(w.reading(source, Config{Classify: permanent}))
	second := message("a", 3)
	source.publish(Batch{Events: []eventstore.RecordedEvent{message("a", 1), message("b", 2), second}})
	source.publish(Batch{Events: []eventstore.RecordedEvent{message("b", 4), message("a", 5)}})
	w.applied(5)
	if n := w.kept(); n != 2 {
		t.Errorf("%d messages are kept", n)
	}
	stop()
	var again eventstore.RecordedEvent
	inner := w.handle
	w.handle = func(ctx context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error {
		if e.Position == second.Position {
			again = e
		}
		return inner(ctx, tx, e)
	}
	bad.off("a1")
	w.run(w.reading(source, Config{Classify: permanent}))
	w.plan(0, 0, 1, "true")
	w.becomes("a", "")
	if diff := cmp.Diff([]string{"b2", "b4", "a1", "a3", "a5"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(second, again, cmp.Comparer(func(a, b eventstore.Position) bool { return a == b })); diff != "" {
		t.Errorf("what was kept is not what came: %s", diff)
	}
	if n := w.kept(); n != 0 {
		t.Errorf("%d messages are still kept", n)
	}
}

// A message that its relay has set aside has a place; what follows of its sequence joins it, whatever else a batch has, and
// goes on when it has come.
func TestPlacesOfMessagesThatAreAwaited(t *testing.T) {
	t.Parallel()
	w, source := newWorld(t), newTopic()
	stop := w.run(w.reading(source, Config{}))
	held := func(kind HeldKind, key string, at int64) HeldMessage {
		return HeldMessage{Kind: kind, Event: message(key, at)}
	}
	source.publish(Batch{
		Events: []eventstore.RecordedEvent{message("a", 1), message("b", 2), message("a", 4)},
		Held:   []HeldMessage{held(Awaited, "a", 3)},
	})
	source.publish(Batch{Held: []HeldMessage{held(Awaited, "a", 5)}})
	source.publish(Batch{Events: []eventstore.RecordedEvent{message("a", 6), message("b", 7)}})
	w.applied(7)
	if diff := cmp.Diff([]string{"a1", "b2", "b7"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	// The second comes first, and something that was not awaited.
	source.publish(Batch{Held: []HeldMessage{held(Redelivered, "a", 5), held(Redelivered, "b", 2), held(Redelivered, "c", 1)}})
	w.eventually("it takes its place", func() bool { return ask[int](w, "SELECT count(*)::int FROM daybook.held WHERE NOT present") == 1 })
	stop()
	w.run(w.reading(source, Config{}))
	source.publish(Batch{Held: []HeldMessage{held(Redelivered, "a", 3)}})
	w.becomes("a", "")
	if diff := cmp.Diff([]string{"a1", "b2", "b7", "a3", "a4", "a5", "a6"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	source.publish(Batch{Events: []eventstore.RecordedEvent{message("a", 8)}})
	w.eventually("the sequence goes on with the others", func() bool { return len(w.seen()) == 8 })
	if n := w.kept(); n != 0 {
		t.Errorf("%d messages are still kept", n)
	}
}
