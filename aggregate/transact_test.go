package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

type transfer struct {
	store   *stub
	shelves *aggregate.Repository[shelf, event]
}

func newTransfer() transfer {
	store := newStub()
	return transfer{store, newShelves(store)}
}

func (x transfer) run(t *testing.T, run func(*aggregate.Work) error) (aggregate.Receipt, error) {
	var naps sleeps
	return aggregate.Transact(t.Context(), x.store, run, aggregate.WithRetry(naps.retry()))
}

func (x transfer) stock(t *testing.T, id string, items ...string) {
	t.Helper()
	must[aggregate.Result[shelf]](t)(x.shelves.Handle(t.Context(), id, stock(items...)))
}

func TestTransactWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	x.stock(t, "b", "pen")
	receipt, err := x.run(t, func(w *aggregate.Work) error {
		return errors.Join(x.shelves.In(w, "b").Decide(reserve("pen")), x.shelves.In(w, "a").Decide(stock("pen")))
	})
	if err != nil || receipt.Token.IsZero() || receipt.Attempts != 1 || receipt.RecordedAt.IsZero() {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	if receipt.Versions[shelfType.Stream("a")] != 1 || receipt.Versions[shelfType.Stream("b")] != 2 {
		t.Errorf("versions %v", receipt.Versions)
	}
	if writes := x.store.appends[1]; writes[0].Stream.ID != "b" || writes[1].Stream.ID != "a" {
		t.Errorf("writes %v, want them as first touched", writes)
	}
	_, err = x.run(t, func(w *aggregate.Work) error {
		if err := x.shelves.In(w, "a").Decide(stock("ink")); err != nil {
			return err
		}
		return x.shelves.In(w, "b").Decide(reserve("pen"))
	})
	if err != errOutOfStock {
		t.Fatalf("got %v, want the domain's error itself", err)
	}
	wantVersion(t, x.store, "a", 1)
}

// R-AC03
func TestDecisionsOfOneWorkSeeEachOther(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	receipt, err := x.run(t, func(w *aggregate.Work) error {
		a := x.shelves.In(w, "a")
		if err := a.Decide(stock("pen")); err != nil {
			return err
		}
		if err := x.shelves.In(w, "a").Decide(reserve("pen")); err != nil {
			return err
		}
		if err := a.Decide(reserve("pen")); err != errOutOfStock {
			return fmt.Errorf("a third decision got %v, want %w", err, errOutOfStock)
		}
		state, err := a.State()
		version, err2 := a.Version()
		if state.Seen != 2 || version != 2 {
			return fmt.Errorf("state %v at version %d, want two events", state, version)
		}
		return errors.Join(err, err2)
	})
	if err != nil || receipt.Versions[shelfType.Stream("a")] != 2 || len(x.store.appends) != 1 {
		t.Fatalf("receipt %+v, %v, %d appends", receipt, err, len(x.store.appends))
	}
	wantVersion(t, x.store, "a", 2)
}

func TestWhatWasReadIsChecked(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	x.stock(t, "a", "pen")
	runs := 0
	receipt, err := x.run(t, func(w *aggregate.Work) error {
		runs++
		state, err := x.shelves.In(w, "a").State()
		if err != nil {
			return err
		}
		if runs == 1 {
			x.stock(t, "a", "pen") // another writer moves what was read
		}
		items := make([]string, state.Stock["pen"])
		for i := range items {
			items[i] = "pen"
		}
		return x.shelves.In(w, "b").Decide(stock(items...))
	})
	if err != nil || runs != 2 || receipt.Attempts != 2 {
		t.Fatalf("%d runs, %+v, %v; want the work to run again", runs, receipt, err)
	}
	wantVersion(t, x.store, "b", 2)
	wantVersion(t, x.store, "a", 2)
}

func TestTransactWithoutEventsSendsNothing(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	x.stock(t, "a", "pen")
	receipt, err := x.run(t, func(w *aggregate.Work) error {
		_, err := x.shelves.In(w, "a").State()
		x.stock(t, "a", "pen")
		return errors.Join(err, x.shelves.In(w, "b").Decide(nothing))
	})
	if err != nil || !receipt.Token.IsZero() || len(x.store.appends) != 2 {
		t.Fatalf("receipt %+v, %v, %d appends", receipt, err, len(x.store.appends))
	}
	if v := receipt.Versions; v[shelfType.Stream("a")] != 1 || v[shelfType.Stream("b")] != 0 || len(v) != 2 {
		t.Errorf("versions %v, want those that were read", v)
	}
}

