package postgres_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The token of an append asks for the messages that its routes made of it too: they draw positions of their own, behind
// those of the events.
func TestTokensCoverMappedMessages(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: []eventstore.Route{{
		Topic: "public",
		Map: func(_ eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
			return eventstore.EventData{Type: "public.happened", Data: e.Data}, nil
		},
	}}})
	check := func(what string, result eventstore.AppendResult) {
		t.Helper()
		for _, m := range result.Token.Marks() {
			last := value[int64](t, pool, `SELECT max(last_position) FROM daybook.outbox WHERE partition = $1`, m.Partition)
			if m.Position.Ordinal() < last {
				t.Errorf("%s: the token asks for %s of partition %d, and a message lies at %d", what, m.Position, m.Partition, last)
			}
		}
	}
	named := func() eventstore.EventData {
		e := newEvent("x")
		e.ID = uuid.New()
		return e
	}
	first := eventstore.To(newStream("order"), eventstore.NoStream, named(), named())
	check("a new stream", mustAppend(t, store, first))
	check("a stream that exists", mustAppend(t, store, eventstore.To(first.Stream, eventstore.Exactly(2), newEvent("y"))))
	check("any version", mustAppend(t, store, eventstore.To(first.Stream, eventstore.AnyVersion, newEvent("z"))))
	check("several streams", mustAppend(t, store,
		eventstore.To(newStream("order"), eventstore.NoStream, newEvent("a")), eventstore.To(newStream("order"), eventstore.NoStream, newEvent("b"))))
	again := mustAppend(t, store, first)
	if !again.Repeated {
		t.Error("the append is not a repeat")
	}
	check("a repeat", again)
}
