package aggregate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// meets runs a command that meets others between its decision and its append: between is called at its first run.
func meets(t *testing.T, store *stub, id string, decide func(Account) ([]Event, error), between func(other *aggregate.Repository[Account, Event]), opts ...aggregate.HandleOption) (accountResult, error) {
	t.Helper()
	runs := 0
	result, err := newAccounts(store).Handle(t.Context(), id, func(a Account) ([]Event, error) {
		if runs++; runs == 1 {
			between(elsewhere(store))
		}
		return decide(a)
	}, opts...)
	if runs != result.Attempts && !result.Repeated {
		t.Errorf("%d runs, %d attempts", runs, result.Attempts)
	}
	return result, err
}

func handles(t *testing.T, id string, commands ...func(Account) ([]Event, error)) func(*aggregate.Repository[Account, Event]) {
	return func(other *aggregate.Repository[Account, Event]) {
		t.Helper()
		for _, c := range commands {
			must[accountResult](t)(other.Handle(t.Context(), id, c))
		}
	}
}

func both(commands ...func(Account) ([]Event, error)) func(Account) ([]Event, error) {
	return func(a Account) (all []Event, _ error) {
		for _, c := range commands {
			events, err := c(a)
			if err != nil {
				return nil, err
			}
			all = append(all, events...)
		}
		return all, nil
	}
}

func TestDecisionsThatStayRightAreNotMadeAgain(t *testing.T) {
	t.Parallel()
	deposit, withdraw, open := Deposit{10}.Decide, Withdraw{10}.Decide, Open{"bob"}.Decide
	type command = func(Account) ([]Event, error)
	for _, test := range []struct {
		name             string
		mine             command
		others           []command
		attempts, merged int
		balance          int64
	}{
		{"a deposit behind a withdrawal", deposit, []command{withdraw}, 1, 1, 100},
		{"a deposit behind much", deposit, []command{withdraw, deposit, deposit}, 1, 1, 120},
		{"a withdrawal behind a deposit", withdraw, []command{deposit}, 1, 1, 100},
		{"a withdrawal behind a withdrawal", withdraw, []command{withdraw}, 2, 0, 80},
		{"a withdrawal behind both", withdraw, []command{deposit, withdraw}, 2, 0, 90},
		{"a deposit behind what nobody spoke of", deposit, []command{open}, 2, 0, 110},
		{"what nobody spoke of", open, []command{deposit}, 2, 0, 110},
		{"two kinds of events", both(deposit, withdraw), []command{deposit}, 1, 1, 110},
		{"two kinds of events, one of which does not stay right", both(deposit, withdraw), []command{withdraw}, 2, 0, 90},
	} {
		for _, keyed := range []bool{false, true} {
			store := newStub()
			accounts := newAccounts(store)
			must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{100}.Decide))
			var opts []aggregate.HandleOption
			if keyed {
				opts = append(opts, key("k"))
			}
			result, err := meets(t, store, "a", test.mine, handles(t, "a", test.others...), opts...)
			if err != nil || result.Attempts != test.attempts || result.Merged != test.merged || result.State.Balance != test.balance {
				t.Errorf("%s: %+v, %v", test.name, result, err)
			}
			if loaded := must[aggregate.Loaded[Account]](t)(accounts.Load(t.Context(), "a")); loaded.State != result.State || loaded.Version != result.Version {
				t.Errorf("%s: %+v, loaded %+v", test.name, result, loaded)
			}
			if test.merged == 1 {
				first, last := store.appends[1], store.appends[len(store.appends)-1]
				if first[0].Events[0].ID != last[0].Events[0].ID {
					// The first append of the stub is the one that conflicted, or one of the others'.
					conflicted := false
					for _, writes := range store.appends[:len(store.appends)-1] {
						conflicted = conflicted || writes[0].Events[0].ID == last[0].Events[0].ID
					}
					if !conflicted {
						t.Errorf("%s: merged under another event id", test.name)
					}
				}
			}
		}
	}
}

func TestMergeFromTheFirstEventOn(t *testing.T) {
	t.Parallel()
	store := newStub()
	result, err := meets(t, store, "new", Deposit{1}.Decide, handles(t, "new", Deposit{2}.Decide, Deposit{3}.Decide))
	if err != nil || result.Attempts != 1 || result.Merged != 1 || result.Version != 3 || result.State.Balance != 6 {
		t.Errorf("%+v, %v", result, err)
	}
}

