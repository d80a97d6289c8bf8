package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// Commands of one repository on one aggregate do not meet, those on different ones do not wait.
func TestLanes(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts, others := newAccounts(store), newAccounts(store) // lanes are those of the process
	var inside, most atomic.Int32
	attempts := atomic.Int32{}
	var all sync.WaitGroup
	for i := range 50 {
		repository := accounts
		if i%2 == 1 {
			repository = others
		}
		all.Go(func() {
			result, err := repository.Handle(t.Context(), "a", func(a Account) ([]Event, error) {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				runtime.Gosched()
				return Withdraw{0}.Decide(a)
			})
			if err != nil {
				t.Error(err)
			}
			attempts.Add(int32(result.Attempts))
		})
	}
	all.Wait()
	if most.Load() != 1 || attempts.Load() != 50 {
		t.Errorf("%d decided at once, %d attempts for 50 commands", most.Load(), attempts.Load())
	}
	// Two that wait for each other: only on different streams, or without lanes.
	for name, repository := range map[string]*aggregate.Repository[Account, Event]{
		"other streams": accounts, "without lanes": newAccounts(store, aggregate.WithoutLanes()),
	} {
		var both sync.WaitGroup
		both.Add(2)
		for i := range 2 {
			all.Go(func() {
				id := "b"
				if name == "other streams" {
					id += fmt.Sprint(i)
				}
				first := true
				_, err := repository.Handle(t.Context(), id, func(Account) ([]Event, error) {
					if first {
						first = false
						both.Done()
						both.Wait()
					}
					return []Event{Deposited{1}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func TestLanesAreLeftOnEveryPath(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range []func(){
		func() {
			_, _ = accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) { panic("boom") }, key("k"))
		},
		func() { _, _ = accounts.Handle(t.Context(), "a", Withdraw{1}.Decide) },
		func() { _, _ = accounts.Handle(cancelled, "a", Deposit{1}.Decide, key("k")) },
		func() {
			_, _ = accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) { runtime.Goexit(); return nil, nil })
		},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			f()
		}()
		<-done
	}
	start := time.Now()
	result := must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("k")))
	if took := time.Since(start); took > 500*time.Millisecond || result.Repeated {
		t.Errorf("%s, %+v", took, result)
	}
	// Who waits for a lane ends with its context.
	waits, cancel := context.WithCancel(t.Context())
	_, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
		cancel()
		_, err := accounts.Handle(waits, "a", Deposit{1}.Decide)
		return nil, err
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait for the commands before it") {
		t.Errorf("%v", err)
	}
}

// A command within a command on the same stream goes on after a while, and one with the same key too.
func TestNestedCommandsDoNotHang(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	runs := 0
	result, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
		if runs++; runs == 1 {
			inner, err := accounts.Handle(t.Context(), "a", Withdraw{0}.Decide, key("k"))
			if err != nil || inner.Repeated {
				return nil, fmt.Errorf("inner: %+v, %w", inner, err)
			}
		}
		return []Event{Deposited{1}}, nil
	}, key("k"))
	// The inner one has stored the key's outcome: it is the outer one's too.
	if err != nil || !result.Repeated || result.Version != 1 || len(streamOf(t, store, "a")) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

