package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

func TestHandleWritesAndReturnsTheState(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	ctx := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Actor: "ada", CorrelationID: "c1"})
	result, err := shelves.Handle(ctx, "a", stock("pen", "ink"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Version != 2 || result.Written != 2 || result.Attempts != 1 || result.State.Stock["pen"] != 1 || result.Token.IsZero() {
		t.Errorf("result %+v", result)
	}
	events := history(t, store, "a")
	if events[0].Metadata.Actor != "ada" || events[1].Metadata.CorrelationID != "c1" || events[0].Metadata.CausationID != "" {
		t.Errorf("metadata %+v", events[0].Metadata)
	}
	if events[0].ID.Version() != 7 {
		t.Errorf("event id %s is not of version 7", events[0].ID)
	}
	loaded, err := shelves.Load(ctx, "a")
	if err != nil || loaded.Version != 2 || loaded.State.Seen != 2 {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
}

func TestHandleReturnsDomainErrorsUntouched(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen")))
	for _, domain := range []error{errOutOfStock, fmt.Errorf("rule: %w", eventstore.ErrConflict), &eventstore.ConflictError{}} {
		runs := 0
		result, err := shelves.Handle(t.Context(), "a", func(shelf) ([]event, error) { runs++; return nil, domain })
		if err != domain {
			t.Errorf("got error %v, want the very same as the decision's, %v", err, domain)
		}
		if runs != 1 || result.Version != 1 || result.State.Stock["pen"] != 1 || result.Written != 0 || !result.Token.IsZero() {
			t.Errorf("%v: %d runs, result %+v; want one run and the state decided on", domain, runs, result)
		}
	}
	wantVersion(t, store, "a", 1)
}

// R-AC08
func TestHandleWithoutEventsAssertsNothing(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen")))
	result, err := shelves.Handle(t.Context(), "a", func(shelf) ([]event, error) {
		must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("ink"))) // another writer
		return nil, nil
	})
	if err != nil || result.Version != 1 || result.Written != 0 || !result.Token.IsZero() {
		t.Fatalf("result %+v, %v", result, err)
	}
	if len(store.appends) != 2 {
		t.Errorf("%d appends, want none for a decision without events", len(store.appends))
	}
}

// R-AC07, first half
func TestHandleDecidesAgainOnFreshState(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store, aggregate.WithoutLanes())
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen")))
	var both sync.WaitGroup
	both.Add(2)
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			first := true
			_, err := shelves.Handle(t.Context(), "a", func(s shelf) ([]event, error) {
				if first { // both decide before either writes
					first = false
					both.Done()
					both.Wait()
				}
				return reserve("pen")(s)
			})
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), errOutOfStock) {
		t.Fatalf("got %v and %v, want one success and one refusal by the domain", a, b)
	}
	wantVersion(t, store, "a", 2)
}

// R-AC07, second half
func TestHandleGivesUpAfterBoundedRetries(t *testing.T) {
	t.Parallel()
	store := newStub()
	store.append = func(_ appendFunc, w []eventstore.Write) (eventstore.AppendResult, error) {
		return eventstore.AppendResult{}, &eventstore.ConflictError{Stream: w[0].Stream, Expected: w[0].Expected, Actual: 9}
	}
	var naps sleeps
	shelves := aggregate.NewRepository(store, shelfType, aggregate.WithRetry(naps.retry()))
	runs := 0
	result, err := shelves.Handle(t.Context(), "a", func(s shelf) ([]event, error) { runs++; return stock("pen")(s) })
	var conflict *eventstore.ConflictError
	if !errors.As(err, &conflict) || conflict.Actual != 9 || !errors.Is(err, eventstore.ErrConflict) {
		t.Fatalf("got %v, want a *ConflictError", err)
	}
	if runs != 4 || len(naps) != 3 || result.Attempts != 4 || result.Written != 0 {
		t.Errorf("%d runs, %d waits, result %+v; want 4 and 3", runs, len(naps), result)
	}
	for i, d := range naps {
		if d < 0 || d > min(time.Millisecond<<i, 2*time.Millisecond) {
			t.Errorf("wait %d is %s", i+1, d)
		}
	}
	if want := "aggregate: handle shelf-a: gave up after 4 attempts: eventstore: conflict on stream"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("text %q, want it to begin with %q", err, want)
	}
	if _, err = shelves.Handle(t.Context(), "a", stock("pen"), aggregate.WithRetry(aggregate.Retry{Retries: -1})); !errors.Is(err, eventstore.ErrConflict) {
		t.Error(err)
	}
	if len(store.appends) != 5 {
		t.Errorf("%d appends, want one more without retries", len(store.appends))
	}
}

func TestHandleRunsAgainWhenTheStoreIsBusy(t *testing.T) {
	t.Parallel()
	store := newStub()
	failures := 1
	busy := func() error {
		if failures--; failures >= 0 {
			return fmt.Errorf("deadlock: %w", eventstore.ErrBusy)
		}
		return nil
	}
	store.append = func(next appendFunc, _ []eventstore.Write) (eventstore.AppendResult, error) {
		if err := busy(); err != nil {
			return eventstore.AppendResult{}, err
		}
		return next()
	}
	shelves := newShelves(store)
	if result, err := shelves.Handle(t.Context(), "a", stock("pen")); err != nil || result.Attempts != 2 {
		t.Fatalf("append busy once: %+v, %v", result, err)
	}
	store.append, store.read, failures = nil, busy, 2
	if result, err := shelves.Handle(t.Context(), "a", stock("pen")); err != nil || result.Attempts != 3 || result.Version != 2 {
		t.Fatalf("read busy twice: %+v, %v", result, err)
	}
	failures = 100
	if _, err := shelves.Handle(t.Context(), "a", stock("pen")); !errors.Is(err, eventstore.ErrBusy) {
		t.Fatalf("always busy: %v", err)
	}
}

func TestHandleEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store := newStub()
	ctx, cancel := context.WithCancel(t.Context())
	store.append = func(_ appendFunc, w []eventstore.Write) (eventstore.AppendResult, error) {
		cancel()
		return eventstore.AppendResult{}, &eventstore.ConflictError{Stream: w[0].Stream}
	}
	shelves := aggregate.NewRepository(store, shelfType, aggregate.WithRetry(aggregate.Retry{Base: time.Hour, Cap: time.Hour}))
	_, err := shelves.Handle(ctx, "a", stock("pen"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, eventstore.ErrConflict) || len(store.appends) != 1 {
		t.Fatalf("got %v after %d appends, want the context's error and the conflict", err, len(store.appends))
	}
}

// R-AC04, R-AC05
func TestFailedAppendLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	broken := errors.New("disk on fire")
	store.append = func(appendFunc, []eventstore.Write) (eventstore.AppendResult, error) {
		return eventstore.AppendResult{}, broken
	}
	if _, err := shelves.Handle(t.Context(), "a", stock("pen")); !errors.Is(err, broken) || len(store.appends) != 1 {
		t.Fatalf("got %v after %d appends, want the store's error after one", err, len(store.appends))
	}
	store.append = nil
	if _, err := shelves.Handle(t.Context(), "a", reserve("pen")); err != errOutOfStock {
		t.Fatalf("got %v: the second command saw what was never stored", err)
	}
	wantVersion(t, store, "a", 0)
}

func TestPanicOfADecisionWritesNothing(t *testing.T) {
	t.Parallel()
	store := newStub()
	shelves := newShelves(store)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not pass through")
			}
		}()
		_, _ = shelves.Handle(t.Context(), "a", func(shelf) ([]event, error) { panic("boom") })
	}()
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen")))
	wantVersion(t, store, "a", 1)
}

func TestUnconfirmedAppendsBecomeCertain(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("connection lost: %w", eventstore.ErrUnconfirmed)
	fail := func(err error) (eventstore.AppendResult, error) { return eventstore.AppendResult{}, err }
	for _, test := range []struct {
		name   string
		append func(n int, store *stub, next appendFunc) (eventstore.AppendResult, error)
		want   error
		events int
		runs   int
	}{
		{name: "stored, answer lost", events: 1, runs: 1, append: func(n int, _ *stub, next appendFunc) (eventstore.AppendResult, error) {
			result, err := next()
			if n == 1 {
				return fail(lost)
			}
			return result, err
		}},
		{name: "not stored, then busy", events: 1, runs: 1, append: func(n int, _ *stub, next appendFunc) (eventstore.AppendResult, error) {
			switch n {
			case 1:
				return fail(lost)
			case 2:
				return fail(eventstore.ErrBusy)
			}
			return next()
		}},
		{name: "not stored, then overtaken", events: 2, runs: 2, append: func(n int, s *stub, next appendFunc) (eventstore.AppendResult, error) {
			if n == 1 {
				data, err := shelfCatalog.Encode(stocked{"overtaker"})
				if err != nil {
					return fail(err)
				}
				if _, err := s.Store.Append(context.Background(), eventstore.To(shelfType.Stream("a"), eventstore.NoStream, data)); err != nil {
					return fail(err)
				}
				return fail(lost)
			}
			return next()
		}},
		{name: "never an answer", events: 0, runs: 1, want: eventstore.ErrUnconfirmed, append: func(n int, _ *stub, _ appendFunc) (eventstore.AppendResult, error) {
			if n == 1 {
				return fail(lost)
			}
			return fail(eventstore.ErrBusy)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := newStub()
			n, runs := 0, 0
			store.append = func(next appendFunc, _ []eventstore.Write) (eventstore.AppendResult, error) {
				n++
				return test.append(n, store, next)
			}
			_, err := newShelves(store).Handle(t.Context(), "a", func(s shelf) ([]event, error) { runs++; return stock("pen")(s) })
			if !errors.Is(err, test.want) || eventstore.IsRetryable(err) {
				t.Fatalf("got %v, want %v, and not one that invites another run", err, test.want)
			}
			if runs != test.runs || n > 10 {
				t.Errorf("%d runs and %d appends, want %d runs", runs, n, test.runs)
			}
			wantVersion(t, store, "a", test.events)
		})
	}
}

type stubborn struct{ N int }

type unreadable struct{ N int }

func (u unreadable) MarshalText() ([]byte, error) { return []byte("x"), nil }
func (u *unreadable) UnmarshalText([]byte) error  { return errors.New("cannot be read") }

type blocked struct{ U unreadable }

func (blocked) shelfEvent() {}

func TestEventThatCannotBeReadBackIsRefused(t *testing.T) {
	t.Parallel()
	typ := aggregate.Define("shelf", func(s stubborn, _ event) stubborn { return s },
		eventstore.NewCatalog(eventstore.TypeOf[blocked]("shelf.blocked")))
	store := newStub()
	_, err := aggregate.NewRepository(store, typ).Handle(t.Context(), "a", func(stubborn) ([]event, error) { return []event{blocked{}}, nil })
	if err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v", err)
	}
	wantVersion(t, store, "a", 0)
	_, err = newShelves(store).Handle(t.Context(), "a", func(shelf) ([]event, error) { return []event{blocked{}}, nil })
	if !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("an event outside the catalog: got %v", err)
	}
	_, err = newShelves(store).Handle(t.Context(), "", stock("pen"))
	if !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("an empty id: got %v", err)
	}
}
