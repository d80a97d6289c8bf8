package gochannel

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration/brokertest"
)

func TestTorture(t *testing.T) {
	channel := &Channel{}
	if err := channel.Restart(); err != nil {
		t.Fatal(err)
	}
	brokertest.Torture(t, brokertest.Clients{
		Publisher:  func(string) (message.Publisher, error) { return channel, nil },
		Subscriber: func(string, string) (message.Subscriber, error) { return channel, nil },
		Classify:   Classify,
		InProcess:  true,
	}, channel)
}
