package commands

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/outbox"
)

// Schema names the PostgreSQL schema of a store; the zero value stands for [outbox.DefaultSchema].
type Schema string

// Enqueue is [Schema.Enqueue] for the store in [outbox.DefaultSchema].
func Enqueue(ctx context.Context, tx pgx.Tx, commands ...bus.Command) error {
	return Schema(outbox.DefaultSchema).Enqueue(ctx, tx, commands...)
}

// Enqueue sends commands in the transaction of the caller, who commits: they are carried out if and only if tx is. Make
// them with Bus.Prepare. Commands of one target are carried out in the order in which they were enqueued; one
// without a target stands alone. A command with a key of the caller's gets its id from scope and key ([OperationID]);
// another keeps its own, and gets one if it has none. What was enqueued before, by id or by scope and key, takes no
// second effect.
//
// Its operation can be asked for once the command has ended, and not before; with ReplyTo the sender is told. It costs one
// round trip, and the dispatcher looks within a second, or at once when Wake of the store is called after the commit. The context's metadata is joined with that of the commands.
//
// The error is an [*eventstore.InvalidError] for what cannot be sent; then tx goes on as before. Otherwise tx is broken;
// see [outbox.Schema.Enqueue], whose advice holds here too.
func (s Schema) Enqueue(ctx context.Context, tx pgx.Tx, commands ...bus.Command) error {
	messages := make([]outbox.Message, len(commands))
	for i, c := range commands {
		c, err := named(ctx, c)
		var m outbox.Message
		if err == nil {
			m, err = message(c)
		}
		if err != nil {
			return fmt.Errorf("commands: enqueue %q: %w", c.Type, err)
		}
		messages[i] = m
	}
	if err := outbox.Schema(s).Enqueue(ctx, tx, messages...); err != nil {
		return fmt.Errorf("commands: enqueue: %w", err)
	}
	return nil
}
