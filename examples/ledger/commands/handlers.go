package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/entry"
)

// Receipt is the result of posting and of reversing.
type Receipt struct {
	// Key is that of the entry that was posted, which is the reversal when one was asked for.
	Key string `json:"key"`
	// Already: an entry that says the same was there under the key, and nothing was written.
	Already bool `json:"already,omitempty"`
}

// Terms are the result of opening an account and of changing its terms.
type Terms struct {
	Name           string `json:"name"`
	NeverBelowZero bool   `json:"neverBelowZero"`
}

type handlers struct {
	ledger *book.Book
	head   func(context.Context) (eventstore.Token, error)
}

func register(b *bus.Bus, h handlers) {
	bus.Handle(b, PostEntryType, h.post)
	bus.Handle(b, ReverseEntryType, h.reverse)
	bus.Handle(b, OpenAccountType, h.open)
	bus.Handle(b, ChangeTermsType, h.change)
}

func (h handlers) post(ctx context.Context, c PostEntry) (bus.Reply, error) {
	content, err := c.entry()
	if err != nil {
		return bus.Reply{}, err
	}
	key := EntryKey(c.Key)
	if c.Key == "" {
		command, _ := bus.CommandFrom(ctx) // it is there in every handler
		key = commandKey(command.Scope, command.Key)
	}
	posted, err := h.ledger.Post(ctx, key, content, book.OpeningAccounts(), book.Comparing())
	if err == nil && posted.Already { // the token of the entry is not kept: this one stands for it too
		posted.Token, err = h.head(ctx)
	}
	return receipt(posted, err), err
}

func (h handlers) reverse(ctx context.Context, c ReverseEntry) (bus.Reply, error) {
	date, err := dateOf(c.Date)
	if err != nil {
		return bus.Reply{}, err
	}
	posted, err := h.ledger.Reverse(ctx, c.Key, date)
	return receipt(posted, err), err
}

func receipt(posted book.Posted, err error) bus.Reply {
	return bus.Reply{
		Refused: refused(err), Result: Receipt{Key: posted.Key, Already: posted.Already}, Token: posted.Token, Repeated: posted.Repeated,
		Stream: entry.Type.Stream(posted.Key), Version: posted.Version,
	}
}

func (h handlers) open(ctx context.Context, c OpenAccount) (bus.Reply, error) {
	result, err := h.ledger.Open(ctx, c.Name, account.Open{NeverBelowZero: c.NeverBelowZero})
	return terms(c.Name, result, err), err
}

func (h handlers) change(ctx context.Context, c ChangeTerms) (bus.Reply, error) {
	result, err := h.ledger.ChangeTerms(ctx, c.Name, account.ChangeTerms{NeverBelowZero: c.NeverBelowZero})
	return terms(c.Name, result, err), err
}

func terms(name string, result aggregate.Result[account.Account], err error) bus.Reply {
	return bus.Reply{
		Refused: refused(err), Result: Terms{Name: name, NeverBelowZero: result.State.NeverBelowZero},
		Stream: account.Type.Stream(name), Version: result.Version,
		Token: result.Token, Repeated: result.Repeated, Attempts: result.Attempts,
	}
}

// refused reports that a rule has spoken, and nothing has failed.
func refused(err error) bool {
	var rejected *book.RejectedError
	return errors.As(err, &rejected)
}

var ledgerKey = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsEntryKey reports whether a text is what the ledger itself calls a key.
func IsEntryKey(text string) bool { return ledgerKey.MatchString(text) }

// EntryKey is the key of the entry that a caller calls by a name of its own: 64 hexadecimal digits, which is what the
// ledger calls a key, are taken as they are, any other text is hashed to them.
func EntryKey(name string) string {
	if IsEntryKey(name) {
		return name
	}
	return digest("daybook-ledger-posted-1:" + name)
}

// commandKey is the key of the entry of a command. A repeat that comes when the store has forgotten the command's outcome
// meets the entry, and still writes nothing.
func commandKey(scope, key string) string {
	return digest(fmt.Sprintf("daybook-ledger-command-1:%d:%s%s", len(scope), scope, key))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
