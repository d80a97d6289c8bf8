package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// fakeRows is an outbox in memory. Messages are added in order of position.
type fakeRows struct {
	mu         sync.Mutex
	messages   []eventstore.OutboxMessage
	head       int64
	cleaned    int64
	epoch      uuid.UUID
	earlier    []uuid.UUID
	partitions int
	grown      chan struct{}
	reads      int
}

func newFakeRows(partitions int) *fakeRows {
	return &fakeRows{epoch: uuid.New(), partitions: partitions, grown: make(chan struct{})}
}

func (r *fakeRows) add(messages ...eventstore.OutboxMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, messages...)
	for _, m := range messages {
		r.head = max(r.head, m.Position.Ordinal())
	}
	close(r.grown)
	r.grown = make(chan struct{})
}

func (r *fakeRows) end() eventstore.Position {
	head, _ := r.SafeHead(context.Background())
	return head
}

func position(t *testing.T, m *message.Message) eventstore.Position {
	p, err := eventstore.ParsePosition(m.Metadata[HeaderPosition])
	if err != nil {
		t.Error(err)
	}
	return p
}

// clean removes what is at or below a position.
func (r *fakeRows) clean(upTo int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleaned = upTo
	r.messages = slices.DeleteFunc(slices.Clone(r.messages), func(m eventstore.OutboxMessage) bool { return m.Position.Ordinal() <= upTo })
}

func (r *fakeRows) ReadPage(_ context.Context, q eventstore.OutboxQuery) (eventstore.OutboxPage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	upTo := q.UpTo
	if upTo.IsZero() {
		upTo = eventstore.PositionAt(r.head)
	}
	if q.After.Ordinal() > r.head {
		return eventstore.OutboxPage{}, &eventstore.HistoryError{Reason: "beyond the end", Remedy: "none"}
	}
	page := eventstore.OutboxPage{Through: upTo, Cleaned: eventstore.PositionAt(r.cleaned)}
	if upTo.Before(q.After) {
		page.Through = q.After
	}
	for _, m := range r.messages {
		if !m.Position.After(q.After) || m.Position.After(upTo) || q.Topic != "" && m.Topic != q.Topic ||
			q.Partition != eventstore.AllPartitions && m.Partition != q.Partition {
			continue
		}
		if len(page.Messages) == q.Limit {
			page.Through = page.Messages[q.Limit-1].Position
			break
		}
		page.Messages = append(page.Messages, m)
	}
	return page, nil
}

func (r *fakeRows) Wait(ctx context.Context, after eventstore.Position) error {
	r.mu.Lock()
	grown, head := r.grown, r.head
	r.mu.Unlock()
	if head > after.Ordinal() {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-grown:
		return nil
	}
}

func (r *fakeRows) SafeHead(context.Context) (eventstore.Position, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return eventstore.PositionAt(r.head), nil
}

func (r *fakeRows) Clean(context.Context, time.Duration) (eventstore.CleanReport, error) {
	return eventstore.CleanReport{}, nil
}

func (r *fakeRows) Highest() eventstore.Position { return r.end() }

func (r *fakeRows) Epoch() uuid.UUID { return r.epoch }
func (r *fakeRows) Epochs(context.Context) (uuid.UUID, []uuid.UUID, error) {
	return r.epoch, r.earlier, nil
}
func (r *fakeRows) Partitions() int { return r.partitions }
func (r *fakeRows) Schema() string  { return "daybook" }

// someMessages makes n messages of a topic with growing positions, in random partitions, with holes between.
func someMessages(random *rand.Rand, topic string, partitions, n int) []eventstore.OutboxMessage {
	messages := make([]eventstore.OutboxMessage, n)
	versions := make([]eventstore.Version, partitions)
	var position int64
	for i := range messages {
		position += 1 + random.Int64N(3)
		p := random.IntN(partitions)
		versions[p]++
		stream := eventstore.NewStreamID("test", fmt.Sprint(p))
		messages[i] = eventstore.OutboxMessage{Topic: topic, RecordedEvent: eventstore.RecordedEvent{
			EventData: eventstore.EventData{ID: uuid.New(), Type: "test.happened", SchemaVersion: 1, ContentType: "text/plain", Data: []byte(fmt.Sprint(i))},
			Stream:    stream, Version: versions[p], Position: eventstore.PositionAt(position),
			Partition: p, PartitionKey: stream.String(), RecordedAt: time.Unix(int64(i), 0).UTC(),
		}}
	}
	return messages
}

// published is what a relay sends of messages: each with the one before it in its partition, and heads at the end.
func published(rows *fakeRows, messages []eventstore.OutboxMessage) []*message.Message {
	encoder := newEncoder(rows.epoch, rows.Schema())
	tails := make([]eventstore.Position, rows.partitions)
	var all []*message.Message
	for _, m := range messages {
		all = append(all, encoder.encode(m, tails[m.Partition]))
		tails[m.Partition] = m.Position
	}
	head := messages[len(messages)-1]
	for p, tail := range tails {
		if tail.Before(head.Position) {
			all = append(all, encoder.encodeHead(head.Topic, p, head.Position, tail))
		}
	}
	return all
}

// fakeBroker hands to its subscriber what is sent to it. Messages are delivered one at a time, as they are acknowledged.
type fakeBroker struct {
	out  chan *message.Message
	subs chan struct{} // a token for each subscription
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{out: make(chan *message.Message), subs: make(chan struct{}, 100)}
}

func (b *fakeBroker) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	channel := make(chan *message.Message)
	b.subs <- struct{}{}
	go func() {
		defer close(channel)
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-b.out:
				select {
				case channel <- m:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return channel, nil
}

func (b *fakeBroker) Close() error { return nil }

// send delivers and waits until the message was taken, or ctx ends.
func (b *fakeBroker) send(ctx context.Context, messages ...*message.Message) {
	for _, m := range messages {
		select {
		case b.out <- m.Copy():
		case <-ctx.Done():
			return
		}
	}
}

// worsened loses a tenth of the messages, doubles a tenth, and shuffles within a window.
func worsened(random *rand.Rand, messages []*message.Message) []*message.Message {
	var all []*message.Message
	for _, m := range messages {
		switch n := random.IntN(10); n {
		case 0:
		case 1:
			all = append(all, m, m)
		default:
			all = append(all, m)
		}
	}
	for i := range all {
		j := i + random.IntN(min(8, len(all)-i))
		all[i], all[j] = all[j], all[i]
	}
	return all
}
