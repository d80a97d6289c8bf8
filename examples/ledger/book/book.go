package book

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/entry"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/snapshot"
)

// An account that is posted to all day has a snapshot per snapshotEvery events; one that is posted to now and then gets
// one when a command had to read longWay events for it, at most once in a while.
const (
	snapshotEvery = 100
	longWay       = 30
	inAWhile      = time.Hour
)

// Book is a ledger in an event store. It is safe for concurrent use.
type Book struct {
	store    aggregate.Store
	accounts *aggregate.Repository[account.Account, account.Event]
	entries  *aggregate.Repository[entry.Entry, entry.Event]
}

// Option changes a book.
type Option func(*options)

type options struct{ cache int }

// Cached keeps the states of accounts that were in use lately, up to so many bytes. It pays for a process that stays and
// sees the same accounts again.
func Cached(bytes int) Option { return func(o *options) { o.cache = bytes } }

// New returns the ledger in store. The snapshots must belong to the same store. The logger gets a line when snapshots
// begin to fail, which fails no command, and when they work again; nil is [slog.Default].
func New(store aggregate.Store, snapshots snapshot.Store, logger *slog.Logger, opts ...Option) *Book {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	policy := snapshot.Or(snapshot.Every(snapshotEvery), snapshot.And(snapshot.WhenReplayed(longWay), snapshot.After(inAWhile)))
	policy.Logger = logger
	accounts := []aggregate.Option{aggregate.WithSnapshots(snapshots, policy)}
	if o.cache > 0 {
		accounts = append(accounts, aggregate.WithCache(o.cache))
	}
	return &Book{
		store:    store,
		accounts: aggregate.NewRepository(store, account.Type, accounts...),
		entries:  aggregate.NewRepository(store, entry.Type),
	}
}

// Drain waits until the snapshots that are due are written, or ctx ends. A process calls it before it closes the store.
func (b *Book) Drain(ctx context.Context) error { return b.accounts.Snapshots().Drain(ctx) }

// Posted is what posting an entry did.
type Posted struct {
	Key string
	// Already: an entry with this key was there before, and nothing was written.
	Already bool
	// Version is that of the entry; 0 when it is not known.
	Version eventstore.Version
	// Token is what a reader waits for to see the entry; zero when nothing was written.
	Token eventstore.Token
	// Repeated: the command had a key and was carried out before; this is what it did then.
	Repeated bool
}

// PostOption changes one call of [Book.Post].
type PostOption func(*posting)

// OpeningAccounts opens the accounts of the entry that are not open, in the same append.
func OpeningAccounts() PostOption { return func(p *posting) { p.opens = true } }

// Comparing looks at an entry that is there already: one that says something else is refused, with [entry.ErrKeyUsed].
// Without it the key, which is then made of what the entry says, is taken for the whole answer, and nothing is read.
func Comparing() PostOption { return func(p *posting) { p.compares = true } }

// posting is one entry on its way into the book.
type posting struct {
	key      string
	entry    journal.Entry
	reverses string
	opens    bool
	compares bool
}

// already is what the outcome of a command says that found its entry.
const already = "already"

// Post records an entry under its key and posts it to its accounts, all in one append. An entry that is there already
// is a success and writes nothing. The error of a rule is a [*RejectedError].
//
// Under a context with an idempotency key, use Comparing: only then is an entry that is there an outcome like any other.
func (b *Book) Post(ctx context.Context, key string, e journal.Entry, opts ...PostOption) (Posted, error) {
	p := posting{key: key, entry: e}
	for _, opt := range opts {
		opt(&p)
	}
	receipt, err := b.transact(ctx, func(w *aggregate.Work) error { return b.post(w, p) })
	if errors.Is(err, aggregate.ErrExists) {
		return Posted{Key: key, Already: true}, nil
	}
	return posted(key, receipt), err
}

func posted(key string, r aggregate.Receipt) Posted {
	return Posted{
		Key: key, Already: string(r.Result) == already, Version: r.Versions[entry.Type.Stream(key)],
		Token: r.Token, Repeated: r.Repeated,
	}
}

// transact knows the rules, so that a refusal that is repeated is recognised as what it was.
func (b *Book) transact(ctx context.Context, run func(*aggregate.Work) error) (aggregate.Receipt, error) {
	var opts []aggregate.HandleOption
	for _, r := range append(entry.Refusals, account.Refusals...) {
		opts = append(opts, r)
	}
	return aggregate.Transact(ctx, b.store, run, opts...)
}

func (b *Book) post(w *aggregate.Work, p posting) error {
	record := entry.Record{Entry: p.entry, Reverses: p.reverses}
	member := b.entries.In(w, p.key)
	if p.compares {
		known, err := member.Version()
		if err != nil {
			return err
		}
		if err := member.Decide(entry.RecordAgain(record).Decide); err != nil {
			return rejected(p.entry.Line, "", err)
		}
		if known > 0 {
			w.SetResult([]byte(already))
			return nil
		}
	} else if err := member.Create(record.Decide); err != nil {
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
	receipt, err := b.transact(ctx, func(w *aggregate.Work) error {
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
	return posted(by, receipt), err
}

// Open opens an account. An account that is open on the same terms is a success and writes nothing.
func (b *Book) Open(ctx context.Context, name string, terms account.Open) (aggregate.Result[account.Account], error) {
	return b.accounts.Handle(ctx, name, ruled(name, terms.Decide))
}

// ChangeTerms lets other terms hold for what is posted from now on. The present ones are a success and write nothing.
func (b *Book) ChangeTerms(ctx context.Context, name string, terms account.ChangeTerms) (aggregate.Result[account.Account], error) {
	return b.accounts.Handle(ctx, name, ruled(name, terms.Decide))
}

// ruled is a decision whose refusals name the account.
func ruled(name string, decide func(account.Account) ([]account.Event, error)) func(account.Account) ([]account.Event, error) {
	return func(a account.Account) ([]account.Event, error) {
		events, err := decide(a)
		return events, rejected(0, name, err)
	}
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
