package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// errClosed is what a closed client says.
var errClosed = errors.New("integration: the client is closed")

// region lazy

// Publisher connects at the first Publish, and tries again with each that follows until it succeeds. Most clients
// connect when they are made: a relay that is started while the broker is away would not start.
func Publisher(open func() (message.Publisher, error)) message.Publisher {
	return &publisher{lazy[message.Publisher]{open: open}}
}

// Subscriber connects at the first Subscribe, likewise. A runner that is started while the broker is away then goes on
// from the store.
func Subscriber(open func() (message.Subscriber, error)) message.Subscriber {
	return &subscriber{lazy[message.Subscriber]{open: open}}
}

// endregion

// lazy is a client that is not connected yet. It is safe for concurrent use.
type lazy[C interface{ Close() error }] struct {
	open func() (C, error)

	mu     sync.Mutex
	client C
	is     bool // open
	closed bool
}

func (l *lazy[C]) get() (c C, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return c, errClosed
	case l.is:
		return l.client, nil
	}
	if c, err = l.open(); err != nil {
		return c, fmt.Errorf("integration: connect: %w", err)
	}
	l.client, l.is = c, true
	return c, nil
}

// Close closes the client, if there is one.
func (l *lazy[C]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.is {
		l.closed = true
		return nil
	}
	l.closed = true
	return l.client.Close()
}

type publisher struct{ lazy[message.Publisher] }

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	client, err := p.get()
	if err != nil {
		return err
	}
	return client.Publish(topic, messages...)
}

type subscriber struct{ lazy[message.Subscriber] }

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	client, err := s.get()
	if err != nil {
		return nil, err
	}
	return client.Subscribe(ctx, topic)
}