// What the work has seen of the state in another way than by decisions with events is decided again.
func TestWhatWasLookedAtIsNotMerged(t *testing.T) {
	t.Parallel()
	type member = aggregate.Member[Account, Event]
	for _, test := range []struct {
		name   string
		run    func(a member) error
		merged int
	}{
		{"decided", func(a member) error { return a.Decide(Deposit{1}.Decide) }, 1},
		{"decided twice", func(a member) error { return errors.Join(a.Decide(Deposit{1}.Decide), a.Decide(Deposit{1}.Decide)) }, 1},
		{"state", func(a member) error { _, err := a.State(); return errors.Join(err, a.Decide(Deposit{1}.Decide)) }, 0},
		{"version", func(a member) error {
			err := a.Decide(Deposit{1}.Decide)
			_, err2 := a.Version()
			return errors.Join(err, err2)
		}, 0},
		{"refused, and went on", func(a member) error { _ = a.Decide(Withdraw{1000}.Decide); return a.Decide(Deposit{1}.Decide) }, 0},
		{"nothing to do, and went on", func(a member) error { return errors.Join(a.Decide(Deposit{1}.Decide), a.Decide(Withdraw{0}.nothing)) }, 0},
		{"exists, and went on", func(a member) error {
			err := a.Decide(Deposit{1}.Decide)
			if !errors.Is(a.Create(Deposit{1}.Decide), aggregate.ErrExists) {
				return errors.New("created")
			}
			return err
		}, 0},
	} {
		store := newStub()
		accounts := newAccounts(store)
		must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{100}.Decide))
		var naps sleeps
		runs := 0
		receipt, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
			err := test.run(accounts.In(w, "a"))
			if runs++; runs == 1 {
				must[accountResult](t)(elsewhere(store).Handle(t.Context(), "a", Deposit{5}.Decide))
			}
			return errors.Join(err, accounts.In(w, "b").Decide(Deposit{1}.Decide))
		}, aggregate.WithRetry(naps.retry()))
		if err != nil || receipt.Merged != test.merged || receipt.Attempts != 2-test.merged {
			t.Errorf("%s: %+v, %v", test.name, receipt, err)
		}
		if v := receipt.Versions[purses.Stream("a")]; int(v) != len(streamOf(t, store, "a")) || test.merged == 1 && len(naps) != 0 {
			t.Errorf("%s: %+v, %d events, waits %v", test.name, receipt, len(streamOf(t, store, "a")), naps)
		}
	}
}

func (Withdraw) nothing(Account) ([]Event, error) { return nil, nil }

// A member that is only read, or created, is what it was.
func TestOnlyWhatWritesIsMerged(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	runs := 0
	_, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
		if err := accounts.In(w, "a").Create(Deposit{1}.Decide); err != nil {
			return err
		}
		runs++
		must[accountResult](t)(elsewhere(store).Handle(t.Context(), "a", Deposit{5}.Decide))
		return nil
	})
	if !errors.Is(err, aggregate.ErrExists) || runs != 1 {
		t.Errorf("created: %v after %d runs", err, runs)
	}
	runs = 0
	receipt, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
		a, err := accounts.In(w, "a").State()
		if runs++; runs == 1 {
			must[accountResult](t)(elsewhere(store).Handle(t.Context(), "a", Deposit{5}.Decide))
		}
		return errors.Join(err, accounts.In(w, "c").Decide(Deposit{a.Balance}.Decide))
	})
	if loaded := must[aggregate.Loaded[Account]](t)(accounts.Load(t.Context(), "c")); err != nil || receipt.Merged != 0 || loaded.State.Balance != 10 {
		t.Errorf("read: %+v, %v, %+v", receipt, err, loaded)
	}
}

