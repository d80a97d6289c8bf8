package outbox_test

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// Three topics of one store: every event as it is, a selection, and what other teams may know.
func Example_routes() {
	routes := []eventstore.Route{
		{Topic: "everything"},
		{Topic: "orders.large", Categories: []string{"order"}, Where: func(_ eventstore.StreamID, e eventstore.EventData) bool {
			return len(e.Data) > 20
		}},
		{Topic: "public", Types: []string{"order.placed"}, Map: func(stream eventstore.StreamID, _ eventstore.EventData) (eventstore.EventData, error) {
			data, err := json.Marshal(map[string]string{"order": stream.ID}) // and not what was paid
			return eventstore.EventData{Type: "public.order-placed", ContentType: "application/json", Data: data}, err
		}},
	}
	if err := eventstore.ValidateRoutes(routes); err != nil {
		fmt.Println(err)
	}

	order := eventstore.NewStreamID("order", "7")
	placed := eventstore.EventData{ID: uuid.New(), Type: "order.placed", Data: []byte(`{"paid":12}`)}
	for _, r := range routes {
		if !r.Accepts(order, placed) {
			fmt.Println(r.Topic, "-")
			continue
		}
		m, err := r.Message(order, placed)
		fmt.Println(r.Topic, m.Type, string(m.Data), err)
	}
	// Output:
	// everything order.placed {"paid":12} <nil>
	// orders.large -
	// public public.order-placed {"order":"7"} <nil>
}
