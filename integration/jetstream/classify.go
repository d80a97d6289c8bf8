package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/eventstore"
)

// tooLarge is what a stream says of a message that is larger than its MaxMsgSize allows.
const tooLarge nats.ErrorCode = 10054

// region classify

// Classify judges errors of the publisher, for outbox.Config.
func Classify(err error) eventstore.FailureKind {
	var said *nats.APIError
	var noStream *NoStreamError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), // the server's max_payload
		errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return eventstore.Permanent
	case errors.As(err, &said) && said.ErrorCode == tooLarge: // the stream's MaxMsgSize
		return eventstore.Permanent
	case errors.As(err, &noStream): // not nats.ErrNoStreamResponse, which also says that it has no leader now
		return eventstore.Permanent
	}
	return eventstore.Environment // time-outs, no connection, no leader, no room
}

// endregion

// NoStreamError says that JetStream answers, and has no stream for a topic.
type NoStreamError struct {
	Topic string
	Err   error
}

// Error names the topic and the remedy.
func (e *NoStreamError) Error() string {
	return fmt.Sprintf("jetstream: publish on %q: no stream takes this subject: make one: %v", e.Topic, e.Err)
}

// Unwrap returns what the client said.
func (e *NoStreamError) Unwrap() error { return e.Err }

// askPatience is short: a server that does not answer is away, which is the other case.
const askPatience = 2 * time.Second

// publisher finds out what it means when nobody has answered: the client cannot tell a topic without a stream from a
// stream without a leader.
type publisher struct {
	message.Publisher
	js nats.JetStreamManager
}

func (p publisher) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if !errors.Is(err, nats.ErrNoStreamResponse) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	if _, asked := p.js.StreamNameBySubject(topic, nats.Context(ctx)); errors.Is(asked, nats.ErrNoMatchingStream) {
		return &NoStreamError{topic, err}
	}
	return err
}
