package commands_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/commands"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// engine is the engine in memory with the one method more that the bus needs.
type engine struct{ *memory.Store }

// HeadToken stands for everything, so for the last event.
func (e engine) HeadToken(ctx context.Context) (eventstore.Token, error) {
	var last eventstore.Mark
	for event, err := range e.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			return eventstore.Token{}, err
		}
		last = eventstore.Mark{Partition: event.Partition, Position: event.Position}
	}
	return eventstore.MakeToken(uuid.UUID{1}, last), nil
}

func newBus(t *testing.T) (*bus.Bus, *book.Book, engine) {
	t.Helper()
	store := engine{memory.New(memory.Config{})}
	ledger := book.New(store, store.Snapshots(), nil, book.Cached(1<<16))
	return commands.NewBus(store, ledger, commands.Config{}), ledger, store
}

func lunch(amount string) commands.PostEntry {
	return commands.PostEntry{Date: "2025-01-31", Description: "Lunch", Postings: []commands.Posting{
		{Account: "expenses:food", Amount: amount, Commodity: "EUR"}, {Account: "assets:cash", Amount: "-" + amount, Commodity: "EUR"},
	}}
}

func count(t *testing.T, store eventstore.AllReader) (n int) {
	t.Helper()
	for _, err := range store.ReadAll(t.Context(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestCommandsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	b, _, store := newBus(t)
	first, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k1"))
	if err != nil || first.Repeated || first.Token.IsZero() || first.Version != 1 {
		t.Fatalf("the first time: %+v, %v", first, err)
	}
	again, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k1"))
	if err != nil || !again.Repeated || again.Result != first.Result || again.Token.String() != first.Token.String() || again.Stream != first.Stream {
		t.Errorf("the second time: %+v, %v; want %+v", again, err, first)
	}
	if _, err := b.Send(t.Context(), lunch("5.00"), bus.WithKey("k1")); !errors.Is(err, eventstore.ErrReusedKey) {
		t.Errorf("another entry under the key: %v", err)
	}
	other, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k1"), bus.InScope("ann"))
	if err != nil || other.Repeated || other.Result == first.Result {
		t.Errorf("of another caller: %+v, %v", other, err)
	}
	key := first.Result.(commands.Receipt).Key
	for range 2 {
		reversed, err := b.Send(t.Context(), commands.ReverseEntry{Key: key, Date: "2025-02-01"}, bus.WithKey("k2"))
		if err != nil || reversed.Result.(commands.Receipt).Key != entry.ReversalKey(key) {
			t.Errorf("the reversal: %+v, %v", reversed, err)
		}
	}
	if n := count(t, store); n != 5+3+4 {
		t.Errorf("%d events are stored, want 12", n)
	}
}

// Refusals are remembered with the rule, and what they say can be read from their text alone.
func TestRefusalsAreRepeated(t *testing.T) {
	t.Parallel()
	b, ledger, _ := newBus(t)
	if _, err := b.Send(t.Context(), commands.OpenAccount{Name: "assets:cash", NeverBelowZero: true}); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for try := range 2 {
		reply, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k1"))
		var refused *aggregate.RefusedError
		if !errors.Is(err, account.ErrBelowZero) || errors.As(err, &refused) != (try == 1) || try == 0 && !reply.Refused {
			t.Fatalf("try %d: %+v, %v", try, reply, err)
		}
		if refused != nil && refused.Code != "never-below-zero" {
			t.Errorf("the code is %q", refused.Code)
		}
		texts = append(texts, err.Error())
		// From now on it would be allowed.
		if _, err := ledger.ChangeTerms(t.Context(), "assets:cash", account.ChangeTerms{}); err != nil {
			t.Fatal(err)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("first it says %q, then %q", texts[0], texts[1])
	}
	got, ok := book.ParseRejection(texts[1])
	want := book.Rejection{
		Line: 2, Account: "assets:cash", Rule: "never-below-zero",
		Detail: "the account never goes below zero: a posting of -4.00 to a balance of 0 EUR would leave -4.00",
		Remedy: "correct the amount, or post what comes in first",
	}
	if !ok || got != want {
		t.Errorf("%q is read as %+v, %v; want %+v", texts[1], got, ok, want)
	}
	if _, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k2")); err != nil {
		t.Errorf("under another key: %v", err)
	}
}

func TestNamesOfEntries(t *testing.T) {
	t.Parallel()
	b, _, store := newBus(t)
	named := lunch("4.00")
	named.Key = "receipt 7"
	first, err := b.Send(t.Context(), named)
	if err != nil || first.Result != (commands.Receipt{Key: commands.EntryKey("receipt 7")}) {
		t.Fatalf("the first time: %+v, %v", first, err)
	}
	stored := count(t, store)
	named.Key = commands.EntryKey("receipt 7")
	for range 2 {
		again, err := b.Send(t.Context(), named, bus.WithKey("k1"))
		if err != nil || again.Result != (commands.Receipt{Key: named.Key, Already: true}) || again.Token.IsZero() {
			t.Errorf("in another command: %+v, %v", again, err)
		}
	}
	other := lunch("5.00")
	other.Key = named.Key
	if _, err := b.Send(t.Context(), other); !errors.Is(err, entry.ErrKeyUsed) {
		t.Errorf("another entry: %v", err)
	}
	if n := count(t, store); n != stored {
		t.Errorf("%d events were stored", n-stored)
	}
}

// Versions count for what one account decides.
func TestTermsByVersion(t *testing.T) {
	t.Parallel()
	b, _, _ := newBus(t)
	box := commands.OpenAccount{Name: "assets:box"}
	opened, err := b.Send(t.Context(), box, bus.IfVersion(eventstore.NoStream))
	if err != nil || opened.Version != 1 || opened.Result != (commands.Terms{Name: "assets:box"}) {
		t.Fatalf("opened: %+v, %v", opened, err)
	}
	if _, err := b.Send(t.Context(), box, bus.IfVersion(eventstore.NoStream)); !errors.Is(err, aggregate.ErrVersion) {
		t.Errorf("opened again: %v", err)
	}
	never := commands.ChangeTerms{Name: "assets:box", NeverBelowZero: true}
	if _, err := b.Send(t.Context(), never, bus.IfVersion(eventstore.Exactly(7))); !errors.Is(err, aggregate.ErrVersion) {
		t.Errorf("for another version: %v", err)
	}
	changed, err := b.Send(t.Context(), never, bus.IfVersion(eventstore.Exactly(1)))
	if err != nil || changed.Version != 2 || changed.Result != (commands.Terms{Name: "assets:box", NeverBelowZero: true}) {
		t.Errorf("changed: %+v, %v", changed, err)
	}
}

// What a rule forbids whatever the state is comes back before anything is decided, and the key stays free.
func TestInvalidCommands(t *testing.T) {
	t.Parallel()
	b, _, store := newBus(t)
	for name, c := range map[string]any{
		"not zero in sum": commands.PostEntry{Date: "2025-01-31", Postings: []commands.Posting{{Account: "a", Amount: "1"}}},
		"no date":         commands.PostEntry{},
		"long key":        commands.PostEntry{Key: strings.Repeat("k", 201)},
		"no day":          commands.ReverseEntry{Key: "k", Date: "2025-02-30"},
		"no name":         commands.OpenAccount{},
		"blank name":      commands.ChangeTerms{Name: " "},
	} {
		_, err := b.Send(t.Context(), c, bus.WithKey("k1"))
		var rule *journal.RuleError
		if !errors.Is(err, bus.ErrInvalidCommand) || !errors.As(err, &rule) || rule.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Send(t.Context(), lunch("1"), bus.WithKey("k1")); err != nil || count(t, store) != 5 {
		t.Errorf("afterwards: %v, %d events", err, count(t, store))
	}
}

// A command that travels is the same one: its forms agree, and with them the hash that is compared.
func TestCommandsTravel(t *testing.T) {
	t.Parallel()
	b, _, store := newBus(t)
	prepared, err := b.Prepare(t.Context(), lunch("4.00"), bus.WithKey("k1"), bus.WithID(uuid.New()))
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.Dispatch(t.Context(), prepared)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Send(t.Context(), lunch("4.00"), bus.WithKey("k1"))
	if err != nil || !again.Repeated || again.Result != first.Result || count(t, store) != 5 {
		t.Errorf("sent as a value: %+v, %v", again, err)
	}
	change, err := b.Prepare(t.Context(), commands.ChangeTerms{Name: "assets:cash"})
	if err != nil || change.Target != account.Type.Stream("assets:cash").String() {
		t.Errorf("the order of %+v: %v", change, err)
	}
}

func TestParseRejection(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "book: rejected", "book: rejected: line 3: journal: check entry: x", "rule a: b", `book: rejected: account "x: rule a: b`, "book: rejected: line x"} {
		if r, ok := book.ParseRejection(text); ok {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
	strange := &book.RejectedError{Account: `a": rule b: c`, Err: account.ErrNotOpen}
	if r, ok := book.ParseRejection(strange.Error()); !ok || r.Account != strange.Account || r.Rule != "account-open" || r.Line != 0 {
		t.Errorf("%q is read as %+v, %v", strange.Error(), r, ok)
	}
}
