package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// unsure is a store whose look-up of whether a command has expired fails.
type unsure struct {
	*memory.Store
	fails error
}

func (s *unsure) FirstOutcome(ctx context.Context, c eventstore.Claim) (eventstore.Outcome, bool, error) {
	if s.fails != nil && bytes.HasPrefix(c.Request, []byte("expire\x00")) {
		return eventstore.Outcome{}, false, s.fails
	}
	return s.Store.FirstOutcome(ctx, c)
}

// A command that has expired, and a store that cannot say so, or no time to hear it: nobody is told that the key belongs
// to another request, which would be for good.
func TestExpiredAndNotTold(t *testing.T) {
	t.Parallel()
	store := &unsure{Store: memory.New(memory.Config{})}
	accounts := newAccounts(store)
	if _, err := aggregate.Expire(t.Context(), store, "k"); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []error{eventstore.ErrBusy, context.DeadlineExceeded, errors.New("the store is away")} {
		store.fails = fault
		if _, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("k")); !errors.Is(err, fault) || errors.Is(err, eventstore.ErrReusedKey) {
			t.Errorf("got %v, want %v", err, fault)
		}
	}
	store.fails = nil
	if _, err := accounts.Handle(t.Context(), "a", Deposit{1}.Decide, key("k")); !errors.Is(err, aggregate.ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
}
