package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// The relay is a consumer like others; what it has not sent yet may be a message without any event.
func TestStatusShowsTheRelay(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	mustAppend(t, store, eventstore.To(newStream("order"), eventstore.NoStream, manyEvents(5)...))
	subscribe(t, pool, "outbox-relay", "", 3)
	status := func() postgres.ConsumerStatus {
		t.Helper()
		st, err := store.Status(t.Context())
		if err != nil || len(st.Consumers) != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		return st.Consumers[0]
	}
	if c := status(); c.Kind != "relay" || c.Consumer != "outbox-relay" || c.Positions != 2 || c.Applied.Ordinal() != 3 || time.Since(c.Oldest) > time.Hour {
		t.Errorf("%+v", c)
	}
	pass(t, pool, "outbox-relay", 5)
	if c := status(); !c.Oldest.IsZero() || c.Positions != 0 {
		t.Errorf("%+v", c)
	}
	insertMessage(t, pool, "commands", "k", "x")
	if c := status(); c.Oldest.IsZero() || c.Positions != 1 {
		t.Errorf("a message alone: %+v", c)
	}
}

func TestCheckComparesTheOutbox(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{Routes: routes()})
	id := eventstore.NewStreamID("order", "1")
	mustAppend(t, store, eventstore.To(id, eventstore.NoStream, newEvent("1x!"), newEvent("2x")), eventstore.To(newStream("bill"), eventstore.NoStream, manyEvents(3)...))
	insertMessage(t, pool, "commands", "k", "x")
	check := func(limit, want int, part string) {
		t.Helper()
		defects, err := store.Check(t.Context(), limit)
		if err != nil || len(defects) != want || want > 0 && !strings.Contains(defects[len(defects)-1].String(), part) {
			t.Errorf("%v, %v; want %d", defects, err, want)
		}
	}
	check(10, 0, "")
	for i, change := range []string{"to_version = 3", "last_position = last_position + 1", "from_version = 2", "partition = 63 - partition"} {
		mustExec(t, pool, `CREATE TABLE kept AS SELECT * FROM daybook.outbox WHERE topic = 'all' AND stream_id = 'order-1'`)
		mustExec(t, pool, `UPDATE daybook.outbox SET `+change+` WHERE topic = 'all' AND stream_id = 'order-1'`)
		check(10, 1, "topic all")
		if i == 0 {
			mustExec(t, pool, `UPDATE daybook.outbox SET to_version = 9 WHERE topic = 'some' AND stream_id = 'order-1'`)
			check(10, 2, "topic some")
			check(1, 1, "topic all")
			mustExec(t, pool, `UPDATE daybook.outbox SET to_version = 2 WHERE topic = 'some' AND stream_id = 'order-1'`)
		}
		mustExec(t, pool, `DELETE FROM daybook.outbox WHERE topic = 'all' AND stream_id = 'order-1'`)
		mustExec(t, pool, `INSERT INTO daybook.outbox SELECT * FROM kept`)
		mustExec(t, pool, `DROP TABLE kept`)
	}
	check(10, 0, "")
}
