package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/book"
	"github.com/daybook-go/daybook/examples/ledger/journal"
	"github.com/daybook-go/daybook/outbox"
)

// ledger is the service that publishes.
type ledger struct {
	store *postgres.Store
	book  *book.Book
	relay *outbox.Relay
}

// Posting is what the ledger tells others of a posting: its public form, which stays as it is when the ledger's own events
// change.
type Posting struct {
	Entry   string `json:"entry"`
	Account string `json:"account"`
	Amount  string `json:"amount"`
	What    string `json:"what"`
}

func openLedger(ctx context.Context, pool *pgxpool.Pool, publisher message.Publisher) (*ledger, error) {
	if err := postgres.Migrate(ctx, pool, postgres.MigrateConfig{}); err != nil {
		return nil, err
	}
	store, err := postgres.New(ctx, pool, postgres.Config{Routes: []eventstore.Route{
		{Topic: topic, Categories: []string{"account"}, Types: []string{"account.posted"}, Map: public},
	}})
	if err != nil {
		return nil, err
	}
	relay, err := outbox.NewRelay(pool, store.Outbox(), publisher, outbox.Config{})
	if err != nil {
		store.Close()
		return nil, err
	}
	return &ledger{store: store, relay: relay, book: book.New(store, store.Snapshots(), slog.New(slog.DiscardHandler))}, nil
}

// public makes the message that is published in place of an event, in the append's own transaction.
func public(stream eventstore.StreamID, e eventstore.EventData) (eventstore.EventData, error) {
	event, err := account.Events.Decode(eventstore.RecordedEvent{EventData: e, Stream: stream})
	if err != nil {
		return eventstore.EventData{}, err
	}
	p := event.(account.Posted)
	data, err := json.Marshal(Posting{Entry: p.Entry, Account: stream.ID, Amount: p.Amount.String(), What: p.Description})
	return eventstore.EventData{Type: "ledger.posting", ContentType: "application/json", Data: data}, err
}

func (l *ledger) post(ctx context.Context, key string, m move) error {
	amount, err := journal.ParseAmount(m.amount)
	if err != nil {
		return err
	}
	_, err = l.book.Post(ctx, key, journal.Entry{Date: today, Description: m.what, Postings: []journal.Posting{
		{Account: m.from, Amount: amount.Neg(), Commodity: "EUR"},
		{Account: m.to, Amount: amount, Commodity: "EUR"},
	}}, book.OpeningAccounts())
	return err
}
