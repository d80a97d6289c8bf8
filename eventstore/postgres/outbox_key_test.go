package postgres_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The messages of one key are those of its topic and partition with that key, on whatever streams, in whatever pages.
func TestOutboxOfOneKey(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	keys := []string{"order-1", "tenant", "order-2"}
	for i := range 60 {
		key := keys[i%3]
		id := eventstore.NewStreamID("order", fmt.Sprint(i%6))
		if key == "tenant" {
			id.Category = "line"
		}
		mustAppend(t, store, eventstore.Write{Stream: id, Expected: eventstore.AnyVersion, PartitionKey: key, Events: []eventstore.EventData{newEvent("x!"), newEvent("y!")}})
	}
	insertMessage(t, pool, "all", "tenant", "own")
	all := readOutbox(t, store.Outbox(), everything)
	for _, key := range append(keys, "nobody") {
		for _, topic := range []string{"all", "public"} {
			var want []eventstore.OutboxMessage
			for _, m := range all {
				if m.PartitionKey == key && m.Topic == topic {
					want = append(want, m)
				}
			}
			if want == nil && key != "nobody" && topic == "all" {
				t.Errorf("nothing has key %q", key)
			}
			for _, limit := range []int{1, 3, 1000} {
				q := eventstore.OutboxQuery{Topic: topic, Partition: eventstore.PartitionOf(key, 64), PartitionKey: key, Limit: limit}
				if diff := cmp.Diff(lines(want), lines(readOutbox(t, store.Outbox(), q))); diff != "" {
					t.Errorf("%s of %s, %d at a time:\n%s", key, topic, limit, diff)
				}
			}
		}
	}
}