// A transaction takes the lanes of what its first run has touched, in one order.
func TestTransactionsTakeLanesAfterAConflict(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	var all sync.WaitGroup
	for i := range 20 {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		all.Go(func() {
			_, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
				if err := accounts.In(w, from).Decide(Withdraw{0}.Decide); err != nil {
					return err
				}
				runtime.Gosched()
				return accounts.In(w, to).Decide(Withdraw{0}.Decide)
			}, aggregate.WithRetry(aggregate.Retry{Retries: 50}))
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if a, b := len(streamOf(t, store, "a")), len(streamOf(t, store, "b")); a != 20 || b != 20 {
		t.Errorf("%d and %d events", a, b)
	}
}

// counting counts the events that are read of it.
type counting struct {
	*stub
	events atomic.Int32
}

func (c *counting) ReadStream(ctx context.Context, id eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	return func(yield func(eventstore.RecordedEvent, error) bool) {
		for e, err := range c.stub.ReadStream(ctx, id, r) {
			c.events.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestRetriesReadOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]aggregate.Option{nil, {aggregate.WithoutLanes()}} {
		store := &counting{stub: newStub()}
		shelves := newShelves(store, opts...)
		items := make([]string, 500)
		for i := range items {
			items[i] = "pen"
		}
		must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock(items...)))
		store.events.Store(0)
		runs := 0
		result, err := shelves.Handle(t.Context(), "a", func(s shelf) ([]event, error) {
			if s.Stock["pen"] != 500-runs {
				t.Errorf("run %d decides on %d pens", runs, s.Stock["pen"])
			}
			if runs++; runs < 3 {
				encoded, err := shelfCatalog.Encode(reserved{"pen"})
				if err != nil {
					return nil, err
				}
				if _, err := store.Append(t.Context(), eventstore.To(shelfType.Stream("a"), eventstore.Exactly(eventstore.Version(499+runs)), encoded)); err != nil {
					return nil, err
				}
			}
			s.Stock["pen"] = -1000 // a decision that does what it must not
			return []event{reserved{"pen"}}, nil
		})
		if err != nil || runs != 3 || result.Version != 503 {
			t.Fatalf("%d runs, %+v, %v", runs, result, err)
		}
		if n := store.events.Load(); n != 500+2+2 {
			t.Errorf("%d events were read, want 500, and then twice the one that was known and the one that was not", n)
		}
	}
}

func TestIfVersion(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	ctx := t.Context()
	must[accountResult](t)(accounts.Handle(ctx, "a", Deposit{100}.Decide))
	for _, test := range []struct {
		want eventstore.ExpectedVersion
		ok   bool
	}{
		{eventstore.Exactly(1), true}, {eventstore.Exactly(1), false}, {eventstore.NoStream, false}, {eventstore.StreamExists, true}, {eventstore.AnyVersion, true},
	} {
		result, err := accounts.Handle(ctx, "a", Deposit{1}.Decide, aggregate.IfVersion(test.want))
		var other *aggregate.VersionError
		if (err == nil) != test.ok || err != nil && (!errors.As(err, &other) || other.Have != result.Version || result.State.Balance == 0 || !errors.Is(err, aggregate.ErrVersion)) {
			t.Errorf("%s: %+v, %v", test.want, result, err)
		}
	}
	must[accountResult](t)(accounts.Handle(aggregate.ContextWithVersion(ctx, eventstore.NoStream), "b", Deposit{1}.Decide))
	if _, err := accounts.Handle(aggregate.ContextWithVersion(ctx, eventstore.NoStream), "b", Deposit{1}.Decide); !errors.Is(err, aggregate.ErrVersion) {
		t.Errorf("by the context: %v", err)
	}
	if _, err := accounts.Handle(aggregate.ContextWithVersion(ctx, eventstore.NoStream), "b", Deposit{1}.Decide, aggregate.IfVersion(eventstore.Exactly(1))); err != nil {
		t.Errorf("the option does not win: %v", err)
	}
	// The claim is about the version that is written, too: nothing is put behind what came in between.
	runs := 0
	_, err := accounts.Handle(ctx, "b", func(Account) ([]Event, error) {
		if runs++; runs == 1 {
			must[accountResult](t)(elsewhere(store).Handle(ctx, "b", Deposit{1}.Decide))
		}
		return []Event{Deposited{1}}, nil
	}, aggregate.IfVersion(eventstore.Exactly(2)))
	if !errors.Is(err, aggregate.ErrVersion) || runs != 1 {
		t.Errorf("moved in between: %v after %d runs", err, runs)
	}
	// A repeat is not checked.
	opts := []aggregate.HandleOption{key("k"), aggregate.IfVersion(eventstore.Exactly(3))}
	must[accountResult](t)(accounts.Handle(ctx, "b", Deposit{1}.Decide, opts...))
	if again := must[accountResult](t)(accounts.Handle(ctx, "b", Deposit{1}.Decide, opts...)); !again.Repeated || again.Version != 4 {
		t.Errorf("%+v", again)
	}
}

