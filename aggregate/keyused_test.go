package aggregate_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestKeyUsed(t *testing.T) {
	store := memory.New(memory.Config{})
	if aggregate.KeyUsed(t.Context()) {
		t.Fatal("used without a key")
	}
	handle := aggregate.ContextWithIdempotencyKey(t.Context(), "k")
	if aggregate.KeyUsed(handle) {
		t.Fatal("used before anything was done")
	}
	accounts := newAccounts(store)
	if _, err := accounts.Load(handle, "1"); err != nil || aggregate.KeyUsed(handle) {
		t.Fatalf("used by a load, %v", err)
	}
	if _, err := accounts.Handle(handle, "1", Deposit{1}.Decide, key("another")); err != nil || aggregate.KeyUsed(handle) {
		t.Fatalf("used by a command with a key of its own, %v", err)
	}
	if _, err := accounts.Handle(handle, "1", Deposit{1}.Decide); err != nil || !aggregate.KeyUsed(handle) {
		t.Fatalf("not used by Handle, %v", err)
	}
	transact := aggregate.ContextWithIdempotencyKey(handle, "l")
	if aggregate.KeyUsed(transact) {
		t.Fatal("a new key was used before it was there")
	}
	if _, err := aggregate.Transact(transact, store, func(*aggregate.Work) error { return nil }); err != nil || !aggregate.KeyUsed(transact) {
		t.Fatalf("not used by Transact, %v", err)
	}
	if aggregate.KeyUsed(aggregate.ContextWithIdempotencyKey(handle, "")) {
		t.Fatal("used, although the key was taken away")
	}
}
