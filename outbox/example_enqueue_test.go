package outbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/outbox"
)

// A row of the application's own and the mail that tells of it: both are there, or none.
func ExampleEnqueue() {
	invite := func(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, address string) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO invitations (address) VALUES ($1)`, address); err != nil {
				return err
			}
			return outbox.Enqueue(ctx, tx, outbox.Message{Topic: "mail", Key: address, Type: "mail.invite", Data: []byte(address)})
		})
		if err == nil {
			store.Wake() // published at once, not at the relay's next look
		}
		return err
	}
	_ = invite
}
