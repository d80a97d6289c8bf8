// Package rabbitmq is RabbitMQ with Daybook: how publishers and subscribers are set up, and which errors mean what.
package rabbitmq

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration"
)

// region publisher

// MaxMessage is the greatest message that is published: less than the server's max_message_size. To what is larger the
// server answers by closing the channel, and the client says only that it was not confirmed.
const MaxMessage = 16 << 20

// settings are those of both sides: a topic is a fanout exchange, and each follower has a queue of its own.
func settings(url, name string) amqp.Config {
	cfg := amqp.NewDurablePubSubConfig(url, func(topic string) string { return topic + "." + name })
	cfg.Connection.Reconnect = &amqp.ReconnectConfig{
		BackoffInitialInterval: 250 * time.Millisecond, BackoffMultiplier: 1.5, BackoffMaxInterval: 5 * time.Second,
	}
	return cfg
}

// NewPublisher connects the publisher of a relay. Publish returns when a majority of each queue's nodes has the message.
func NewPublisher(url string) (message.Publisher, error) {
	cfg := settings(url, "")
	cfg.Publish.ConfirmDelivery = true
	cfg.Publish.ChannelPoolSize = 16 // at least outbox.Config.Lanes; a channel for each message is slow
	p, err := amqp.NewPublisher(cfg, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return integration.Limit(p, MaxMessage), nil
}

// endregion

// region subscriber

// NewSubscriber connects a follower, which gets what is published from its first subscription on, in order. The name is
// that of a runner in a process. A queue that nobody reads is removed after an hour.
func NewSubscriber(url, name string) (message.Subscriber, error) {
	cfg := settings(url, name)
	cfg.Queue.Arguments = amqp091.Table{
		"x-queue-type": "quorum",
		"x-expires":    time.Hour.Milliseconds(),
	}
	cfg.Consume.Qos.PrefetchCount = 100 // one at a time otherwise
	return amqp.NewSubscriber(cfg, watermill.NopLogger{})
}

// endregion

// region classify

// Classify judges errors of the publisher, for outbox.Config. A message that is not confirmed is Environment: the client
// says the same for a queue that is full and for a connection that broke.
func Classify(err error) eventstore.FailureKind {
	var large *integration.TooLargeError
	var said *amqp091.Error
	switch {
	case errors.As(err, &large):
		return eventstore.Permanent
	case errors.Is(err, amqp091.ErrFieldType): // a header that cannot be sent
		return eventstore.Permanent
	case errors.As(err, &said) && (said.Code == amqp091.PreconditionFailed || said.Code == amqp091.ContentTooLarge):
		return eventstore.Permanent // the topic's exchange is of another kind, or the message too large
	}
	return eventstore.Environment
}

// endregion
