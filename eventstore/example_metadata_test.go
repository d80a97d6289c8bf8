package eventstore_test

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A middleware puts into the context who acts. Every append made with it stores that.
func ExampleWithMetadata() {
	ctx := eventstore.WithMetadata(context.Background(), eventstore.Metadata{
		Tenant: "acme", Actor: "ada", CorrelationID: "request-17",
		Headers: map[string]string{eventstore.HeaderTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	})
	store := memory.New(memory.Config{})
	cart := eventstore.NewStreamID("cart", "7")
	if _, err := store.Append(ctx, eventstore.To(cart, eventstore.NoStream, eventstore.EventData{Type: "cart.opened"})); err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range store.ReadStream(context.Background(), cart, eventstore.Range{}) {
		m := event.Metadata
		fmt.Println(m.Tenant, m.Actor, m.CorrelationID, m.Headers[eventstore.HeaderTraceparent][:6], err)
	}
	// Output:
	// acme ada request-17 00-4bf <nil>
}
