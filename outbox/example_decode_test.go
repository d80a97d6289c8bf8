package outbox_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/outbox"
)

// A consumer without the store reads what its broker has brought: here the marker of a message that the relay has set aside.
func ExampleDecode() {
	msg := message.NewMessage("e27ef774-420f-5fe4-8fee-54be8aa788f9", nil)
	msg.Metadata = message.Metadata{
		"ce_specversion": "1.0", "ce_id": "e27ef774-420f-5fe4-8fee-54be8aa788f9", "ce_type": "daybook.skip", "ce_kind": "skip",
		"ce_source": "urn:daybook:0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11/daybook", "ce_epoch": "0f8b9a52-6d5a-4c0e-9b3e-0d6f2b1c7a11",
		"ce_topic": "ledger", "ce_partition": "5", "ce_partitionkey": "account-42", "ce_position": "1234", "ce_previous": "1200",
	}
	r, err := outbox.Decode(msg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Kind, r.Kind.IsMessage(), r.Topic, r.PartitionKey, r.Position, "after", r.Previous, r.Redriven)
	// Output: skip false ledger account-42 1234 after 1200 false
}
