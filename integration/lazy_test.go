package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration"
	"github.com/daybook-go/daybook/integration/brokertest"
)

var errAway = errors.New("the broker is away")

func TestPublisherConnectsLate(t *testing.T) {
	t.Parallel()
	broker, opened := &taken{}, 0
	p := integration.Publisher(func() (message.Publisher, error) {
		if opened++; opened < 3 {
			return nil, errAway
		}
		return broker, nil
	})
	for i, want := range []error{errAway, errAway, nil, nil} {
		if err := p.Publish("t", brokertest.Message(1)); !errors.Is(err, want) {
			t.Errorf("publish %d: %v, want %v", i, err, want)
		}
	}
	if opened != 3 || broker.n != 2 {
		t.Errorf("opened %d times, published %d messages; want 3 and 2", opened, broker.n)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Publish("t", brokertest.Message(1)); err == nil {
		t.Error("a closed publisher publishes")
	}
}

// silent counts how often it is closed.
type silent struct{ closed int }

func (*silent) Subscribe(context.Context, string) (<-chan *message.Message, error) { return nil, nil }
func (s *silent) Close() error                                                     { s.closed++; return nil }

func TestSubscriberConnectsLate(t *testing.T) {
	t.Parallel()
	inner, away := &silent{}, true
	open := func() (message.Subscriber, error) {
		if away {
			return nil, errAway
		}
		return inner, nil
	}
	unused := integration.Subscriber(open)
	if err := unused.Close(); err != nil { // has nothing to close
		t.Error(err)
	}
	s := integration.Subscriber(open)
	if _, err := s.Subscribe(t.Context(), "t"); !errors.Is(err, errAway) {
		t.Errorf("%v, want %v", err, errAway)
	}
	away = false
	if _, err := s.Subscribe(t.Context(), "t"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if inner.closed != 1 {
		t.Errorf("closed %d times, want once", inner.closed)
	}
}