// Two members of one work, both overtaken, and again while it is merged.
func TestMergesOfSeveralMembers(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	others := 0
	store.append = func(next appendFunc, writes []eventstore.Write) (eventstore.AppendResult, error) {
		if len(writes) == 2 && others < 4 { // somebody is faster, four times
			others++
			id := writes[others%2].Stream
			data, err := catalog.Encode(Deposited{1000})
			if err != nil {
				return eventstore.AppendResult{}, err
			}
			if _, err := store.Store.Append(context.Background(), eventstore.To(id, eventstore.AnyVersion, data)); err != nil {
				return eventstore.AppendResult{}, err
			}
		}
		return next()
	}
	var naps sleeps
	retry := naps.retry()
	retry.Retries = 6
	receipt, err := aggregate.Transact(t.Context(), store, func(w *aggregate.Work) error {
		return errors.Join(accounts.In(w, "a").Decide(Deposit{1}.Decide), accounts.In(w, "b").Decide(Deposit{2}.Decide))
	}, aggregate.WithRetry(retry))
	if err != nil || receipt.Attempts != 1 || receipt.Merged != 4 || len(naps) != 3 {
		t.Errorf("%+v, %v, waits %v", receipt, err, naps)
	}
	for id, want := range map[string]int64{"a": 2001, "b": 2002} {
		loaded := must[aggregate.Loaded[Account]](t)(accounts.Load(t.Context(), id))
		if loaded.State.Balance != want || receipt.Versions[purses.Stream(id)] != 3 {
			t.Errorf("%s: %+v, %+v", id, loaded, receipt)
		}
	}
}

// Merges are bounded like other tries, and a closed stream ends them.
func TestMergesEnd(t *testing.T) {
	t.Parallel()
	store := newStub()
	faster := true
	store.append = func(next appendFunc, writes []eventstore.Write) (eventstore.AppendResult, error) {
		if !faster {
			return eventstore.AppendResult{}, &eventstore.ClosedError{Stream: writes[0].Stream}
		}
		data, err := catalog.Encode(Deposited{1000})
		if err != nil {
			return eventstore.AppendResult{}, err
		}
		if _, err := store.Store.Append(context.Background(), eventstore.To(writes[0].Stream, eventstore.AnyVersion, data)); err != nil {
			return eventstore.AppendResult{}, err
		}
		return next()
	}
	result, err := newAccounts(store).Handle(t.Context(), "a", Deposit{1}.Decide)
	// Four tries: the first, two merges, and the last, which decides under the lock.
	if !errors.Is(err, eventstore.ErrConflict) || result.Attempts != 2 || result.Merged != 2 || len(store.locked) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	store = newStub()
	n := 0
	store.append = func(next appendFunc, writes []eventstore.Write) (eventstore.AppendResult, error) {
		if n++; n > 2 {
			return eventstore.AppendResult{}, &eventstore.ClosedError{Stream: writes[0].Stream}
		}
		return next()
	}
	result, err = meets(t, store, "a", Deposit{1}.Decide, handles(t, "a", Deposit{5}.Decide))
	if !errors.Is(err, eventstore.ErrStreamClosed) || result.Merged != 1 || n != 3 {
		t.Errorf("closed: %+v, %v after %d appends", result, err, n)
	}
}

// When the stream is not what it was, nothing is merged, and the decision is made on what it is.
func TestAnotherHistoryIsNotMerged(t *testing.T) {
	t.Parallel()
	store := &swapped{stub: newStub()}
	accounts := newAccounts(store)
	must[accountResult](t)(accounts.Handle(t.Context(), "old", Deposit{100}.Decide))
	must[accountResult](t)(accounts.Handle(t.Context(), "new", Deposit{1}.Decide))
	must[accountResult](t)(accounts.Handle(t.Context(), "new", Deposit{1}.Decide))
	store.now = purses.Stream("old")
	runs := 0
	result, err := accounts.Handle(t.Context(), "x", func(a Account) ([]Event, error) {
		if runs++; runs == 1 {
			store.now = purses.Stream("new") // restored from elsewhere
		}
		return Withdraw{2}.Decide(a)
	})
	if err != nil || result.Merged != 0 || result.Attempts != 2 || result.State.Balance != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestDefineRefusesWrongUnaffected(t *testing.T) {
	t.Parallel()
	foreignType := eventstore.TypeOf[foreign]("other.event")
	for _, test := range []struct {
		option aggregate.TypeOption
		text   string
	}{
		{aggregate.Unaffected(foreignType, deposited), `"other.event", which is not in the catalog`},
		{aggregate.Unaffected(deposited, foreignType), `"other.event", which is not in the catalog`},
		{aggregate.Unaffected(deposited), "names no events"}, {aggregate.Unaffected(nil, deposited), "names no events"},
		{aggregate.Unaffected(deposited, nil), "nil, which is not in the catalog"},
	} {
		text := panicOf(func() { aggregate.Define("account", Account.Evolve, catalog, test.option) })
		if !strings.HasPrefix(text, "aggregate: define ") || !strings.Contains(text, test.text) {
			t.Errorf("%q does not say %q", text, test.text)
		}
	}
}
