package jetstream

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration/brokertest"
)

var clients = brokertest.Clients{
	Publisher:  func(address string) (message.Publisher, error) { return NewPublisher("nats://" + address) },
	Subscriber: func(address, _ string) (message.Subscriber, error) { return NewSubscriber("nats://" + address) },
	Witness:    func(address string) (message.Subscriber, error) { return NewDurable("nats://"+address, "witness") },
	Classify:   Classify,
	Serve:      serve,
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

func TestTorture(t *testing.T) {
	s := brokertest.Serve(t, func(ctx context.Context, address string) error { return ready(ctx, "nats://"+address) })
	if err := MakeStream(t.Context(), "nats://"+s.Address(), brokertest.Topic, 1); err != nil {
		t.Fatal(err)
	}
	brokertest.Torture(t, clients, s)
}
