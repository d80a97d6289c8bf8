package aggregate_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestMain(m *testing.M) {
	// The driver reads on for a moment after a connection is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"))
}

// The domain of these tests is a shelf with a stock, which has a map, so that sharing would show.

type event interface{ shelfEvent() }

type (
	stocked  struct{ Item string }
	reserved struct{ Item string }
)

func (stocked) shelfEvent()  {}
func (reserved) shelfEvent() {}

type shelf struct {
	Stock map[string]int
	Seen  int
}

func (s shelf) Evolve(e event) shelf {
	if s.Stock == nil {
		s.Stock = map[string]int{}
	}
	s.Seen++
	switch e := e.(type) {
	case stocked:
		s.Stock[e.Item]++
	case reserved:
		s.Stock[e.Item]--
	}
	return s
}

var errOutOfStock = errors.New("shelf: out of stock")

func stock(items ...string) func(shelf) ([]event, error) {
	return func(shelf) (events []event, _ error) {
		for _, item := range items {
			events = append(events, stocked{item})
		}
		return events, nil
	}
}

func reserve(item string) func(shelf) ([]event, error) {
	return func(s shelf) ([]event, error) {
		if s.Stock[item] == 0 {
			return nil, errOutOfStock
		}
		return []event{reserved{item}}, nil
	}
}

func nothing(shelf) ([]event, error) { return nil, nil }

var shelfCatalog = eventstore.NewCatalog(
	eventstore.TypeOf[stocked]("shelf.stocked"), eventstore.TypeOf[reserved]("shelf.reserved"))

var shelfType = aggregate.Define("shelf", shelf.Evolve, shelfCatalog)

// stub is a store whose appends and reads a test can make fail. It counts appends.
type stub struct {
	*memory.Store
	append func(next appendFunc, writes []eventstore.Write) (eventstore.AppendResult, error)
	read   func() error

	once outcomes
	lock func(f func() error) error // instead of running f under a lock

	mu      sync.Mutex
	appends [][]eventstore.Write
	locked  [][]eventstore.StreamID
}

type appendFunc func() (eventstore.AppendResult, error)

func newStub() *stub { return &stub{Store: memory.New(memory.Config{})} }

func (s *stub) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	s.mu.Lock()
	s.appends = append(s.appends, writes)
	s.mu.Unlock()
	next := func() (eventstore.AppendResult, error) { return s.Store.Append(ctx, writes...) }
	if s.append != nil {
		return s.append(next, writes)
	}
	return next()
}

func (s *stub) ReadStream(ctx context.Context, id eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	if s.read != nil {
		if err := s.read(); err != nil {
			return func(yield func(eventstore.RecordedEvent, error) bool) { yield(eventstore.RecordedEvent{}, err) }
		}
	}
	return s.Store.ReadStream(ctx, id, r)
}

// sleeps is a Retry whose waits are recorded and take no time.
type sleeps []time.Duration

func (s *sleeps) retry() aggregate.Retry {
	return aggregate.Retry{Base: time.Millisecond, Cap: 2 * time.Millisecond, Sleep: func(ctx context.Context, d time.Duration) error {
		*s = append(*s, d)
		return ctx.Err()
	}}
}

func newShelves(store aggregate.Store, opts ...aggregate.Option) *aggregate.Repository[shelf, event] {
	var naps sleeps
	return aggregate.NewRepository(store, shelfType, append([]aggregate.Option{aggregate.WithRetry(naps.retry())}, opts...)...)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func history(t *testing.T, store eventstore.StreamReader, id string) []eventstore.RecordedEvent {
	t.Helper()
	var events []eventstore.RecordedEvent
	for e, err := range store.ReadStream(t.Context(), shelfType.Stream(id), eventstore.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func wantVersion(t *testing.T, store eventstore.StreamReader, id string, want int) {
	t.Helper()
	if got := len(history(t, store, id)); got != want {
		t.Fatalf("stream of %s has %d events, want %d", id, got, want)
	}
}
