package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

func TestTheLastTryLocks(t *testing.T) {
	t.Parallel()
	store := newStub()
	others := 0
	store.append = func(next appendFunc, writes []eventstore.Write) (eventstore.AppendResult, error) {
		if len(store.locked) == 0 { // somebody is always faster, until the streams are locked
			others++
			data, err := shelfCatalog.Encode(stocked{"pen"})
			if err != nil {
				return eventstore.AppendResult{}, err
			}
			if _, err := store.Store.Append(context.Background(), eventstore.To(writes[0].Stream, eventstore.AnyVersion, data)); err != nil {
				return eventstore.AppendResult{}, err
			}
		}
		return next()
	}
	result, err := newShelves(store).Handle(t.Context(), "a", reserve2("pen"))
	if err != nil || result.Attempts != 4 || others != 3 || len(store.locked) != 1 || result.State.Stock["pen"] != 2 {
		t.Errorf("%+v, %v, locked %v", result, err, store.locked)
	}
	// A transaction locks what the run before has touched.
	store.locked, others = nil, 0
	shelves := newShelves(store)
	var naps sleeps
	receipt, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
		if _, err := shelves.In(w, "b").State(); err != nil {
			return err
		}
		_ = shelves.In(w, "never touched")
		return shelves.In(w, "a").Decide(stock("ink"))
	}, aggregate.WithRetry(naps.retry()), key("k"))
	want := []eventstore.StreamID{shelfType.Stream("b"), shelfType.Stream("a")}
	if err != nil || receipt.Attempts != 4 || len(store.locked) != 1 || !slices.Equal(store.locked[0], want) {
		t.Errorf("%+v, %v, locked %v", receipt, err, store.locked)
	}
}

// reserve2 reserves whether there is any or not.
func reserve2(item string) func(shelf) ([]event, error) {
	return func(shelf) ([]event, error) { return []event{reserved{item}}, nil }
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	exclusive := aggregate.Exclusive()
	for i, test := range []struct {
		decide func(Account) ([]Event, error)
		want   error
	}{{Deposit{5}.Decide, nil}, {Withdraw{100}.Decide, ErrFunds}, {Withdraw{0}.nothing, nil}} {
		for try, opts := range [][]aggregate.HandleOption{{exclusive}, {exclusive, key(fmt.Sprint(i))}, {exclusive, key(fmt.Sprint(i))}} {
			store.locked = nil
			result, err := accounts.Handle(t.Context(), "a", test.decide, opts...)
			repeated := try == 2
			if !errors.Is(err, test.want) || result.Repeated != repeated || repeated == (len(store.locked) == 1) {
				t.Errorf("%d, %d: %+v, %v, locked %v", i, try, result, err, store.locked)
			}
		}
	}
	wantEvents := func(n int) {
		t.Helper()
		if got := len(streamOf(t, store, "a")); got != n {
			t.Errorf("%d events, want %d", got, n)
		}
	}
	wantEvents(2)
	// Another process stored the outcome before the lock was there.
	store.lock = func(f func() error) error {
		store.lock = nil
		must[accountResult](t)(newAccounts(&process{store}).Handle(t.Context(), "a", Deposit{1}.Decide, key("late")))
		return f()
	}
	if result, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, exclusive, key("late")); err != nil || !result.Repeated {
		t.Errorf("late: %+v, %v", result, err)
	}
	wantEvents(3)
	// A store that locks no streams.
	plain := &plainStore{newStub()}
	if result, err := newAccounts(plain).Handle(t.Context(), "a", Deposit{1}.Decide, exclusive); err != nil || result.Version != 1 {
		t.Errorf("plain: %+v, %v", result, err)
	}
	// Locking fails.
	store.lock = func(func() error) error { return fmt.Errorf("wait: %w", context.DeadlineExceeded) }
	if _, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, exclusive); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no lock: %v", err)
	}
	store.lock = func(f func() error) error { return errors.Join(f(), errors.New("disk on fire")) }
	if _, err := accounts.Handle(t.Context(), "a", Withdraw{0}.nothing, exclusive); err != nil {
		t.Errorf("nothing was to be stored, and yet: %v", err)
	}
	busy := 0
	store.lock = func(f func() error) error {
		if busy++; busy < 3 {
			return eventstore.ErrBusy
		}
		return f()
	}
	if result, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, exclusive); err != nil || result.Attempts != 1 || busy != 3 {
		t.Errorf("busy: %+v, %v after %d", result, err, busy)
	}
	wantEvents(4)
	// A panic within.
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not pass through")
			}
		}()
		_, _ = accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) { panic("boom") }, exclusive)
	}()
	wantEvents(4)
}

// The commit of the lock's transaction is not confirmed: the same events are sent again, without the lock.
func TestLostAnswerOfALock(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		for _, opts := range [][]aggregate.HandleOption{nil, {key("k")}} {
			store := newStub()
			appends := 0
			store.append = func(next appendFunc, _ []eventstore.Write) (eventstore.AppendResult, error) {
				if appends++; appends == 1 && !stored {
					return eventstore.AppendResult{}, eventstore.ErrUnconfirmed
				}
				return next()
			}
			store.lock = func(f func() error) error {
				_ = f()
				return fmt.Errorf("commit: %w", eventstore.ErrUnconfirmed)
			}
			runs := 0
			result, err := newAccounts(store).Handle(t.Context(), "a", func(Account) ([]Event, error) {
				runs++
				return []Event{Deposited{3}}, nil
			}, append(opts, aggregate.Exclusive())...)
			if err != nil || runs != 1 || result.Repeated || result.Version != 1 || len(streamOf(t, store, "a")) != 1 {
				t.Errorf("stored %v: %+v, %v after %d runs", stored, result, err, runs)
			}
		}
	}
}
