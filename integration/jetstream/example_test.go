package jetstream_test

import (
	"context"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration/jetstream"
)

// A broker within the process, for measurements and tests.
func ExampleOpen() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	folder, err := os.MkdirTemp("", "jetstream")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	broker, err := jetstream.Open(ctx, folder, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()

	subscriber, err := broker.Subscriber() // for outbox.NewSubscription
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := broker.Publisher.Publish("orders", message.NewMessage("1", []byte("placed"))); err != nil { // outbox.NewRelay does
		fmt.Println(err)
		return
	}
	m := <-messages
	m.Ack()
	fmt.Println(m.UUID, string(m.Payload))
	// Output: 1 placed
}
