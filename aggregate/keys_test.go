package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func newAccounts(store aggregate.Store, opts ...aggregate.Option) *aggregate.Repository[Account, Event] {
	var naps sleeps
	return aggregate.NewRepository(store, purses, append([]aggregate.Option{aggregate.WithRetry(naps.retry())}, opts...)...)
}

var (
	deposited = eventstore.TypeOf[Deposited]("account.deposited")
	withdrawn = eventstore.TypeOf[Withdrawn]("account.withdrawn")
	catalog   = eventstore.NewCatalog(eventstore.TypeOf[Opened]("account.opened"), deposited, withdrawn)

	// purses are accounts whose commands may pass each other.
	purses = aggregate.Define("account", Account.Evolve, catalog,
		aggregate.Unaffected(deposited, deposited, withdrawn), aggregate.Unaffected(withdrawn, deposited),
		aggregate.Refuses("funds", ErrFunds))
)

// elsewhere is what another process has: it does not wait for the lanes of this one.
func elsewhere(store aggregate.Store) *aggregate.Repository[Account, Event] {
	return newAccounts(store, aggregate.WithoutLanes())
}

func key(name string, opts ...aggregate.KeyOption) aggregate.HandleOption {
	return aggregate.WithIdempotencyKey(name, opts...)
}

func never(t *testing.T) func(Account) ([]Event, error) {
	return func(Account) ([]Event, error) { t.Error("decided"); return nil, errors.New("decided") }
}

// otherwise is the decision of a repeat. It may be made, but must not be stored.
func otherwise(Account) ([]Event, error) { return []Event{Deposited{999}}, nil }

type accountResult = aggregate.Result[Account]

func TestRepeatReturnsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	ctx := t.Context()
	first := must[accountResult](t)(accounts.Handle(ctx, "a", Deposit{100}.Decide, key("k")))
	if first.Repeated || first.Version != 1 || first.Written != 1 || first.Attempts != 1 {
		t.Errorf("first %+v", first)
	}
	must[accountResult](t)(accounts.Handle(ctx, "a", Withdraw{30}.Decide))
	again := must[accountResult](t)(newAccounts(store).Handle(ctx, "a", otherwise, key("k")))
	if !again.Repeated || again.Version != 1 || again.Written != 1 || again.State.Balance != 100 || again.Token.String() != first.Token.String() || again.StateErr != nil {
		t.Errorf("repeat %+v, first %+v", again, first)
	}
	if len(store.appends) != 2 {
		t.Errorf("%d appends", len(store.appends))
	}
}

func TestRepeatIsFoundWhenTheStateCannotBeLoaded(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	first := must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{100}.Decide, key("k")))
	broken := errors.New("disk on fire")
	store.read = func() error { return broken }
	again, err := accounts.Handle(t.Context(), "a", otherwise, key("k"))
	if err != nil || !again.Repeated || again.Version != first.Version || !errors.Is(again.StateErr, broken) {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestRepeatedRefusalIsTheFirst(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	ctx := t.Context()
	odd := fmt.Errorf("odd: %w", ErrFunds)
	if _, err := accounts.Handle(ctx, "a", func(Account) ([]Event, error) { return nil, odd }, key("k")); err != odd {
		t.Fatalf("got %v, want the first refusal itself", err)
	}
	must[accountResult](t)(accounts.Handle(ctx, "a", Deposit{100}.Decide))
	again, err := accounts.Handle(ctx, "a", otherwise, key("k"))
	var refused *aggregate.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, ErrFunds) || !errors.Is(err, aggregate.ErrRefused) || refused.Code != "funds" || err.Error() != odd.Error() || !again.Repeated {
		t.Errorf("%+v, %v", again, err)
	}
	// Not declared: the text remains.
	shelves := newShelves(store)
	for range 2 {
		_, err = shelves.Handle(ctx, "s", reserve("pen"), key("k2"))
	}
	if !errors.Is(err, aggregate.ErrRefused) || errors.Is(err, errOutOfStock) || err.Error() != errOutOfStock.Error() {
		t.Errorf("undeclared: %v", err)
	}
	// Declared for the call.
	_, err = shelves.Handle(ctx, "s", reserve("pen"), key("k3"), aggregate.Refuses("stock", errOutOfStock))
	_, again2 := shelves.Handle(ctx, "s", reserve("pen"), key("k3"), aggregate.Refuses("stock", errOutOfStock))
	if err != errOutOfStock || !errors.Is(again2, errOutOfStock) {
		t.Errorf("declared for the call: %v, then %v", err, again2)
	}
	wantVersion(t, store, "s", 0)
}

