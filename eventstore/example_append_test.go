package eventstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A writer claims the version that it has seen. When somebody else was faster nothing is written, and the error says what
// was found.
func ExampleTo() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	cart := eventstore.NewStreamID("cart", "7")

	add := func(expected eventstore.ExpectedVersion, sku string) error {
		data, err := cartEvents.Encode(ItemAdded{SKU: sku, Count: 1})
		if err != nil {
			return err
		}
		_, err = store.Append(ctx, eventstore.To(cart, expected, data))
		return err
	}
	fmt.Println(add(eventstore.NoStream, "tea"))
	fmt.Println(add(eventstore.Exactly(1), "milk"))

	err := add(eventstore.Exactly(1), "sugar")
	var conflict *eventstore.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("conflict, found version", conflict.Actual)
	}
	for event, err := range store.ReadStream(ctx, cart, eventstore.Range{}) {
		if err != nil {
			fmt.Println(err)
			break
		}
		payload, err := cartEvents.Decode(event)
		fmt.Println(event.Version, payload, err)
	}
	// Output:
	// <nil>
	// <nil>
	// conflict, found version 2
	// 1 {tea 1} <nil>
	// 2 {milk 1} <nil>
}

// A cart is checked out only if the price list that was read is still the same.
func ExampleCheck() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	prices, cart := eventstore.NewStreamID("prices", "2026"), eventstore.NewStreamID("cart", "7")
	changed := eventstore.EventData{Type: "prices.changed"}
	checkedOut := eventstore.EventData{Type: "cart.checked-out"}

	_, err := store.Append(ctx, eventstore.To(prices, eventstore.NoStream, changed))
	fmt.Println(err)
	_, err = store.Append(ctx, eventstore.To(prices, eventstore.Exactly(1), changed))
	fmt.Println(err)
	_, err = store.Append(ctx, eventstore.To(cart, eventstore.NoStream, checkedOut), eventstore.Check(prices, eventstore.Exactly(1)))
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// eventstore: conflict on stream "prices-2026": expected version 1, found version 2
}
