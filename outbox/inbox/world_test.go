package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox"
)

const (
	// patience bounds every wait of these tests; none is expected to come near it.
	patience = livetest.Patience
	topic    = "orders"
	lease    = 500 * time.Millisecond
)

// world is a database of an inbox, and what a store that it cannot see has published.
type world struct {
	t      testing.TB
	pool   *pgxpool.Pool
	broker *broker
	pub    *publisher
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t), broker: newBroker(1), pub: newPublisher(8)}
	w.exec(`CREATE TABLE applied (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, partition int, key text, position bigint, data text)`)
	return w
}

// seeds are those of a test at full size, or the first and the last of them.
func seeds(n uint64) (all []uint64) {
	for seed := range n {
		if testscale.Factor() >= 1 || seed == 0 || seed == n-1 {
			all = append(all, seed)
		}
	}
	return all
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	livetest.Exec(w.t, w.pool, sql, args...)
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return livetest.Ask[T](w.t, w.pool, sql, args...)
}

// write is what handlers of these tests do.
func write(ctx context.Context, tx pgx.Tx, m Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO applied (partition, key, position, data) VALUES ($1, $2, $3, $4)",
		m.Partition, m.PartitionKey, m.Position.Ordinal(), string(m.Data))
	return err
}

func (w *world) config() Config {
	return Config{
		Name: "stock", Topic: topic, Partitions: w.pub.partitions, Lease: lease, HoldFor: 20 * time.Millisecond,
		RetryBase: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond,
	}
}

func (w *world) inbox(cfg Config, h Handler) *Inbox {
	w.t.Helper()
	in, err := New(w.pool, w.broker, cfg, h)
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

// start runs an inbox until stop is called, or the test ends. It must end within two seconds.
func (w *world) start(in *Inbox) (stop func()) {
	w.t.Helper()
	return livetest.Start(w.t, in.Run)
}

// eventually polls, for what nothing tells of.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	livetest.Eventually(w.t, what, is, w.dump)
}

func (w *world) dump() string {
	return ask[string](w, `SELECT format('applied %s, parked %s, letters %s, held %s', (SELECT count(*) FROM applied),
		(SELECT json_agg(p) FROM daybook.parked p), (SELECT json_agg(json_build_array(l.position, l.state, l.errors)) FROM daybook.letters l),
		(SELECT json_agg(json_build_array(h.topic, h.sequence, h.partition, h.position, h.previous, h.present)) FROM daybook.held h))`)
}

func (w *world) applied(n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d messages are applied", n), func() bool { return ask[int](w, "SELECT count(*)::int FROM applied") >= n })
}

// exact checks that the messages were applied, each once and in order per key, and that nothing is left over.
func (w *world) exact(want []*sent) {
	w.t.Helper()
	w.applied(len(want))
	w.eventually("nothing waits any more", func() bool {
		return ask[int](w, "SELECT (SELECT count(*) FROM daybook.parked) + (SELECT count(*) FROM daybook.held)") == 0
	})
	rows, _ := w.pool.Query(context.Background(), "SELECT key, position, data FROM applied ORDER BY n")
	got := map[string][]string{}
	var key, data string
	var position int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &position, &data}, func() error {
		got[key] = append(got[key], fmt.Sprint(position, " ", data))
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	expected := map[string][]string{}
	for _, m := range want {
		expected[m.key] = append(expected[m.key], fmt.Sprint(m.position, " ", m.data))
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if !slices.Equal(got[key], expected[key]) {
			w.t.Errorf("key %s: applied %v, want %v", key, got[key], expected[key])
		}
	}
	if len(got) != len(expected) {
		w.t.Errorf("%d keys, want %d", len(got), len(expected))
	}
}

// publisher makes messages as a relay publishes them.
type publisher struct {
	epoch      uuid.UUID
	partitions int
	position   int64
	tails      []int64
}

// sent is a message of the log.
type sent struct {
	partition          int
	position, previous int64
	key, data          string
	epoch              uuid.UUID
}

func newPublisher(partitions int) *publisher {
	return &publisher{epoch: uuid.New(), partitions: partitions, tails: make([]int64, partitions)}
}

// next is a message of a key, which decides about its partition.
func (p *publisher) next(key int) *sent {
	p.position += 2
	part := key % p.partitions
	m := &sent{partition: part, position: p.position, previous: p.tails[part], key: fmt.Sprintf("order-%d", key), data: fmt.Sprint(p.position), epoch: p.epoch}
	p.tails[part] = p.position
	return m
}