func TestNothingToDoIsRemembered(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	must[accountResult](t)(accounts.Handle(t.Context(), "a", Open{"ada"}.Decide))
	first := must[accountResult](t)(accounts.Handle(t.Context(), "a", Open{"ada"}.Decide, key("k")))
	must[accountResult](t)(accounts.Handle(t.Context(), "a", Open{"bob"}.Decide))
	again := must[accountResult](t)(accounts.Handle(t.Context(), "a", Open{"ada"}.Decide, key("k")))
	if first.Version != 1 || first.Written != 0 || !again.Repeated || again.Version != 1 || again.State.Owner != "ada" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	// R-AC08 with a key: what moves in between is no conflict for a decision without events.
	runs := 0
	result, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
		runs++
		must[accountResult](t)(elsewhere(store).Handle(t.Context(), "a", Deposit{1}.Decide))
		return nil, nil
	}, key("k2"))
	if err != nil || runs != 1 || result.Attempts != 1 || result.Version != 2 {
		t.Errorf("%d runs, %+v, %v", runs, result, err)
	}
	// A repeat has the state that it was decided on, not what came later.
	late := must[accountResult](t)(accounts.Handle(t.Context(), "a", otherwise, key("k2")))
	if !late.Repeated || late.Version != 2 || late.State.Balance != 0 || late.Written != 0 {
		t.Errorf("repeat %+v", late)
	}
}

func TestKeysAreForOneRequestAndScope(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	handle := func(ctx context.Context, id string, opts ...aggregate.KeyOption) (bool, error) {
		result, err := accounts.Handle(ctx, id, Deposit{1}.Decide, key("k", opts...))
		return result.Repeated, err
	}
	by := func(tenant, actor string) context.Context {
		return eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: tenant, Actor: actor})
	}
	long := strings.Repeat("x", 300)
	for i, test := range []struct {
		ctx      context.Context
		id       string
		opts     []aggregate.KeyOption
		repeated bool
		err      error
	}{
		{t.Context(), "a", nil, false, nil},
		{t.Context(), "a", nil, true, nil},
		{t.Context(), "b", nil, false, eventstore.ErrReusedKey},
		{t.Context(), "a", []aggregate.KeyOption{aggregate.ForRequest([]byte("x"))}, false, eventstore.ErrReusedKey},
		{t.Context(), "a", []aggregate.KeyOption{aggregate.InScope("s")}, false, nil},
		{by("", "ada"), "a", []aggregate.KeyOption{aggregate.InScope("")}, true, nil},
		{by("", "ada"), "a", nil, false, nil},
		{by("ada", ""), "a", nil, false, nil},
		{by("a/b", "c"), "a", nil, false, nil},
		{by("a", "b/c"), "a", nil, false, nil},
		{by("a", "b/c"), "a", nil, true, nil},
		{by(long, "a"), "a", nil, false, nil},
		{by(long, "b"), "a", nil, false, nil},
		{by(long, "b"), "a", nil, true, nil},
		{t.Context(), "a", []aggregate.KeyOption{aggregate.InScope(long)}, false, eventstore.ErrInvalid},
	} {
		repeated, err := handle(test.ctx, test.id, test.opts...)
		if repeated != test.repeated || !errors.Is(err, test.err) {
			t.Errorf("%d: repeated %v, %v", i, repeated, err)
		}
	}
	if _, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("")); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("an empty key: %v", err)
	}
}

