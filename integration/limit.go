package integration

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// TooLargeError is a message that [Limit] has refused.
type TooLargeError struct {
	Topic    string
	ID       string // of the message
	Size, Of int    // bytes: of the message, and the greatest that is let through
}

// Error names the message and the sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("integration: publish on %q: message %s has %d bytes, and %d are allowed", e.Topic, e.ID, e.Size, e.Of)
}

// region limit

// Limit refuses messages that a broker would not take for their size, with a [*TooLargeError]. It is for brokers that
// answer such a message by closing the connection, which looks as if they were away: no classifier can tell. The size is
// that of payload and metadata; leave some room for how the client packs them. Limit(p, max) is as safe for concurrent
// use as p.
func Limit(p message.Publisher, bytes int) message.Publisher { return limited{p, bytes} }

type limited struct {
	message.Publisher
	bytes int
}

func (l limited) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		size := len(m.UUID) + len(m.Payload)
		for k, v := range m.Metadata {
			size += len(k) + len(v)
		}
		if size > l.bytes {
			return &TooLargeError{Topic: topic, ID: m.UUID, Size: size, Of: l.bytes}
		}
	}
	return l.Publisher.Publish(topic, messages...)
}

// endregion
