package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = livetest.Patience

// The domain of these tests is a till that keeps the numbers that were put into it, in their order.

type event interface{ tillEvent() }

type added struct{ N int64 }

func (added) tillEvent() {}

type till struct{ Last int64 }

func (s till) Evolve(e event) till {
	if e, ok := e.(added); ok {
		s.Last = e.N
	}
	return s
}

var errNegative = errors.New("a till takes no negative numbers")

// add puts a number into a till; negative ones are refused.
type add struct {
	Till string
	N    int64
}

func (c add) Decide(till) ([]event, error) {
	if c.N < 0 {
		return nil, errNegative
	}
	return []event{added{c.N}}, nil
}

// put is add by a handler that does something before and after.
type put struct {
	Till string
	N    int64
}

// anything is a command whose handler is up to the test.
type anything struct{ Text string }

var (
	addType      = bus.TypeOf[add]("till.add")
	putType      = bus.TypeOf[put]("till.put", bus.Target(func(c put) string { return "till-" + c.Till }))
	anythingType = bus.TypeOf[anything]("test.anything", bus.Target(func(c anything) string { return "anything-" + c.Text }), bus.WithoutKey())
	tillType     = aggregate.Define("till", till.Evolve, eventstore.NewCatalog(eventstore.TypeOf[added]("till.added")),
		aggregate.Refuses("negative", errNegative))
)

// world is a store in a database of its own, with a bus.
type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
	bus   *bus.Bus
	tills *aggregate.Repository[till, event]
	queue *Queue

	mu     sync.Mutex
	handle func(ctx context.Context, c anything) (bus.Reply, error)
	around func(ctx context.Context, place string, c put) // atDeciding, atAppended
}

func newWorld(t testing.TB, opts ...postgrestest.Option) *world {
	t.Helper()
	w, err := openWorld(t.Context(), postgrestest.New(t, opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.store.Close)
	w.t = t
	return w
}

func openWorld(ctx context.Context, pool *pgxpool.Pool) (*world, error) {
	store, err := postgres.New(ctx, pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	w := &world{pool: pool, store: store, tills: aggregate.NewRepository(store, tillType)}
	w.bus = bus.New(bus.Config{Logger: slog.New(slog.DiscardHandler)}, bus.Idempotent(store))
	bus.HandleAggregate(w.bus, addType, w.tills, func(c add) string { return c.Till }, add.Decide)
	bus.Handle(w.bus, putType, func(ctx context.Context, c put) (bus.Reply, error) {
		w.mu.Lock()
		around := w.around
		w.mu.Unlock()
		around(ctx, atDeciding, c)
		if c.Till == hung { // ignores the end of its context in every way
			ctx = context.WithoutCancel(ctx)
		}
		result, err := w.tills.Handle(ctx, c.Till, add(c).Decide)
		around(ctx, atAppended, c)
		return bus.Reply{Stream: tillType.Stream(c.Till), Version: result.Version, Token: result.Token}, err
	})
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) {
		w.mu.Lock()
		handle := w.handle
		w.mu.Unlock()
		return handle(ctx, c)
	})
	w.puts(nothingAround)
	w.queue, err = NewQueue(pool, QueueConfig{Wake: store.Wake})
	return w, err
}

// hung is a till whose handler of put appends whatever happens.
const hung = "hung"

// The places around what the handler of put appends.
const (
	atDeciding = "deciding"
	atAppended = "appended"
)

func nothingAround(context.Context, string, put) {}

// puts sets what the handler of put does around its append.
func (w *world) puts(f func(ctx context.Context, place string, c put)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.around = f
}

// handles sets what carries out the commands of type anything.
func (w *world) handles(f func(ctx context.Context, c anything) (bus.Reply, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handle = f
}

func (w *world) dispatcher(source Source, cfg Config) *Dispatcher {
	w.t.Helper()
	if source == nil {
		source = Local(w.store.Outbox())
	}
	d, err := NewDispatcher(w.pool, source, w.bus, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// start runs d until stop is called, or the test ends.
func (w *world) start(d *Dispatcher) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			began := time.Now()
			select {
			case err = <-done:
				if took := time.Since(began); took > 2500*time.Millisecond {
					w.t.Errorf("Run took %v to end", took)
				}
			case <-time.After(patience):
				err = errors.New("Run did not end")
			}
		})
		return err
	}
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

// run is start with the usual dispatcher.
func (w *world) run(cfg Config) {
	w.t.Helper()
	stop := w.start(w.dispatcher(nil, cfg))
	w.t.Cleanup(func() {
		if err := stop(); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) send(payload any, opts ...bus.SendOption) uuid.UUID {
	w.t.Helper()
	id, err := w.sent(payload, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) sent(payload any, opts ...bus.SendOption) (uuid.UUID, error) {
	c, err := w.bus.Prepare(context.Background(), payload, opts...)
	if err != nil {
		return uuid.Nil, err
	}
	return w.queue.Enqueue(context.Background(), c)
}

// ends waits for the end of an operation.
func (w *world) ends(id uuid.UUID, want bus.OperationState) bus.Operation {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last bus.Operation
	for o, err := range w.queue.Watch(ctx, "", id) {
		if err != nil {
			w.t.Fatalf("operation %s: %v; it was %+v", id, err, last)
		}
		last = o
	}
	if last.State != want {
		w.t.Errorf("operation %s ended %q (%s: %s), want %q", id, last.State, last.Code, last.Reason, want)
	}
	return last
}

// numbers are those in a till, in their order.
func (w *world) numbers(id string) (got []int64) {
	w.t.Helper()
	for e, err := range w.store.ReadStream(context.Background(), tillType.Stream(id), eventstore.Range{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		var a added
		if err := eventstore.Msgpack.Unmarshal(e.Data, &a); err != nil {
			w.t.Fatal(err)
		}
		got = append(got, a.N)
	}
	return got
}

// wantNumbers wants 1 to n in a till, each once and in order.
func (w *world) wantNumbers(id string, n int) {
	w.t.Helper()
	got := w.numbers(id)
	want := make([]int64, n)
	for i := range want {
		want[i] = int64(i + 1)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("till %s has %v, want 1 to %d", id, got, n)
	}
}

func (w *world) exec(sql string, args ...any) int64 {
	w.t.Helper()
	return livetest.Exec(w.t, w.pool, sql, args...)
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	return livetest.Ask[T](w.t, w.pool, sql, args...)
}

// replies are the ends that were told on a topic, by command; one that was told twice fails the test.
func (w *world) replies(topic string) map[uuid.UUID]Reply {
	w.t.Helper()
	replies := map[uuid.UUID]Reply{}
	for after := (eventstore.Position{}); ; {
		page, err := w.store.Outbox().ReadPage(context.Background(), eventstore.OutboxQuery{
			Topic: topic, Partition: eventstore.AllPartitions, After: after, Limit: 500,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range page.Messages {
			id, r, err := DecodeReply(m.RecordedEvent)
			if err != nil {
				w.t.Fatal(err)
			}
			if m.ID != ReplyID(id) {
				w.t.Errorf("the reply to %s has id %s, want %s", id, m.ID, ReplyID(id))
			}
			if _, twice := replies[id]; twice {
				w.t.Errorf("the end of %s was told twice", id)
			}
			replies[id] = r
		}
		if page.Through == after {
			return replies
		}
		after = page.Through
	}
}

// inTx runs f in a transaction and commits it.
func (w *world) inTx(f func(tx pgx.Tx) error) {
	w.t.Helper()
	if err := pgx.BeginFunc(context.Background(), w.pool, f); err != nil {
		w.t.Fatal(err)
	}
}