// What says nothing about the command is not its outcome.
func TestPassingErrorsAreNotRemembered(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	nested := func(Account) ([]Event, error) {
		other := newStub()
		other.read = func() error { return errors.New("disk on fire") }
		_, err := newAccounts(other).Handle(t.Context(), "x", Deposit{1}.Decide)
		return nil, fmt.Errorf("look: %w", err)
	}
	fails := func(err error) func(Account) ([]Event, error) {
		return func(Account) ([]Event, error) { return nil, err }
	}
	unstorable := func(Account) ([]Event, error) { return []Event{nil}, nil }
	for i, decide := range []func(Account) ([]Event, error){
		fails(aggregate.Transient(errors.New("no answer"))), fails(fmt.Errorf("x: %w", context.DeadlineExceeded)), fails(context.Canceled),
		fails(&eventstore.ConflictError{}), fails(eventstore.ErrBusy), fails(eventstore.ErrUnconfirmed), fails(aggregate.ErrMisuse), nested, unstorable,
		func(Account) ([]Event, error) { panic("boom") },
	} {
		k := key(fmt.Sprint("k", i))
		func() {
			defer func() { _ = recover() }()
			if _, err := accounts.Handle(t.Context(), "a", decide, k); err == nil {
				t.Errorf("%d: no error", i)
			}
		}()
		if result, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, k); err != nil || result.Repeated {
			t.Errorf("%d: %+v, %v: the first failure was remembered", i, result, err)
		}
	}
	_, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("v"), aggregate.IfVersion(eventstore.NoStream))
	result, err2 := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("v"), aggregate.IfVersion(eventstore.Exactly(10)))
	if !errors.Is(err, aggregate.ErrVersion) || err2 != nil || result.Repeated {
		t.Errorf("version: %v, then %+v, %v", err, result, err2)
	}
	if aggregate.Transient(nil) != nil {
		t.Error("no error became one")
	}
}

func TestRefusalIsNotLostForItsWords(t *testing.T) {
	t.Parallel()
	accounts := newAccounts(newStub())
	bad := errors.New("bad \x00 \xff " + strings.Repeat("é", 5000))
	if _, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) { return nil, bad }, key("k")); err != bad {
		t.Fatalf("%v", err)
	}
	_, err := accounts.Handle(t.Context(), "a", otherwise, key("k"))
	if !errors.Is(err, aggregate.ErrRefused) || len(err.Error()) > 8<<10 || !strings.HasSuffix(err.Error(), "é…") {
		t.Errorf("%d bytes: %.40s", len(err.Error()), err)
	}
}

// A refusal that could not be stored is not given to the caller as final.
func TestRefusalThatCannotBeStored(t *testing.T) {
	t.Parallel()
	store := newStub()
	broken := errors.New("disk on fire")
	store.once.instead = func(onceFunc, eventstore.Claim, eventstore.Outcome) (eventstore.Outcome, error) {
		return eventstore.Outcome{}, broken
	}
	_, err := newAccounts(store).Handle(t.Context(), "a", Withdraw{1}.Decide, key("k"))
	if !errors.Is(err, broken) || errors.Is(err, ErrFunds) {
		t.Errorf("%v", err)
	}
}

