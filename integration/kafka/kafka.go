// Package kafka is Kafka with Daybook: how publishers and subscribers are set up, and which errors mean what.
package kafka

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// region publisher

// NewPublisher connects the publisher of a relay. Publish returns when all replicas in sync have the message.
func NewPublisher(brokers ...string) (message.Publisher, error) {
	settings := kafka.DefaultSaramaSyncPublisherConfig()
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Idempotent = true // its own retries do not overtake each other
	settings.Net.MaxOpenRequests = 1    // which Idempotent asks for
	settings.Producer.Retry.Max = 3     // the relay tries again; Publish shall return meanwhile
	settings.Metadata.Retry.Backoff = 250 * time.Millisecond
	return kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: brokers, OverwriteSaramaConfig: settings,
		Marshaler: kafka.NewWithPartitioningMarshaler(outbox.PartitionKey),
	}, nil)
}

// endregion

// region subscriber

// NewSubscriber connects a follower, which gets what is published from now on. Without a consumer group every follower
// gets all partitions, and none waits for a rebalancing.
func NewSubscriber(brokers ...string) (message.Subscriber, error) {
	return newSubscriber(brokers, sarama.OffsetNewest)
}

func newSubscriber(brokers []string, from int64) (message.Subscriber, error) {
	settings := kafka.DefaultSaramaSubscriberConfig()
	settings.Consumer.Offsets.Initial = from
	settings.Consumer.Retry.Backoff = 250 * time.Millisecond
	settings.Metadata.Retry.Backoff = 250 * time.Millisecond
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: brokers, OverwriteSaramaConfig: settings, Unmarshaler: kafka.DefaultMarshaler{}, ConsumerGroup: "",
	}, nil)
}

// endregion

// region classify

// Classify judges errors of the publisher, for outbox.Config. A topic that does not exist is Permanent; where topics are
// made while relays run, make that Transient.
func Classify(err error) eventstore.FailureKind {
	var settings sarama.ConfigurationError
	for _, refused := range []error{
		sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidTopic, sarama.ErrInvalidRecord, sarama.ErrInvalidMessage,
		sarama.ErrUnknownTopicOrPartition,
	} {
		if errors.Is(err, refused) {
			return eventstore.Permanent
		}
	}
	if errors.As(err, &settings) { // larger than Producer.MaxMessageBytes
		return eventstore.Permanent
	}
	return eventstore.Environment // no brokers, no leader, too few replicas, rights, …
}

// endregion
