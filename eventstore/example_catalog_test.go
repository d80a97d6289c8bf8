package eventstore_test

import (
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

type ItemAdded struct {
	SKU   string
	Count int64
}

type CheckedOut struct{}

var cartEvents = eventstore.NewCatalog(
	eventstore.TypeOf[ItemAdded]("cart.item-added"),
	eventstore.TypeOf[CheckedOut]("cart.checked-out", eventstore.EncodedAs(eventstore.JSON)),
)

func ExampleNewCatalog() {
	for _, event := range []any{ItemAdded{"tea", 2}, CheckedOut{}} {
		data, err := cartEvents.Encode(event)
		if err != nil {
			fmt.Println(err)
			return
		}
		back, err := cartEvents.Decode(eventstore.RecordedEvent{EventData: data})
		fmt.Printf("%s %s %+v %v\n", data.Type, data.ContentType, back, err)
	}
	_, err := cartEvents.Encode("not an event")
	fmt.Println(err)
	// Output:
	// cart.item-added application/msgpack {SKU:tea Count:2} <nil>
	// cart.checked-out application/json {} <nil>
	// eventstore: event "string" has a Go type that is in no catalog: add it to the catalog with TypeOf
}
