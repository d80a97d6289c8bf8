// Package redisstream is Redis streams with Daybook: how publishers and subscribers are set up, and which errors mean
// what.
package redisstream

import (
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/integration"
)

// region publisher

// MaxMessage is the greatest message that is published: less than the server's proto-max-bulk-len. What is larger makes
// the server close the connection, and does not come from it as an error.
const MaxMessage = 16 << 20

// NewPublisher connects the publisher of a relay. A stream keeps about a million entries; followers need none of them.
func NewPublisher(address string) (message.Publisher, error) {
	client := redis.NewClient(&redis.Options{
		Addr: address, ContextTimeoutEnabled: true, // let what is published end with the relay
	})
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client, DefaultMaxlen: 1_000_000}, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return integration.Limit(p, MaxMessage), nil
}

// endregion

// region subscriber

// NewSubscriber connects a follower, which gets what is published from now on, in order. The server keeps nothing for it.
func NewSubscriber(address string) (message.Subscriber, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: "", FanOutOldestId: "$", // every follower gets everything
		DisableIndefiniteInitialBlock: true, // else a subscription of a quiet topic never ends
	}, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// endregion

// NewDurable connects a plain subscriber, for which the server keeps what it has not acknowledged, from the beginning of
// the stream.
func NewDurable(address, group string) (message.Subscriber, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: group, Consumer: "one", OldestId: "0", DisableIndefiniteInitialBlock: true,
		ClaimInterval: time.Second, MaxIdleTime: 5 * time.Second,
	}, nil)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return s, nil
}

// region classify

// Classify judges errors of the publisher, for outbox.Config.
func Classify(err error) eventstore.FailureKind {
	var large *integration.TooLargeError
	var said redis.Error
	switch {
	case errors.As(err, &large):
		return eventstore.Permanent
	case errors.As(err, &said) && strings.HasPrefix(said.Error(), "WRONGTYPE"): // the topic's key is no stream
		return eventstore.Permanent
	}
	return eventstore.Environment // no connection, OOM, LOADING, READONLY, MISCONF, NOREPLICAS, NOPERM, …
}

// endregion
