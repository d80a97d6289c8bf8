package outbox_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/outbox"
)

// published is a message as a relay publishes it.
func published(kind, payload, position, previous string) *message.Message {
	msg := message.NewMessage(uuid.NewString(), []byte(payload))
	msg.Metadata = message.Metadata{
		outbox.HeaderSpecVersion: "1.0", outbox.HeaderID: msg.UUID, outbox.HeaderType: "order.placed", outbox.HeaderKind: kind,
		outbox.HeaderTime: "2026-03-04T05:06:07.000089Z", outbox.HeaderSubject: "order-7", outbox.HeaderStreamVersion: "1",
		outbox.HeaderEpoch: "0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11", outbox.HeaderTopic: "orders", outbox.HeaderPartition: "21",
		outbox.HeaderPosition: position, outbox.HeaderPrevious: previous,
	}
	return msg
}

// A page shows orders as they come. What comes while nobody looks is not shown later.
func ExampleLive() {
	channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	defer channel.Close()
	if err := channel.Publish("orders", published("event", `{"total":"12.50"}`, "9", "4")); err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := outbox.Live(ctx, channel, "orders", func(_ context.Context, m outbox.Received) error {
		fmt.Println(m.Stream, m.Type, string(m.Data))
		cancel() // one is enough here
		return nil
	})
	fmt.Println("ended:", err)
	// Output:
	// order-7 order.placed {"total":"12.50"}
	// ended: <nil>
}

// Kafka's and other marshalers of Watermill ask for the key of a message. This function is the answer.
func ExamplePartitionKey() {
	key, err := outbox.PartitionKey("orders", published("event", `{}`, "9", "4"))
	fmt.Println(key, err)
	_, err = outbox.PartitionKey("orders", message.NewMessage("7", nil))
	fmt.Println(err)
	// Output:
	// 21 <nil>
	// outbox: decode message "7": header ce_partition "" is missing: only messages of an outbox.Relay can be read here: give other publishers a topic of their own
}
