package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
)

// tortureRoutes are two topics with filters, and one of messages made of events.
func tortureRoutes() []eventstore.Route {
	return []eventstore.Route{
		{Topic: "even", Where: func(_ eventstore.StreamID, e eventstore.EventData) bool { return len(e.Data)%2 == 0 }},
		{Topic: "hot", Categories: []string{"hot"}},
		{
			Topic: "public", Where: func(_ eventstore.StreamID, e eventstore.EventData) bool { return len(e.Data)%5 == 0 },
			Map: func(s eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
				return eventstore.EventData{Type: "public", Data: []byte(s.String())}, nil
			},
		},
	}
}

// message writes a message and nothing else, by plain SQL, and may commit long after events at higher positions.
func (x *torture) message(ctx context.Context, r *rand.Rand) error {
	id, key, rollback := uuid.New(), fmt.Sprint("key-", r.IntN(20)), r.IntN(10) == 0
	note := []eventstore.Write{eventstore.To(newStream("message"), eventstore.AnyVersion, eventstore.EventData{ID: id})}
	tx, err := x.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	if _, err := tx.Exec(ctx, `
INSERT INTO daybook.outbox (first_position, last_position, partition, topic, key, id, type, content_type, data)
SELECT n, n, daybook.partition_of($1, 64), 'commands', $1, $2, 'do', 'text/plain', 'x'
  FROM (SELECT nextval('daybook.log_position') AS n OFFSET 0) x`, key, id); err != nil {
		return err
	}
	if r.IntN(3) > 0 {
		linger(ctx, r)
	}
	if rollback {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		x.ledger.rolledBack(note)
		return nil
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	x.messages.Store(id, true)
	x.count("message alone")
	return nil
}

// sent is a message as the comparison sees it.
type sent struct {
	position  int64
	topic     string
	partition int
	id        uuid.UUID
}

// outboxReader reads pages of random sizes until it is told that nothing comes any more.
type outboxReader struct {
	query eventstore.OutboxQuery
	read  []sent
	err   error
}

func (o *outboxReader) run(ctx context.Context, outbox *postgres.Outbox, seed uint64, done <-chan struct{}) {
	rng := rand.New(rand.NewPCG(seed, 5))
	finishing := false
	for {
		select {
		case <-done:
			finishing = true
		default:
		}
		o.query.Limit = 1 + rng.IntN(60)
		page, err := outbox.ReadPage(ctx, o.query)
		if err != nil {
			o.err = err
			return
		}
		for _, m := range page.Messages {
			o.read = append(o.read, sent{m.Position.Ordinal(), m.Topic, m.Partition, m.ID})
		}
		idle := page.Through == o.query.After
		o.query.After = page.Through
		if idle && finishing {
			return
		}
		if idle {
			if o.err = outbox.Wait(ctx, o.query.After); o.err != nil {
				return
			}
		}
	}
}

// startOutboxReaders starts readers of everything, of single partitions and of a topic; finish lets them read to the end.
func startOutboxReaders(ctx context.Context, store *postgres.Store, seed uint64) (finish func() []*outboxReader) {
	var readers []*outboxReader
	for _, q := range []eventstore.OutboxQuery{
		{Partition: eventstore.AllPartitions},
		{Partition: eventstore.AllPartitions},
		{Partition: eventstore.AllPartitions, Topic: "hot"},
		{Partition: eventstore.PartitionOf("hot-0", eventstore.DefaultPartitions)}, // one that always has some
		{Partition: 40, Topic: "even"},
		{Partition: 17, Topic: "public"},
	} {
		readers = append(readers, &outboxReader{query: q})
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	for i, r := range readers {
		running.Go(func() { r.run(ctx, store.Outbox(), seed+uint64(i), done) })
	}
	return func() []*outboxReader {
		close(done)
		running.Wait()
		return readers
	}
}

// outboxTruth reads the whole outbox without the help of the engine.
func outboxTruth(t *testing.T, pool queryer) []sent {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
SELECT e.position, o.topic, e.partition, e.id
  FROM daybook.outbox o JOIN daybook.events e ON e.stream_id = o.stream_id AND e.version BETWEEN o.from_version AND o.to_version
UNION ALL
SELECT o.first_position, o.topic, o.partition, o.id FROM daybook.outbox o WHERE o.stream_id IS NULL
 ORDER BY 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sent, err error) {
		var id [16]byte
		err = row.Scan(&s.position, &s.topic, &s.partition, &id)
		s.id = id
		return s, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// verifyOutbox compares what should have been published, what was, and what every reader has read, in order.
func (x *torture) verifyOutbox(t *testing.T, store *postgres.Store, readers []*outboxReader) {
	t.Helper()
	truth := outboxTruth(t, x.admin)
	type published struct {
		topic string
		id    uuid.UUID
	}
	want := map[published]int64{} // where, or 0 for a position of its own
	for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Stream.Category == "raw" { // written past the engine
			continue
		}
		for _, r := range tortureRoutes() {
			switch {
			case !r.Accepts(e.Stream, e.EventData):
			case r.Map != nil:
				want[published{r.Topic, uuid.NewSHA1(e.ID, []byte(r.Topic))}] = 0
			default:
				want[published{r.Topic, e.ID}] = e.Position.Ordinal()
			}
		}
	}
	commands := 0
	for _, m := range truth {
		if m.topic == "commands" {
			commands++
			if x.ledger.neverStored[m.id] {
				t.Errorf("seed %d: message %s was rolled back and is stored", x.seed, m.id)
			}
			x.messages.Delete(m.id)
			continue
		}
		key := published{m.topic, m.id}
		if at, ok := want[key]; !ok || at != 0 && at != m.position {
			t.Errorf("seed %d: %+v should not be published, or at %d", x.seed, m, at)
		}
		delete(want, key)
	}
	x.messages.Range(func(id, _ any) bool {
		t.Errorf("seed %d: message %s was acknowledged and is missing", x.seed, id)
		return true
	})
	if len(want) > 0 || commands == 0 {
		t.Errorf("seed %d: %d events were not published; %d messages of their own", x.seed, len(want), commands)
	}
	for _, r := range readers {
		if r.err != nil {
			t.Errorf("seed %d: reader of %+v: %v", x.seed, r.query, r.err)
			continue
		}
		k, lost, other := 0, 0, 0
		for _, m := range truth {
			if r.query.Partition >= 0 && m.partition != r.query.Partition || r.query.Topic != "" && m.topic != r.query.Topic {
				continue
			}
			if k < len(r.read) && r.read[k] == m {
				k++
			} else {
				lost++
			}
		}
		if other = len(r.read) - k; lost+other > 0 || k == 0 && r.query.Topic == "" {
			t.Errorf("seed %d: reader of partition %d topic %q: %d messages in order, %d lost, %d doubled or out of order",
				x.seed, r.query.Partition, r.query.Topic, k, lost, other)
		}
	}
	t.Logf("%d messages, %d of them alone", len(truth), commands)
}
