package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The domain of these tests is a till.

type event interface{ tillEvent() }

type (
	paidIn  struct{ Cents int64 }
	paidOut struct{ Cents int64 }
)

func (paidIn) tillEvent()  {}
func (paidOut) tillEvent() {}

type till struct{ Cents int64 }

func (s till) Evolve(e event) till {
	switch e := e.(type) {
	case paidIn:
		s.Cents += e.Cents
	case paidOut:
		s.Cents -= e.Cents
	}
	return s
}

var errEmpty = errors.New("till: not enough in it")

type payIn struct {
	Till  string
	Cents int64
}

func (c payIn) Decide(till) ([]event, error) { return []event{paidIn{c.Cents}}, nil }

type payOut struct {
	Till  string
	Cents int64
}

func (c payOut) Decide(s till) ([]event, error) {
	if c.Cents > s.Cents {
		return nil, errEmpty
	}
	return []event{paidOut{c.Cents}}, nil
}

var errNegative = errors.New("cents are negative")

func (c payOut) Validate() error {
	if c.Cents < 0 {
		return errNegative
	}
	return nil
}

// anything is a command whose handler is up to the test.
type anything struct{ Secret string }

var (
	payInType    = bus.TypeOf[payIn]("till.pay-in")
	payOutType   = bus.TypeOf[payOut]("till.pay-out", bus.EncodedAs(eventstore.JSON))
	anythingType = bus.TypeOf[anything]("test.anything")

	tillType = aggregate.Define("till", till.Evolve, eventstore.NewCatalog(
		eventstore.TypeOf[paidIn]("till.paid-in"), eventstore.TypeOf[paidOut]("till.paid-out")))
)

// world is a bus on a store.
type world struct {
	*bus.Bus
	store *memory.Store
	tills *aggregate.Repository[till, event]
	// handle is the handler of anything; ran counts how often it was called.
	handle func(ctx context.Context, c anything) (bus.Reply, error)
	ran    atomic.Int32
}

// newWorld makes a bus whose middleware may need the store.
func newWorld(t testing.TB, config bus.Config, middleware func(*memory.Store) []bus.Middleware) *world {
	t.Helper()
	store := memory.New(memory.Config{})
	w := &world{store: store, tills: aggregate.NewRepository(store, tillType)}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	w.Bus = bus.New(config, middleware(store)...)
	bus.HandleAggregate(w.Bus, payInType, w.tills, func(c payIn) string { return c.Till }, payIn.Decide)
	bus.HandleAggregate(w.Bus, payOutType, w.tills, func(c payOut) string { return c.Till }, payOut.Decide)
	bus.Handle(w.Bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) {
		w.ran.Add(1)
		return w.handle(ctx, c)
	})
	// Unless a test says otherwise, it pays one cent into the till "any".
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		result, err := w.tills.Handle(ctx, "any", payIn{Cents: 1}.Decide)
		return bus.Reply{Version: result.Version, Repeated: result.Repeated, Result: result.State.Cents}, err
	}
	return w
}

func bare(*memory.Store) []bus.Middleware { return nil }

func idempotent(store *memory.Store) []bus.Middleware {
	return []bus.Middleware{bus.Idempotent(store)}
}

// clock is a clock that a test sets.
type clock struct{ now atomic.Int64 }

func newClock(t time.Time) *clock {
	c := &clock{}
	c.now.Store(t.UnixNano())
	return c
}

func (c *clock) time() time.Time         { return time.Unix(0, c.now.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func events(t testing.TB, store *memory.Store, id string) (found []eventstore.RecordedEvent) {
	t.Helper()
	for e, err := range store.ReadStream(context.Background(), tillType.Stream(id), eventstore.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, e)
	}
	return found
}

// wantNoKey fails unless a command may still be sent under the key for the first time.
func wantNoKey(t *testing.T, store *memory.Store, scope, key string) {
	t.Helper()
	_, found, err := store.FirstOutcome(context.Background(), eventstore.Claim{Scope: scope, Key: key, Request: []byte("whatever")})
	if found || err != nil {
		t.Fatalf("a key was stored: %v, %v", found, err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that is %v", err, want)
	}
}

func id(n byte) uuid.UUID { return uuid.UUID{15: n, 6: 0x40, 8: 0x80} }

type store = memory.Store

type probe struct{}

func tillOf(payload any) string {
	switch c := payload.(type) {
	case payIn:
		return c.Till
	case payOut:
		return c.Till
	}
	return ""
}

// end is how a command ended, without what differs from store to store.
type end struct {
	Version           eventstore.Version
	Stream            string
	Err               string
	State             bus.OperationState
	Repeated, Refused bool
}

func endOf(reply bus.Reply, err error) end {
	e := end{Version: reply.Version, Stream: reply.Stream.String(), State: bus.StateOf(reply, err), Repeated: reply.Repeated, Refused: reply.Refused}
	var expired *bus.ExpiredError
	switch {
	case errors.As(err, &expired):
		e.Err = "expired"
	case err != nil:
		e.Err = err.Error()
	}
	if errors.Is(err, eventstore.ErrReusedKey) {
		e.Version = 0 // whether the stream was loaded before the key was looked up is of no account
	}
	return e
}

// contents are the events of a till, without what differs from store to store.
func contents(t testing.TB, store *memory.Store, id string) (found []eventstore.EventData) {
	t.Helper()
	for _, e := range events(t, store, id) {
		data := e.EventData
		data.ID = uuid.Nil
		found = append(found, data)
	}
	return found
}
