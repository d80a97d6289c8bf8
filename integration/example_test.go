package integration_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/integration"
)

// What the broker would not take is refused before it gets there.
func ExampleLimit() {
	broker := integration.Limit(&taken{}, 1<<20)
	fmt.Println(broker.Publish("orders", message.NewMessage("1", make([]byte, 1000))))
	fmt.Println(broker.Publish("orders", message.NewMessage("2", make([]byte, 2<<20))))
	// Output:
	// <nil>
	// integration: publish on "orders": message 2 has 2097153 bytes, and 1048576 are allowed
}
