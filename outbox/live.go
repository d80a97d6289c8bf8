package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Received is a message as a broker delivered it.
type Received struct {
	// OutboxMessage is what was published: an event as it stands in the log, or a message of its own.
	eventstore.OutboxMessage
	// Kind says what it is. Heads and skip markers have nothing to take effect; [Live] hands out none.
	Kind Kind
	// Epoch is that of the store that it came from.
	Epoch uuid.UUID
	// Previous is the position of the message before it on its topic and partition; zero for the first. A listener that
	// has not seen that one has missed something.
	Previous eventstore.Position
	// Redriven: it comes later than in its place, behind messages with higher positions, because the broker had refused it or
	// one before it of its partition key.
	Redriven bool
}

// ErrSubscriberClosed: the subscriber ended the subscription by itself.
var ErrSubscriberClosed = errors.New("outbox: the subscriber closed the subscription")

// Live calls handle with every message that is published on topic while it runs, one at a time: for pushing to browsers,
// dropping cache entries, watching. Any number of listeners may run; each gets every message, provided that the broker
// does so for subscriber (a queue that listeners share hands each message to one of them).
//
// Live is lossy on purpose. It keeps no progress and asks no store: what is published while nobody listens, while the
// broker is away or after a crash is not delivered later; a message may come twice, and brokers that reorder reorder. What
// must not miss anything uses a subscription with a store instead.
//
// Every message is acknowledged when handle returns, with an error too: it does not come again. Live ends with the first
// error, of handle or of a message that cannot be read ([*HeaderError]), and returns it wrapped; a handler that wants to
// go on returns nil. It returns nil when ctx ends, and [ErrSubscriberClosed] when the subscriber is closed. The subscriber
// stays open; it is the caller's.
func Live(ctx context.Context, subscriber message.Subscriber, topic string, handle func(context.Context, Received) error) error {
	if subscriber == nil || handle == nil {
		return errors.New("outbox: listen: subscriber or handle is nil: pass both")
	}
	ctx, cancel := context.WithCancel(ctx) // also ends the subscription
	defer cancel()
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return fmt.Errorf("outbox: listen to topic %q: %w", topic, err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg, open := <-messages:
			switch {
			case ctx.Err() != nil:
				return nil
			case !open:
				return fmt.Errorf("%w (topic %q)", ErrSubscriberClosed, topic)
			}
			if err := handOver(ctx, msg, handle); err != nil {
				if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					return nil // the handler was asked to end
				}
				return fmt.Errorf("outbox: listen to topic %q: %w", topic, err)
			}
		}
	}
}

func handOver(ctx context.Context, msg *message.Message, handle func(context.Context, Received) error) error {
	defer msg.Ack()
	r, err := decode(msg)
	if err != nil || !r.kind.IsMessage() {
		return err
	}
	return handle(ctx, r.public())
}
