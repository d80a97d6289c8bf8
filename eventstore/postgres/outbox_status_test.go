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

// Each segment of the relay has a line, with the first message of its own partitions; and the health of the store tells of a
// relay that is not there, by the message that waits for it.
func TestARelayThatIsNotThereIsSeen(t *testing.T) {
	t.Parallel()
	store, pool := freshStore(t, postgres.Config{})
	health := func() eventstore.Health {
		t.Helper()
		h := store.Health(t.Context())
		if len(h.Parts) != 1 || h.Parts[0].Component != "relay" {
			t.Fatalf("%+v", h)
		}
		if !h.Ready {
			t.Errorf("the store is not ready: %+v", h)
		}
		return h.Parts[0]
	}
	if h := store.Health(t.Context()); len(h.Parts) != 0 {
		t.Errorf("no relay has run: %+v", h)
	}
	mustExec(t, pool, `INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('outbox-relay', 2, 'relay')`)
	mustExec(t, pool, `INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition)
		SELECT 'outbox-relay', 2, i, i * 16, i * 16 + 15 FROM generate_series(0, 3) i`)
	if h := health(); !h.Ready || h.State != "running" || h.Reason != "" {
		t.Errorf("nothing to send: %+v", h)
	}
	const insert = `INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, data, recorded_at)
		SELECT p, p, $1, 't', 'k', gen_random_uuid(), 'test.sent', 'text/plain', '', clock_timestamp() - make_interval(secs => $2::int)
		  FROM (SELECT nextval('daybook.log_position') AS p FROM generate_series(1, $3::int)) x`
	mustExec(t, pool, insert, 5, 10, 2000) // another segment has a backlog
	if h := health(); !h.Ready || !strings.Contains(h.Reason, "has waited for 1") {
		t.Errorf("a message waits, but not for long: %+v", h)
	}
	mustExec(t, pool, insert, 40, 3600, 1)
	h := health()
	if h.Ready || h.State != "no owner" || time.Since(h.Since) < time.Hour || !strings.Contains(h.Reason, "no relay owns 4 of 4 segments (the first is 0)") ||
		!strings.Contains(h.Reason, "has waited for 1h0m") {
		t.Errorf("nobody has sent a message for an hour: %+v", h)
	}
	mustExec(t, pool, `UPDATE daybook.segments SET owner = 'host/1/a', expires_at = clock_timestamp() + interval '1 hour' WHERE segment = 2`)
	if h := health(); !h.Ready || !strings.Contains(h.Reason, "has waited for 1h0m") {
		t.Errorf("somebody is there: %+v", h)
	}
	st, err := store.Status(t.Context())
	if err != nil || len(st.Consumers) != 4 {
		t.Fatalf("%+v, %v", st, err)
	}
	for i, c := range st.Consumers {
		age := time.Since(c.Oldest)
		if c.Segment != i || c.Positions != 2001 || (c.Owner != "") != (i == 2) ||
			i == 0 && (age < 10*time.Second || age > time.Minute) || i == 2 && age < time.Hour || i%2 == 1 && !c.Oldest.IsZero() {
			t.Errorf("segment %d: %+v, %v", i, c, age)
		}
	}
	mustExec(t, pool, `UPDATE daybook.consumers SET state = 'stopped', reason = 'because'`)
	if h := health(); h.Ready || h.State != "stopped" || h.Reason != "because" {
		t.Errorf("it has stopped: %+v", h)
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