func TestCreateDoesNotReadAndIsNotRetried(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	reads, runs := 0, 0
	x.store.read = func() error { reads++; return nil }
	post := func(w *aggregate.Work) error {
		runs++
		if err := x.shelves.In(w, "entry").Create(stock("pen")); err != nil {
			return err
		}
		return x.shelves.In(w, "entry").Decide(reserve("pen")) // sees the first decision, still without reading
	}
	if _, err := x.run(t, post); err != nil || reads != 0 {
		t.Fatalf("%v after %d reads", err, reads)
	}
	_, err := x.run(t, post)
	var exists *aggregate.ExistsError
	if !errors.As(err, &exists) || !errors.Is(err, aggregate.ErrExists) || exists.Version != 2 || exists.Stream != shelfType.Stream("entry") || runs != 2 {
		t.Fatalf("got %v after %d runs, want *ExistsError and no retry", err, runs)
	}
	if errors.Is(err, eventstore.ErrConflict) {
		t.Error("an aggregate that exists is no conflict: it cannot be retried")
	}
	_, err = x.run(t, func(w *aggregate.Work) error {
		entry := x.shelves.In(w, "entry")
		if _, err := entry.State(); err != nil {
			return err
		}
		if err := entry.Create(stock("pen")); !errors.Is(err, aggregate.ErrExists) {
			return fmt.Errorf("Create after reading events: %w", err)
		}
		return entry.Decide(stock("ink")) // the run may go on
	})
	if err != nil {
		t.Fatal(err)
	}
	wantVersion(t, x.store, "entry", 3)
}

func TestConflictBesideACreationIsRetried(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	runs := 0
	_, err := x.run(t, func(w *aggregate.Work) error {
		runs++
		if err := x.shelves.In(w, "a").Decide(stock("pen")); err != nil {
			return err
		}
		if runs == 1 {
			x.stock(t, "a", "ink")
		}
		return x.shelves.In(w, "entry").Create(stock("pen"))
	})
	if err != nil || runs != 2 {
		t.Fatalf("%v after %d runs", err, runs)
	}
	wantVersion(t, x.store, "a", 2)
	wantVersion(t, x.store, "entry", 1)
}

func TestFailedReadCannotBeSwallowed(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	broken := errors.New("disk on fire")
	x.store.read = func() error { return broken }
	_, err := x.run(t, func(w *aggregate.Work) error {
		_, _ = x.shelves.In(w, "a").State()
		return x.shelves.In(w, "b").Create(stock("pen"))
	})
	if !errors.Is(err, broken) || len(x.store.appends) != 0 {
		t.Fatalf("got %v, %d appends", err, len(x.store.appends))
	}
}

func TestMisuseOfAWork(t *testing.T) {
	t.Parallel()
	x := newTransfer()
	var late *aggregate.Work
	var member aggregate.Member[shelf, event]
	for _, test := range []struct {
		name string
		run  func(w *aggregate.Work) error
		text string
	}{
		{"another store", func(w *aggregate.Work) error {
			return newShelves(memory.New(memory.Config{})).In(w, "a").Decide(nothing)
		}, `another store`},
		{"two repositories", func(w *aggregate.Work) error {
			return errors.Join(x.shelves.In(w, "a").Decide(stock("pen")), newShelves(x.store).In(w, "a").Decide(nothing))
		}, `shelf-a takes part through two repositories`},
		{"swallowed", func(w *aggregate.Work) error {
			_ = newShelves(memory.New(memory.Config{})).In(w, "a").Decide(nothing)
			return nil
		}, `another store`},
		{"late work", func(w *aggregate.Work) error {
			if late == nil {
				late, member = w, x.shelves.In(w, "a")
				return errOutOfStock
			}
			return x.shelves.In(late, "a").Decide(nothing)
		}, `after the run`},
		{"late member", func(*aggregate.Work) error { return member.Decide(nothing) }, `after the run`},
		{"made by hand", func(*aggregate.Work) error {
			_, err := aggregate.Member[shelf, event]{}.Version()
			return err
		}, `did not make`},
	} {
		if test.name == "late work" {
			if _, err := x.run(t, test.run); err != errOutOfStock {
				t.Fatal(err)
			}
		}
		_, err := x.run(t, test.run)
		if !errors.Is(err, aggregate.ErrMisuse) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want a misuse with %q", test.name, err, test.text)
		}
	}
	wantVersion(t, x.store, "a", 0)
}

func TestPartitionKeyIsGivenWithEveryWrite(t *testing.T) {
	t.Parallel()
	typ := aggregate.Define("shelf", shelf.Evolve, shelfCatalog,
		aggregate.PartitionedBy(func(id string) string { return "room-" + id[:1] }))
	store := newStub()
	shelves := aggregate.NewRepository(store, typ)
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "1a", stock("pen")))
	must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "1b", stock("pen")))
	a, b := history(t, store, "1a")[0], history(t, store, "1b")[0]
	if a.PartitionKey != "room-1" || b.PartitionKey != "room-1" || a.Partition != b.Partition {
		t.Errorf("keys %q and %q", a.PartitionKey, b.PartitionKey)
	}
}
