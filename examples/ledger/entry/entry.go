package entry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

// The rules of an entry besides those of package journal. The texts begin with the rule's name.
var (
	ErrNotRecorded = errors.New("rule entry-exists: there is no such entry")
	ErrReversed    = errors.New("rule reversed-once: the entry was reversed before")
	ErrKeyUsed     = errors.New("rule key-once: the key was used for another entry")
)

// Refusals are the rules as the outcomes of commands name them.
var Refusals = []aggregate.Refusal{
	aggregate.Refuses("entry-exists", ErrNotRecorded),
	aggregate.Refuses("reversed-once", ErrReversed),
	aggregate.Refuses("key-once", ErrKeyUsed),
	aggregate.Refuses("journal", journal.ErrRule),
}

// Event is what can happen to an entry.
//
//sumtype:decl
type Event interface{ entryEvent() }

// Recorded: the entry is part of the ledger.
type Recorded struct {
	Date        journal.Date
	Description string
	Postings    []Posting
	// Reverses is the key of the entry that this one takes back, or empty.
	Reverses string
}

// Reversed: another entry takes this one back.
type Reversed struct {
	// By is the key of the other entry.
	By string
}

func (Recorded) entryEvent() {}
func (Reversed) entryEvent() {}

// Posting is a posting as it is stored: without the line it came from.
type Posting struct {
	Account   string
	Amount    decimal.Decimal
	Commodity string
}

// Type is the kind of aggregate; an entry's id is its key.
var Type = aggregate.Define("entry", Entry.Evolve, Events)

// Events are the events of an entry and the names under which they are stored.
var Events = eventstore.NewCatalog(
	eventstore.TypeOf[Recorded]("entry.recorded"),
	eventstore.TypeOf[Reversed]("entry.reversed"))

// Entry is the state that decisions are made on. The zero value is an entry that was never recorded.
type Entry struct {
	Recorded
	// ReversedBy is the key of the entry that takes this one back, or empty.
	ReversedBy string
}

// Evolve folds an event into the state.
func (e Entry) Evolve(event Event) Entry {
	switch event := event.(type) {
	case Recorded:
		e.Recorded = event
	case Reversed:
		e.ReversedBy = event.By
	}
	return e
}

// Record asks to make an entry part of the ledger.
type Record struct {
	Entry journal.Entry
	// Reverses is the key of the entry that this one takes back, or empty.
	Reverses string
}

// Decide records the entry if it obeys the rules.
func (c Record) Decide(Entry) ([]Event, error) {
	if err := journal.Check(c.Entry); err != nil {
		return nil, err
	}
	recorded := Recorded{Date: c.Entry.Date, Description: c.Entry.Description, Reverses: c.Reverses}
	for _, p := range c.Entry.Postings {
		recorded.Postings = append(recorded.Postings, Posting{Account: p.Account, Amount: p.Amount, Commodity: p.Commodity})
	}
	return []Event{recorded}, nil
}

// RecordAgain asks for an entry that may be there already: asking for the same is a success without an event.
type RecordAgain Record

// Decide records the entry unless it is recorded, and refuses another one than that.
func (c RecordAgain) Decide(e Entry) ([]Event, error) {
	switch {
	case len(e.Postings) == 0:
		return Record(c).Decide(e)
	case e.Reverses != c.Reverses || !bytes.Equal(journal.Canonical(e.Content()), journal.Canonical(c.Entry)):
		return nil, fmt.Errorf("%w: post this one under a key of its own", ErrKeyUsed)
	}
	return nil, nil
}

// Reverse asks to take an entry back.
type Reverse struct {
	// By is the key of the entry that does.
	By string
}

// Decide allows the first reversal of an entry that exists.
func (c Reverse) Decide(e Entry) ([]Event, error) {
	switch {
	case len(e.Postings) == 0:
		return nil, ErrNotRecorded
	case e.ReversedBy != "":
		return nil, fmt.Errorf("%w, by %s: reverse that one to take the reversal back", ErrReversed, e.ReversedBy)
	}
	return []Event{Reversed(c)}, nil
}

// Content is what the entry says, without the lines and the number that it had in a file.
func (r Recorded) Content() journal.Entry {
	e := journal.Entry{Date: r.Date, Description: r.Description}
	for _, p := range r.Postings {
		e.Postings = append(e.Postings, journal.Posting{Account: p.Account, Amount: p.Amount, Commodity: p.Commodity})
	}
	return e
}

// Opposite is the entry that takes e back: the same postings with the other sign.
func (e Entry) Opposite(date journal.Date) journal.Entry {
	opposite := journal.Entry{Date: date, Description: "Reversal of: " + e.Description}
	for _, p := range e.Postings {
		opposite.Postings = append(opposite.Postings, journal.Posting{Account: p.Account, Amount: p.Amount.Neg(), Commodity: p.Commodity})
	}
	return opposite
}

// ReversalKey is the key of the one entry that can reverse the entry with this key.
func ReversalKey(key string) string {
	sum := sha256.Sum256([]byte("daybook-ledger-reversal-1:" + key))
	return hex.EncodeToString(sum[:])
}
