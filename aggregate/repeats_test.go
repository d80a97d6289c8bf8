package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/snapshot"
)

// While nobody repeats anything, keys cost no look-up of their own. When clients begin to send again, repeats are looked
// up, and not decided in vain. Not parallel: what the process has seen counts.
func TestRepeatsAreLookedUpWhenTheyCome(t *testing.T) {
	store := newStub()
	accounts := newAccounts(store)
	send := func(n int) (decided int) {
		_, err := accounts.Handle(t.Context(), "a", func(Account) ([]Event, error) {
			decided++
			return []Event{Deposited{1}}, nil
		}, key(fmt.Sprint("k-", n)))
		if err != nil {
			t.Fatal(err)
		}
		return decided
	}
	const fresh = 300
	for n := range fresh {
		send(n)
	}
	looks := store.once.looks
	for n := fresh; n < fresh+50; n++ {
		if send(n) != 1 {
			t.Fatal("a new command was not decided")
		}
	}
	if store.once.looks != looks {
		t.Errorf("%d look-ups for 50 new commands", store.once.looks-looks)
	}
	inVain := 0
	for n := range 50 {
		inVain += send(n)
	}
	if inVain > 5 {
		t.Errorf("%d of 50 repeats were decided again", inVain)
	}
	loaded := must[aggregate.Loaded[Account]](t)(accounts.Load(t.Context(), "a"))
	if loaded.State.Balance != fresh+50 {
		t.Errorf("balance %d", loaded.State.Balance)
	}
}

// What was refused for good is known at the first call, however the handler puts it; and one key is for one command.
func TestKeyOfAContextIsForOneCommand(t *testing.T) {
	t.Parallel()
	accounts := newAccounts(newStub())
	for range 2 {
		ctx := aggregate.ContextWithIdempotencyKey(t.Context(), "k")
		if code, refused := aggregate.KeyRefusal(ctx); code != "" || refused {
			t.Error("refused before it was decided")
		}
		_, err := accounts.Handle(ctx, "a", Withdraw{1}.Decide)
		if code, refused := aggregate.KeyRefusal(ctx); !errors.Is(err, ErrFunds) || code != "funds" || !refused {
			t.Errorf("%v, refused: %t, code %q", err, refused, code)
		}
	}
	passing := aggregate.ContextWithIdempotencyKey(t.Context(), "l")
	_, err := accounts.Handle(passing, "a", func(Account) ([]Event, error) { return nil, aggregate.Transient(errors.New("later")) })
	if _, refused := aggregate.KeyRefusal(passing); err == nil || !aggregate.IsTransient(err) || refused {
		t.Errorf("%v, refused: %t", err, refused)
	}
	_, err = accounts.Handle(passing, "a", Deposit{1}.Decide) // tried again
	if _, refused := aggregate.KeyRefusal(passing); err != nil || refused {
		t.Errorf("%v, refused: %t", err, refused)
	}
	// A second command under the key would be lost, as the first one's outcome is its answer.
	if _, err = accounts.Handle(passing, "a", Deposit{5}.Decide); !errors.Is(err, aggregate.ErrMisuse) {
		t.Errorf("a second command: %v", err)
	}
	if now := must[aggregate.Loaded[Account]](t)(accounts.Load(t.Context(), "a")); now.State.Balance != 1 {
		t.Errorf("balance %d", now.State.Balance)
	}
}

// A decision that cannot be made on what has become of the state does not hide the first outcome.
func TestARepeatThatPanics(t *testing.T) {
	t.Parallel()
	accounts := newAccounts(newStub())
	panics := func(Account) ([]Event, error) { panic("not made for this state") }
	first := must[accountResult](t)(accounts.Handle(t.Context(), "a", Deposit{100}.Decide, key("k")))
	for _, opts := range [][]aggregate.HandleOption{{key("k")}, {key("k"), aggregate.Exclusive()}} {
		again, err := accounts.Handle(t.Context(), "a", panics, opts...)
		if err != nil || !again.Repeated || again.Version != first.Version || again.State.Balance != 100 {
			t.Errorf("%+v, %v", again, err)
		}
	}
	defer func() {
		if p := recover(); p != "not made for this state" {
			t.Errorf("panic %v", p)
		}
	}()
	_, _ = accounts.Handle(t.Context(), "a", panics, key("another"))
	t.Error("the panic of a new command is lost")
}

// What is bound to a caller's transaction must not be read by anybody else, and IfVersion needs an aggregate.
func TestOptionsThatDoNotFit(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	bound := struct {
		*memory.Store
		inTransaction
	}{Store: store}
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "leave WithSnapshots out") {
				t.Errorf("panic %q", text)
			}
		}()
		aggregate.NewRepository(&bound, Type, aggregate.WithSnapshots(store.Snapshots(), snapshot.Every(1)))
	}()
	aggregate.NewRepository(&bound, Type)
	_, err := aggregate.Transact(t.Context(), store, func(*aggregate.Work) error { return nil }, aggregate.IfVersion(eventstore.NoStream))
	if !errors.Is(err, aggregate.ErrMisuse) {
		t.Errorf("IfVersion of a Transact: %v", err)
	}
}

type inTransaction struct{}

func (inTransaction) BoundToTransaction() {}
