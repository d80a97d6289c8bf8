package book

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/snapshot"
)

// snapshotEvery keeps the loads of busy accounts short.
const snapshotEvery = 100

// Book is a ledger in an event store. It is safe for concurrent use.
type Book struct {
	store    aggregate.Store
	accounts *aggregate.Repository[account.Account, account.Event]
	entries  *aggregate.Repository[entry.Entry, entry.Event]
}

// New returns the ledger in store. The snapshots must belong to the same store. The logger gets a line when snapshots
// begin to fail, which fails no command, and when they work again; nil is [slog.Default].
func New(store aggregate.Store, snapshots snapshot.Store, logger *slog.Logger) *Book {
	policy := snapshot.Every(snapshotEvery)
	policy.Logger = logger
	return &Book{
		store:    store,
		accounts: aggregate.NewRepository(store, account.Type, aggregate.WithSnapshots(snapshots, policy)),
		entries:  aggregate.NewRepository(store, entry.Type),
	}
}

// Posted is what posting an entry did.
type Posted struct {
	Key string
	// Already: an entry with this key was there before, and nothing was written.
	Already bool
	// Token is what a reader waits for to see the entry; zero when nothing was written.
	Token eventstore.Token
}

// PostOption changes one call of [Book.Post].
type PostOption func(*posting)

// OpeningAccounts opens the accounts of the entry that are not open, in the same append.
func OpeningAccounts() PostOption { return func(p *posting) { p.opens = true } }

// posting is one entry on its way into the book.
type posting struct {
	key      string
	entry    journal.Entry
	reverses string
	opens    bool
}

// Post records an entry under its key and posts it to its accounts, all in one append. An entry that is there already
// is a success and writes nothing. The error of a rule is a [*RejectedError].
func (b *Book) Post(ctx context.Context, key string, e journal.Entry, opts ...PostOption) (Posted, error) {
	p := posting{key: key, entry: e}
	for _, opt := range opts {
		opt(&p)
	}
	receipt, err := aggregate.Transact(ctx, b.store, func(w *aggregate.Work) error { return b.post(w, p) })
	if errors.Is(err, aggregate.ErrExists) {
		return Posted{Key: key, Already: true}, nil
	}
	return Posted{Key: key, Token: receipt.Token}, err
}

func (b *Book) post(w *aggregate.Work, p posting) error {
	record := entry.Record{Entry: p.entry, Reverses: p.reverses}
	if err := b.entries.In(w, p.key).Create(record.Decide); err != nil {
		return rejected(p.entry.Line, "", err)
	}
	for _, part := range p.entry.Postings {
		member := b.accounts.In(w, part.Account)
		if p.opens {
			if err := openIfNew(member); err != nil {
				return rejected(part.Line, part.Account, err)
			}
		}
		post := account.Post{
			Entry: p.key, Date: p.entry.Date, Description: p.entry.Description,
			Amount: part.Amount, Commodity: part.Commodity,
		}
		if err := member.Decide(post.Decide); err != nil {
			return rejected(part.Line, part.Account, err)
		}
	}
	return nil
}

// openIfNew opens an account that is not open, and leaves one that is open as it is, whatever its terms.
func openIfNew(member aggregate.Member[account.Account, account.Event]) error {
	return member.Decide(func(a account.Account) ([]account.Event, error) {
		if a.Open {
			return nil, nil
		}
		return account.Open{}.Decide(a)
	})
}

// Reverse records a new entry, dated date, that takes the entry with this key back, and marks that one as reversed. An
// entry can be reversed once. The error of a rule is a [*RejectedError].
func (b *Book) Reverse(ctx context.Context, key string, date journal.Date) (Posted, error) {
	by := entry.ReversalKey(key)
	receipt, err := aggregate.Transact(ctx, b.store, func(w *aggregate.Work) error {
		original := b.entries.In(w, key)
		if err := original.Decide(entry.Reverse{By: by}.Decide); err != nil {
			return rejected(0, "", err)
		}
		recorded, err := original.State()
		if err != nil {
			return err
		}
		return b.post(w, posting{key: by, entry: recorded.Opposite(date), reverses: key})
	})
	return Posted{Key: by, Token: receipt.Token}, err
}

// Open opens an account. An account that is open on the same terms is a success and writes nothing.
func (b *Book) Open(ctx context.Context, name string, terms account.Open) (opened bool, err error) {
	result, err := b.accounts.Handle(ctx, name, func(a account.Account) ([]account.Event, error) {
		events, err := terms.Decide(a)
		return events, rejected(0, name, err)
	})
	return result.Written > 0, err
}

// Account returns the state of an account, which is the zero state for one that was never opened.
func (b *Book) Account(ctx context.Context, name string, opts ...aggregate.LoadOption) (aggregate.Loaded[account.Account], error) {
	return b.accounts.Load(ctx, name, opts...)
}

// Entry returns the state of an entry, which is the zero state for a key under which nothing was recorded.
func (b *Book) Entry(ctx context.Context, key string) (aggregate.Loaded[entry.Entry], error) {
	return b.entries.Load(ctx, key)
}

// History yields the events of an account up to version last; 0 means all of them.
func (b *Book) History(ctx context.Context, name string, last eventstore.Version) iter.Seq2[eventstore.Event[account.Event], error] {
	return func(yield func(eventstore.Event[account.Event], error) bool) {
		for recorded, err := range b.store.ReadStream(ctx, account.Type.Stream(name), eventstore.Range{To: last}) {
			var event eventstore.Event[account.Event]
			if err == nil {
				event, err = eventstore.DecodeAs[account.Event](account.Events, recorded)
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// RejectedError says which posting a rule refused. Nothing of the entry was written.
type RejectedError struct {
	// Line is the line of the posting, or of the entry; 0 when it was not read from a file.
	Line int
	// Account is empty when the rule is the entry's own.
	Account string
	// Err is the rule's own error.
	Err error
}

func (e *RejectedError) Error() string {
	text := "book: rejected"
	if e.Line > 0 {
		text += fmt.Sprintf(": line %d", e.Line)
	}
	if e.Account != "" {
		text += fmt.Sprintf(": account %q", e.Account)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the rule's own error.
func (e *RejectedError) Unwrap() error { return e.Err }

// rejected wraps what a rule said. An error that is not a rule's passes through, as does nil.
func rejected(line int, name string, err error) error {
	for _, rule := range rules {
		if errors.Is(err, rule) {
			return &RejectedError{Line: line, Account: name, Err: err}
		}
	}
	return err
}

var rules = []error{
	journal.ErrRule, entry.ErrNotRecorded, entry.ErrReversed,
	account.ErrNotOpen, account.ErrBelowZero, account.ErrTooManyDigits, account.ErrOtherTerms,
}
