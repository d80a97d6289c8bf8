package jetstream

import (
	"context"
	"testing"

	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/integration/brokertest"
)

var clients = brokertest.Clients{
	Publisher:  func(address string) (message.Publisher, error) { return NewPublisher("nats://" + address) },
	Subscriber: func(address, name string) (message.Subscriber, error) { return NewSubscriber("nats://"+address, name) },
	Witness:    func(address string) (message.Subscriber, error) { return newWitness("nats://" + address) },
	Classify:   Classify,
	Serve:      serve,
}

// newWitness is a subscriber that gets everything, from the beginning.
func newWitness(url string) (message.Subscriber, error) {
	return wnats.NewSubscriber(wnats.SubscriberConfig{
		URL: url, NatsOptions: connection(),
		JetStream: wnats.JetStreamConfig{
			DurablePrefix:    "witness",
			SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit(), nats.MaxAckPending(1000)},
		},
	}, nil)
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

func TestTorture(t *testing.T) {
	t.Parallel()
	s := brokertest.Serve(t, func(ctx context.Context, address string) error { return ready(ctx, "nats://"+address) })
	if err := MakeStream(t.Context(), "nats://"+s.Address(), brokertest.Topic, 1); err != nil {
		t.Fatal(err)
	}
	brokertest.Torture(t, clients, s)
}
