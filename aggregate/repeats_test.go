package aggregate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
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

// What was refused for good is known at the first call, however the handler puts it.
func TestKeyRefused(t *testing.T) {
	t.Parallel()
	accounts := newAccounts(newStub())
	refused := aggregate.ContextWithIdempotencyKey(t.Context(), "k")
	for range 2 {
		if _, err := accounts.Handle(refused, "a", Withdraw{1}.Decide); err == nil || !aggregate.KeyRefused(refused) {
			t.Errorf("%v, refused: %t", err, aggregate.KeyRefused(refused))
		}
	}
	passing := aggregate.ContextWithIdempotencyKey(t.Context(), "l")
	_, err := accounts.Handle(passing, "a", func(Account) ([]Event, error) { return nil, aggregate.Transient(errors.New("later")) })
	if err == nil || !aggregate.IsTransient(err) || aggregate.KeyRefused(passing) {
		t.Errorf("%v, refused: %t", err, aggregate.KeyRefused(passing))
	}
	if _, err := accounts.Handle(passing, "a", Deposit{1}.Decide); err != nil || aggregate.KeyRefused(passing) {
		t.Errorf("%v, refused: %t", err, aggregate.KeyRefused(passing))
	}
}