func TestRetryStormOnOneKey(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	var all sync.WaitGroup
	var runs, firsts atomic.Int32
	for range 200 {
		all.Go(func() {
			result, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
				runs.Add(1)
				return []Event{Deposited{1}}, nil
			}, key("storm"))
			if err != nil || result.Version != 1 || result.State.Balance != 1 {
				t.Errorf("%+v, %v", result, err)
			}
			if !result.Repeated {
				firsts.Add(1)
			}
		})
	}
	all.Wait()
	if runs.Load() != 1 || firsts.Load() != 1 || len(streamOf(t, store, "a")) != 1 {
		t.Errorf("%d runs, %d first answers", runs.Load(), firsts.Load())
	}
}

func TestTellIfRunning(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	tell := key("k", aggregate.TellIfRunning())
	var running *eventstore.InProgressError
	must[accountResult](t)(accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
		if _, err := accounts.Handle(t.Context(), "a", never(t), tell); !errors.As(err, &running) || running.Key != "k" {
			t.Errorf("in this process: %v", err)
		}
		if _, err := newAccounts(&process{store}).Handle(t.Context(), "a", never(t), tell); !errors.As(err, &running) {
			t.Errorf("in another process: %v", err)
		}
		return []Event{Deposited{1}}, nil
	}, tell))
	if again := must[accountResult](t)(accounts.Handle(t.Context(), "a", otherwise, tell)); !again.Repeated || len(store.once.held) != 0 || store.once.holds != 2 {
		t.Errorf("%+v, held %v", again, store.once.held)
	}
	// A panic lets go of everything.
	func() {
		defer func() { _ = recover() }()
		_, _ = accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) { panic("boom") }, key("p", aggregate.TellIfRunning()))
	}()
	if _, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("p", aggregate.TellIfRunning())); err != nil {
		t.Error(err)
	}
	// Waiting ends with the context.
	ctx, cancel := context.WithCancel(t.Context())
	must[accountResult](t)(accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
		cancel()
		if _, err := accounts.Handle(ctx, "a", never(t), key("w")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		return nil, nil
	}, key("w")))
}

// R-AC05: a cached state is not one that was never committed, whichever way the command failed.
func TestFailedCommandsLeaveNoCachedState(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for name, fail := range map[string]func(store *stub) error{
		"append fails": func(store *stub) error {
			store.append = func(appendFunc, []eventstore.Write) (eventstore.AppendResult, error) {
				return eventstore.AppendResult{}, broken
			}
			return broken
		},
		"lock's commit fails": func(store *stub) error {
			store.lock = func(f func() error) error {
				store.append = func(appendFunc, []eventstore.Write) (eventstore.AppendResult, error) {
					return eventstore.AppendResult{}, nil // rolled back later
				}
				_ = f()
				return broken
			}
			return broken
		},
	} {
		store := newStub()
		shelves := newShelves(store, aggregate.WithCache(1<<20))
		must[aggregate.Result[shelf]](t)(shelves.Handle(t.Context(), "a", stock("pen")))
		want := fail(store)
		for _, opts := range [][]aggregate.HandleOption{{aggregate.Exclusive()}, {aggregate.Exclusive(), key(name)}} {
			if _, err := shelves.Handle(t.Context(), "a", reserve("pen"), opts...); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		store.append, store.lock = nil, nil
		// A refusal whose decision had its hands in the state, too.
		_, err := shelves.Handle(t.Context(), "a", func(s shelf) ([]event, error) { s.Stock["pen"] = 0; return nil, errOutOfStock })
		result, err2 := shelves.Handle(t.Context(), "a", reserve("pen"))
		if err != errOutOfStock || err2 != nil || result.Version != 2 {
			t.Errorf("%s: %v, %+v, %v", name, err, result, err2)
		}
		// What the caller got is the caller's.
		result.State.Stock["pen"] = 100
		if loaded := must[aggregate.Loaded[shelf]](t)(shelves.Load(t.Context(), "a")); loaded.State.Stock["pen"] != 0 {
			t.Errorf("%s: %+v: the result's state is the cache's", name, loaded)
		}
	}
}
