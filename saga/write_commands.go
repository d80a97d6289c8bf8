package saga

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// maxEnqueue bounds how many commands are handed to the Sender at once.
const maxEnqueue = 5000

// bytesOf reads the stored forms of what is sent again.
func (t *turn) bytesOf(ctx context.Context, tx pgx.Tx) error {
	var again []string
	for _, s := range t.sends {
		if s.Again {
			again = append(again, s.ID.String())
		}
	}
	if len(again) == 0 {
		return nil
	}
	stored := map[uuid.UUID]flow.Command{}
	rows, err := tx.Query(ctx, t.u.sql.stored, again)
	if err != nil {
		return fmt.Errorf("saga: read what %q has sent: %w", t.u.name, err)
	}
	var id, undoes, typ, target, contentType string
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &undoes, &typ, &target, &contentType, &data}, func() error {
		c := flow.Command{Type: typ, Target: target, ContentType: contentType, Data: slices.Clone(data)}
		var err error
		if c.ID, err = uuid.Parse(id); err == nil && undoes != "" {
			c.Undoes, err = uuid.Parse(undoes)
		}
		stored[c.ID] = c
		return err
	})
	if err != nil {
		return fmt.Errorf("saga: read what %q has sent: %w", t.u.name, err)
	}
	for n := range t.sends {
		s := &t.sends[n]
		if !s.Again {
			continue
		}
		c, ok := stored[s.ID]
		if !ok {
			err := fmt.Errorf("saga: send again: command %s of %s %q run %d is not stored", s.ID, t.u.name, s.key, s.run)
			return &faultyInput{t.instances[s.place].last, err}
		}
		s.Type, s.Target, s.ContentType, s.Data, s.Undoes, s.Payload = c.Type, c.Target, c.ContentType, c.Data, c.Undoes, nil
	}
	return nil
}

func (t *turn) writeCommands(b *pgx.Batch) {
	var c commandRows
	var again []string
	for _, s := range t.sends {
		switch {
		case s.Again:
			again = append(again, s.ID.String())
		case s.run > 0: // those of reactors are written before it is known whether they are sent
			c.add(s)
		}
	}
	if len(c.ids) > 0 {
		b.Queue(t.u.sql.commands, c.args(t.u)...)
	}
	if len(again) > 0 {
		b.Queue(t.u.sql.resent, again, t.u.clock())
	}
	if len(t.closed) > 0 {
		b.Queue(t.u.sql.close, t.closed)
	}
}

type commandRows struct {
	ids, keys, steps, directions, types, targets, contentTypes []string
	runs, intents                                              []int32
	undoes                                                     []*string
	data                                                       [][]byte
	positions                                                  []int64
}

func (c *commandRows) add(s send) {
	c.ids, c.keys, c.runs = append(c.ids, s.ID.String()), append(c.keys, s.key), append(c.runs, int32(s.run))
	c.steps, c.directions, c.intents = append(c.steps, s.Step), append(c.directions, string(s.Direction)), append(c.intents, int32(s.Intent))
	var undoes *string
	if s.Undoes != uuid.Nil {
		id := s.Undoes.String()
		undoes = &id
	}
	c.undoes, c.types, c.targets = append(c.undoes, undoes), append(c.types, s.Type), append(c.targets, s.Target)
	c.contentTypes, c.data, c.positions = append(c.contentTypes, s.ContentType), append(c.data, some(s.Data)), append(c.positions, s.position)
}

func (c *commandRows) args(u *unit) []any {
	return []any{
		u.name, u.clock(), c.ids, c.keys, c.runs, c.steps, c.directions, c.intents, c.undoes, c.types, c.targets, c.contentTypes, c.data, c.positions,
	}
}

func (t *turn) enqueue(ctx context.Context, tx pgx.Tx) error {
	for part := range slices.Chunk(t.sends, maxEnqueue) {
		metas, commands := make([]eventstore.Metadata, len(part)), make([]flow.Command, len(part))
		for n, s := range part {
			metas[n], commands[n] = s.meta, s.Command
		}
		if err := t.u.sender.Enqueue(ctx, tx, t.u.name, metas, commands); err != nil {
			return fmt.Errorf("saga: send commands of %q: %w", t.u.name, err)
		}
	}
	t.counts.sent += int64(len(t.sends))
	return nil
}

const (
	commandsSQL = `
INSERT INTO {schema}.saga_commands (command, saga, key, run, step, direction, intent, undoes, type, target, content_type, data, position, sent_at)
SELECT u.id::uuid, $1, u.key, u.run, u.step, u.direction, u.intent, u.undoes::uuid, u.type, u.target, u.content_type, u.data, u.position,
       coalesce($2::timestamptz, clock_timestamp())
  FROM unnest($3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::int[], $9::text[], $10::text[], $11::text[], $12::text[],
              $13::bytea[], $14::bigint[])
       AS u(id, key, run, step, direction, intent, undoes, type, target, content_type, data, position)
ON CONFLICT (command) DO NOTHING`

	storedSQL = `
SELECT c.command::text, coalesce(c.undoes::text, ''), c.type, c.target, c.content_type, c.data
  FROM unnest($1::text[]) u(id) CROSS JOIN LATERAL (SELECT x.* FROM {schema}.saga_commands x WHERE x.command = u.id::uuid OFFSET 0) c`

	resentSQL = `
UPDATE {schema}.saga_commands SET resent_at = coalesce($2::timestamptz, clock_timestamp())
 WHERE command = ANY ($1::text[]::uuid[])`

	closeSQL = `UPDATE {schema}.saga_commands SET closed = true WHERE command = ANY ($1::text[]::uuid[]) AND NOT closed`
)