func TestLostAnswersWithAKey(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("connection lost: %w", eventstore.ErrUnconfirmed)
	for _, refused := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			store := newStub()
			n := 0
			store.once.instead = func(next onceFunc, _ eventstore.Claim, _ eventstore.Outcome) (eventstore.Outcome, error) {
				if n++; n > 1 {
					return next()
				}
				if stored {
					_, _ = next()
				}
				return eventstore.Outcome{}, lost
			}
			command, want := Deposit{1}.Decide, error(nil)
			if refused {
				command, want = Withdraw{1}.Decide, ErrFunds
			}
			result, err := newAccounts(store).Handle(t.Context(), "a", command, key("k"))
			if err != want || result.Repeated || n != 2 || store.once.claims[0].Call != store.once.claims[1].Call {
				t.Errorf("refused %v, stored %v: %+v, %v after %d appends", refused, stored, result, err, n)
			}
		}
	}
	// Timeout, then retry: the caller never learns; the command is there, or it is not, and the retry is right.
	store := newStub()
	store.once.instead = func(next onceFunc, _ eventstore.Claim, _ eventstore.Outcome) (eventstore.Outcome, error) {
		_, _ = next()
		return eventstore.Outcome{}, lost
	}
	if _, err := newAccounts(store).Handle(t.Context(), "a", Deposit{7}.Decide, key("k")); !errors.Is(err, eventstore.ErrUnconfirmed) {
		t.Fatal(err)
	}
	result, err := newAccounts(store).Handle(t.Context(), "a", otherwise, key("k"))
	if err != nil || !result.Repeated || result.State.Balance != 7 {
		t.Errorf("%+v, %v", result, err)
	}
}

// Another process carries the command out between this one's look and its append.
func TestOutcomeOfAnotherProcessIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		command func(Account) ([]Event, error)
		mine    func(Account) ([]Event, error)
		want    error
	}{
		{"both accept", Deposit{1}.Decide, Deposit{1}.Decide, nil}, {"the first accepted", Deposit{1}.Decide, Withdraw{1}.Decide, nil},
		{"the first refused", Withdraw{1}.Decide, Deposit{1}.Decide, ErrFunds}, {"both refuse", Withdraw{1}.Decide, Withdraw{1}.Decide, ErrFunds},
	} {
		store := newStub()
		runs := 0
		result, err := newAccounts(store).Handle(t.Context(), "a", func(a Account) ([]Event, error) {
			if runs++; runs == 1 {
				// Through another store value, which the gate of this process does not see as the same.
				_, _ = newAccounts(&process{store}).Handle(t.Context(), "a", test.command, key("k"))
			}
			return test.mine(a)
		}, key("k"))
		if !errors.Is(err, test.want) || !result.Repeated || runs != 1 {
			t.Errorf("%s: %+v, %v after %d runs", test.name, result, err, runs)
		}
		if test.want == nil && (result.Version != 1 || result.State.Balance != 1) {
			t.Errorf("%s: %+v", test.name, result)
		}
		if events := len(streamOf(t, store, "a")); (events == 1) != (test.want == nil) {
			t.Errorf("%s: %d events", test.name, events)
		}
	}
}

// process is a store as another process has it.
type process struct{ *stub }