func (p *publisher) several(n int, key func(i int) int) []*sent {
	all := make([]*sent, n)
	for i := range all {
		all[i] = p.next(key(i))
	}
	return all
}

// head says that nothing else lies in a partition up to now.
func (p *publisher) head(partition int) *message.Message {
	p.position++
	return (&sent{partition: partition, position: p.position, previous: p.tails[partition], epoch: p.epoch}).wire(outbox.KindHead)
}

func (m *sent) wire(kind outbox.Kind) *message.Message {
	msg := message.NewMessage(uuid.NewSHA1(m.epoch, fmt.Append(nil, kind, m.position)).String(), nil)
	msg.Metadata = message.Metadata{
		outbox.HeaderSpecVersion: "1.0", outbox.HeaderKind: string(kind), outbox.HeaderEpoch: m.epoch.String(), outbox.HeaderTopic: topic,
		outbox.HeaderPartition: strconv.Itoa(m.partition), outbox.HeaderPosition: strconv.FormatInt(m.position, 10),
		outbox.HeaderPrevious: strconv.FormatInt(m.previous, 10), outbox.HeaderID: msg.UUID, outbox.HeaderType: "order.changed",
	}
	if kind != outbox.KindHead {
		msg.Metadata[outbox.HeaderPartitionKey] = m.key
	}
	if kind == outbox.KindEvent {
		msg.Payload = []byte(m.data)
		msg.Metadata[outbox.HeaderSubject] = m.key
		msg.Metadata[outbox.HeaderStreamVersion] = strconv.FormatInt(m.position, 10)
		msg.Metadata[outbox.HeaderTime] = "2026-01-02T03:04:05.000006Z"
		msg.Metadata[outbox.HeaderSchemaVersion] = "1"
	}
	return msg
}

func (m *sent) event() *message.Message { return m.wire(outbox.KindEvent) }
func (m *sent) skip() *message.Message  { return m.wire(outbox.KindSkip) }
func (m *sent) redriven() *message.Message {
	msg := m.event()
	msg.Metadata[outbox.HeaderRedriven] = "1"
	return msg
}

func (m *sent) discarded() *message.Message {
	msg := m.skip()
	msg.Metadata[outbox.HeaderRedriven] = "1"
	return msg
}

func events(all []*sent) []*message.Message {
	messages := make([]*message.Message, len(all))
	for i, m := range all {
		messages[i] = m.event()
	}
	return messages
}

// broker hands out what is sent to it, each message until it is acknowledged. Each subscription has one message in hand for
// each of its lanes.
type broker struct {
	lanes int

	mu       sync.Mutex
	waiting  []*message.Message
	more     chan struct{}
	subs     int
	open     int // messages that were handed out and not acknowledged
	most     int
	acked    int
	delivers int
}

func newBroker(lanes int) *broker { return &broker{lanes: lanes, more: make(chan struct{})} }

// Subscribe implements [message.Subscriber].
func (b *broker) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	b.mu.Lock()
	b.subs++
	b.mu.Unlock()
	var lanes sync.WaitGroup
	for range b.lanes {
		lanes.Go(func() {
			for ctx.Err() == nil {
				b.deliver(ctx, out)
			}
		})
	}
	go func() {
		lanes.Wait()
		close(out)
	}()
	return out, nil
}

// Close implements [message.Subscriber].
func (b *broker) Close() error { return nil }

func (b *broker) deliver(ctx context.Context, out chan<- *message.Message) {
	b.mu.Lock()
	if len(b.waiting) == 0 {
		more := b.more
		b.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		return
	}
	m := b.waiting[0]
	b.waiting = b.waiting[1:]
	b.open++
	b.delivers++
	b.most = max(b.most, b.open)
	b.mu.Unlock()
	copied := m.Copy()
	ok := false
	select {
	case out <- copied:
		select {
		case <-copied.Acked():
			ok = true
		case <-copied.Nacked():
		case <-ctx.Done():
			select { // who acknowledges while the subscription ends is heard as a rule
			case <-copied.Acked():
				ok = true
			default:
			}
		}
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if ok {
		b.acked++
		return
	}
	b.waiting = append([]*message.Message{m}, b.waiting...)
}

func (b *broker) send(messages ...*message.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, messages...)
	close(b.more)
	b.more = make(chan struct{})
}

// empty reports whether everything was acknowledged.
func (b *broker) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.open == 0
}

func (w *world) drained() {
	w.t.Helper()
	w.eventually("all is acknowledged", w.broker.empty)
}
