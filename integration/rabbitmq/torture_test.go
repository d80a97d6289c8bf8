package rabbitmq

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration/brokertest"
)

var clients = brokertest.Clients{
	Publisher:  NewPublisher,
	Subscriber: NewSubscriber,
	Witness:    func(url string) (message.Subscriber, error) { return NewSubscriber(url, "witness") },
	Classify:   Classify,
}

func TestMain(m *testing.M) { brokertest.Main(m, clients) }

func TestTorture(t *testing.T) {
	brokertest.Torture(t, clients, serve(t, ""))
}