func streamOf(t *testing.T, store eventstore.StreamReader, id string) (events []eventstore.RecordedEvent) {
	t.Helper()
	for e, err := range store.ReadStream(t.Context(), purses.Stream(id), eventstore.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestKeysInTransactions(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	runs := 0
	run := func(cents int64) func(w *aggregate.Work) error {
		return func(w *aggregate.Work) error {
			runs++
			data := []byte("ignored")
			w.SetResult(data)
			data = []byte("receipt 7")
			w.SetResult(data)
			data[0] = 'X'
			if err := accounts.In(w, "a").Decide(Withdraw{cents}.Decide); err != nil {
				return err
			}
			return accounts.In(w, "b").Decide(Deposit{cents}.Decide)
		}
	}
	must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{10}.Decide))
	first, err := aggregate.Transact(t.Context(), store, run(4), key("k"))
	again, err2 := aggregate.Transact(t.Context(), store, run(4), key("k"))
	if err != nil || err2 != nil || runs != 1 || first.Repeated || !again.Repeated || !bytes.Equal(again.Result, []byte("receipt 7")) || !bytes.Equal(first.Result, again.Result) {
		t.Fatalf("%+v, %v, then %+v, %v after %d runs", first, err, again, err2, runs)
	}
	if again.Versions[purses.Stream("a")] != 2 || again.Versions[purses.Stream("b")] != 1 || again.Token.String() != first.Token.String() || !again.RecordedAt.Equal(first.RecordedAt) {
		t.Errorf("%+v, want as in %+v", again, first)
	}
	_, err = aggregate.Transact(t.Context(), store, run(100), key("k2"))
	_, err2 = aggregate.Transact(t.Context(), store, run(100), key("k2"), aggregate.Refuses("funds", ErrFunds))
	var refused *aggregate.RefusedError
	if err != ErrFunds || !errors.As(err2, &refused) || refused.Code != "funds" || !errors.Is(err2, ErrFunds) {
		t.Errorf("refused: %v, then %v", err, err2)
	}
	create := func(w *aggregate.Work) error { return accounts.In(w, "a").Create(Deposit{1}.Decide) }
	_, err = aggregate.Transact(t.Context(), store, create, key("k3"))
	_, err2 = aggregate.Transact(t.Context(), store, create, key("k3"))
	var exists *aggregate.ExistsError
	if !errors.As(err, &exists) || exists.Version != 2 || !errors.Is(err2, aggregate.ErrExists) || !errors.Is(err2, aggregate.ErrRefused) {
		t.Errorf("exists: %v, then %v", err, err2)
	}
	plain, err := aggregate.Transact(t.Context(), store, run(1))
	if err != nil || string(plain.Result) != "receipt 7" {
		t.Errorf("without a key: %+v, %v", plain, err)
	}
}

func TestKeyOfTheContext(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	withKey := func() context.Context {
		return aggregate.ContextWithIdempotencyKey(t.Context(), "k", aggregate.InScope("s"))
	}
	repeated := func(ctx context.Context, opts ...aggregate.HandleOption) bool {
		t.Helper()
		return must[accountResult](t)(accounts.Handle(ctx, "a", Deposit{1}.Decide, opts...)).Repeated
	}
	if repeated(withKey()) || !repeated(withKey()) || !repeated(t.Context(), key("k", aggregate.InScope("s"))) {
		t.Error("the key of the context is not that of the option")
	}
	if repeated(withKey(), key("other")) || !repeated(withKey(), key("other")) {
		t.Error("the option does not win")
	}
	for range 2 {
		if repeated(aggregate.ContextWithIdempotencyKey(withKey(), "")) {
			t.Error("the empty key does not take the key away")
		}
	}
	run := func(w *aggregate.Work) error { return accounts.In(w, "b").Decide(Deposit{1}.Decide) }
	if _, err := aggregate.Transact(withKey(), store, run); !errors.Is(err, eventstore.ErrReusedKey) {
		t.Errorf("another operation under the same key: %v", err)
	}
}

