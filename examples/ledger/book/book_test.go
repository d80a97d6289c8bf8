package book_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

var may = journal.Date{Year: 2025, Month: 5, Day: 31}

func newBook(t *testing.T) (*book.Book, *memory.Store) {
	t.Helper()
	store := memory.New(memory.Config{})
	return book.New(store, store.Snapshots(), nil), store
}

// move is an entry that moves euros from one account to another.
func move(amount, from, to string) journal.Entry {
	d := decimal.MustParse(amount)
	return journal.Entry{Line: 2, Date: may, Description: "Move", Postings: []journal.Posting{
		{Line: 2, Account: to, Amount: d, Commodity: "EUR"},
		{Line: 3, Account: from, Amount: d.Neg(), Commodity: "EUR"},
	}}
}

func balance(t *testing.T, b *book.Book, name, want string, opts ...aggregate.LoadOption) {
	t.Helper()
	loaded, err := b.Account(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.State.Holdings["EUR"].Balance.String(); got != want {
		t.Errorf("%s holds %s, want %s", name, got, want)
	}
}

func count(t *testing.T, store eventstore.AllReader) int {
	t.Helper()
	n := 0
	for _, err := range store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestPostOpensAccountsAndPostsOnce(t *testing.T) {
	t.Parallel()
	b, store := newBook(t)
	first, err := b.Post(t.Context(), "k1", move("5.00", "equity", "cash"), book.OpeningAccounts())
	if err != nil || first.Already || first.Token.IsZero() {
		t.Fatalf("the first time: %+v, %v", first, err)
	}
	stored := count(t, store)
	if stored != 5 {
		t.Errorf("%d events were stored, want an entry, two accounts opened and two postings", stored)
	}
	second, err := b.Post(t.Context(), "k1", move("5.00", "equity", "cash"), book.OpeningAccounts())
	if err != nil || !second.Already || !second.Token.IsZero() {
		t.Fatalf("the second time: %+v, %v", second, err)
	}
	if n := count(t, store); n != stored {
		t.Errorf("the second time stored %d events", n-stored)
	}
	balance(t, b, "cash", "5.00")
	balance(t, b, "equity", "-5.00")
}

func TestRejectedEntriesWriteNothing(t *testing.T) {
	t.Parallel()
	b, store := newBook(t)
	if _, err := b.Open(t.Context(), "cash", account.Open{NeverBelowZero: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Post(t.Context(), "k0", move("5.00", "equity", "cash"), book.OpeningAccounts()); err != nil {
		t.Fatal(err)
	}
	stored := count(t, store)
	crooked := move("1.00", "equity", "cash")
	crooked.Postings[0].Amount = decimal.MustParse("1.01")
	for name, c := range map[string]struct {
		entry   journal.Entry
		opts    []book.PostOption
		rule    error
		line    int
		account string
	}{
		"not open":   {entry: move("1.00", "nowhere", "cash"), rule: account.ErrNotOpen, line: 3, account: "nowhere"},
		"below zero": {entry: move("5.01", "cash", "food"), opts: []book.PostOption{book.OpeningAccounts()}, rule: account.ErrBelowZero, line: 3, account: "cash"},
		"crooked":    {entry: crooked, rule: journal.ErrRule, line: 2},
		"too large":  {entry: move("9999999999999999999", "equity", "cash"), rule: account.ErrTooManyDigits, line: 2, account: "cash"},
	} {
		_, err := b.Post(t.Context(), "k1", c.entry, c.opts...)
		var rejected *book.RejectedError
		if !errors.As(err, &rejected) || !errors.Is(err, c.rule) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if rejected.Line != c.line || rejected.Account != c.account {
			t.Errorf("%s: line %d, account %q: %v", name, rejected.Line, rejected.Account, err)
		}
	}
	if n := count(t, store); n != stored {
		t.Errorf("%d events were stored by rejected entries", n-stored)
	}
}

func TestReverse(t *testing.T) {
	t.Parallel()
	b, store := newBook(t)
	if _, err := b.Post(t.Context(), "k1", move("5.00", "equity", "cash"), book.OpeningAccounts()); err != nil {
		t.Fatal(err)
	}
	reversal, err := b.Reverse(t.Context(), "k1", may)
	if err != nil {
		t.Fatal(err)
	}
	balance(t, b, "cash", "0.00")
	balance(t, b, "cash", "5.00", aggregate.AtVersion(2))
	original, err := aggregate.NewRepository(store, entry.Type).Load(t.Context(), "k1")
	if err != nil || original.State.ReversedBy != reversal.Key {
		t.Errorf("the original says it was reversed by %q, want %q: %v", original.State.ReversedBy, reversal.Key, err)
	}
	by, err := aggregate.NewRepository(store, entry.Type).Load(t.Context(), reversal.Key)
	if err != nil || by.State.Reverses != "k1" {
		t.Errorf("the reversal names %q: %v", by.State.Reverses, err)
	}
	stored := count(t, store)
	if _, err := b.Reverse(t.Context(), "k1", may); !errors.Is(err, entry.ErrReversed) {
		t.Errorf("the second reversal: %v", err)
	}
	if _, err := b.Reverse(t.Context(), "k9", may); !errors.Is(err, entry.ErrNotRecorded) {
		t.Errorf("the reversal of an unknown entry: %v", err)
	}
	if n := count(t, store); n != stored {
		t.Errorf("refused reversals stored %d events", n-stored)
	}
	if _, err := b.Reverse(t.Context(), reversal.Key, may); err != nil {
		t.Errorf("the reversal of the reversal: %v", err)
	}
	balance(t, b, "cash", "5.00")
}

func TestManyPostTheSameEntry(t *testing.T) {
	t.Parallel()
	b, store := newBook(t)
	var all sync.WaitGroup
	fresh := make(chan bool, 16)
	for range cap(fresh) {
		all.Go(func() {
			posted, err := b.Post(context.WithoutCancel(t.Context()), "k1", move("5.00", "equity", "cash"), book.OpeningAccounts())
			if err != nil {
				t.Error(err)
			}
			fresh <- !posted.Already
		})
	}
	all.Wait()
	close(fresh)
	n := 0
	for f := range fresh {
		if f {
			n++
		}
	}
	if n != 1 || count(t, store) != 5 {
		t.Errorf("%d of the callers posted the entry, and %d events are stored", n, count(t, store))
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	b, _ := newBook(t)
	for _, key := range []string{"k1", "k2"} {
		if _, err := b.Post(t.Context(), key, move("5.00", "equity", "cash"), book.OpeningAccounts()); err != nil {
			t.Fatal(err)
		}
	}
	for last, want := range map[eventstore.Version]int{0: 3, 2: 2} {
		n := 0
		for event, err := range b.History(t.Context(), "cash", last) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; event.Version != eventstore.Version(n) {
				t.Errorf("event %d has version %d", n, event.Version)
			}
		}
		if n != want {
			t.Errorf("up to version %d there are %d events, want %d", last, n, want)
		}
	}
}
