// Package gochannel is Watermill's channel within one process: no broker, but enough for a program that runs alone. It
// keeps nothing: what is on its way when the program ends is published again by the relay's next run.
//
// What is tested is less than with real brokers: relays and consumers are in one process with the channel, and are ended
// by their contexts instead of by SIGKILL. A restart closes the channel and opens another.
package gochannel

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/eventstore"
)

// region open

// Open returns a channel for a relay and its followers in one process. Publish returns when every subscriber has
// acknowledged, which keeps the order, and lets the slowest subscriber hold the relay.
func Open() *gochannel.GoChannel {
	return gochannel.NewGoChannel(gochannel.Config{
		OutputChannelBuffer:            64,
		BlockPublishUntilSubscriberAck: true,
	}, nil)
}

// endregion

// Classify judges errors of the channel, for outbox.Config. All that it can say is that it is closed, which is true of
// every message.
func Classify(error) eventstore.FailureKind { return eventstore.Environment }

// errAway is said while no channel is open.
var errAway = errors.New("gochannel: the channel is closed")

// Channel is a channel that can be restarted. It is safe for concurrent use.
type Channel struct {
	mu   sync.RWMutex
	open *gochannel.GoChannel
}

// Address is empty.
func (c *Channel) Address() string { return "" }

// Restart closes the channel, which ends what it has in hand, and opens another.
func (c *Channel) Restart() error {
	c.mu.Lock()
	old := c.open
	c.open = nil
	c.mu.Unlock()
	var err error
	if old != nil {
		err = old.Close()
	}
	c.mu.Lock()
	c.open = Open()
	c.mu.Unlock()
	return err
}

func (c *Channel) now() (*gochannel.GoChannel, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.open == nil {
		return nil, errAway
	}
	return c.open, nil
}

// Publish implements a Watermill publisher.
func (c *Channel) Publish(topic string, messages ...*message.Message) error {
	open, err := c.now()
	if err != nil {
		return err
	}
	return open.Publish(topic, messages...)
}

// Subscribe implements a Watermill subscriber. What it returns is closed by a restart; subscribe again.
func (c *Channel) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	open, err := c.now()
	if err != nil {
		return nil, err
	}
	return open.Subscribe(ctx, topic)
}

// Close does nothing: others use the channel too.
func (c *Channel) Close() error { return nil }