func TestExpire(t *testing.T) {
	t.Parallel()
	store := newStub()
	accounts := newAccounts(store)
	ctx := t.Context()
	request := aggregate.ForRequest([]byte("deposit"))
	for _, repeated := range []bool{false, true} {
		outcome, err := aggregate.Expire(ctx, store, "late", request)
		if err != nil || outcome.Kind != eventstore.OutcomeExpired || outcome.Repeated != repeated {
			t.Fatalf("%+v, %v", outcome, err)
		}
	}
	_, err := accounts.Handle(ctx, "a", otherwise, key("late", request))
	var expired *aggregate.ExpiredError
	if !errors.As(err, &expired) || expired.Key != "late" || !errors.Is(err, aggregate.ErrExpired) {
		t.Errorf("after it expired: %v", err)
	}
	if _, err = accounts.Handle(ctx, "a", otherwise, key("late")); !errors.Is(err, eventstore.ErrReusedKey) {
		t.Errorf("another request: %v", err)
	}
	must[accountResult](t)(accounts.Handle(ctx, "a", Deposit{1}.Decide, key("early", request)))
	if outcome, err := aggregate.Expire(ctx, store, "early", request); err != nil || outcome.Kind != eventstore.OutcomeDone || !outcome.Repeated {
		t.Errorf("after it ran: %+v, %v", outcome, err)
	}
	// While it is decided.
	_, err = accounts.Handle(ctx, "a", func(Account) ([]Event, error) {
		_, err := aggregate.Expire(ctx, store, "both")
		return []Event{Deposited{1}}, err
	}, key("both"))
	if !errors.Is(err, aggregate.ErrExpired) || len(streamOf(t, store, "a")) != 1 {
		t.Errorf("expired meanwhile: %v", err)
	}
	for _, opts := range [][]aggregate.HandleOption{{key("locked"), aggregate.Exclusive()}, {key("refused")}} {
		_, err = accounts.Handle(ctx, "a", func(a Account) ([]Event, error) {
			_, err := aggregate.Expire(ctx, store, []string{"locked", "refused"}[min(1, 2-len(opts))])
			if len(opts) == 1 && err == nil {
				err = ErrFunds
			}
			return []Event{Deposited{1}}, err
		}, opts...)
		if !errors.Is(err, aggregate.ErrExpired) || len(streamOf(t, store, "a")) != 1 {
			t.Errorf("expired meanwhile, %d options: %v", len(opts), err)
		}
	}
	if _, err := aggregate.Expire(ctx, store, ""); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// plainStore can only append and read.
type plainStore struct{ aggregate.Store }

func TestKeysNeedAStoreThatKeepsThem(t *testing.T) {
	t.Parallel()
	store := &plainStore{memory.New(memory.Config{})}
	_, err := newAccounts(store).Handle(t.Context(), "a", otherwise, key("k"))
	if err == nil || !strings.Contains(err.Error(), "OnceAppender") {
		t.Errorf("%v", err)
	}
}

func TestRefusesRefusesMistakes(t *testing.T) {
	t.Parallel()
	for _, f := range []func(){
		func() { aggregate.Refuses("", ErrFunds) }, func() { aggregate.Refuses("x", nil) }, func() { aggregate.Refuses("a\x00", ErrFunds) },
	} {
		if text := panicOf(f); !strings.HasPrefix(text, "aggregate: refuses") {
			t.Errorf("%q", text)
		}
	}
}

type observed struct {
	eventstore.NopObserver
	commands []eventstore.CommandObservation
}

func (o *observed) ObserveCommand(c eventstore.CommandObservation) {
	o.commands = append(o.commands, c)
}

func TestCommandsAreObserved(t *testing.T) {
	t.Parallel()
	o := &observed{}
	store := newStub()
	accounts := newAccounts(store, aggregate.WithObserver(o))
	for _, decide := range []func(Account) ([]Event, error){Deposit{1}.Decide, Deposit{1}.Decide, Withdraw{10}.Decide} {
		_, _ = accounts.Handle(t.Context(), "a", decide, key(fmt.Sprint("k", len(o.commands)/2)))
	}
	_, _ = aggregate.Transact(t.Context(), store, func(*aggregate.Work) error { return nil }, aggregate.WithObserver(o))
	want := []eventstore.CommandObservation{
		{Name: "handle account", Attempts: 1, Events: 1}, {Name: "handle account", Repeated: true},
		{Name: "handle account", Attempts: 1, Err: ErrFunds}, {Name: "transact", Attempts: 1},
	}
	if len(o.commands) != len(want) {
		t.Fatalf("%+v", o.commands)
	}
	for i, c := range o.commands {
		if c.Duration <= 0 || c.Duration > time.Minute {
			t.Errorf("%d took %s", i, c.Duration)
		}
		c.Duration = 0
		if c != want[i] {
			t.Errorf("%d: %+v, want %+v", i, c, want[i])
		}
	}
}
