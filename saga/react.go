package saga

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// reactorPlan is one attempt at some events of a reactor. A command whose row is there was sent before.
type reactorPlan struct {
	u    *unit
	all  []send
	turn *turn
	rows commandRows
	news map[uuid.UUID]bool
}

func (u *unit) planReactor(ctx context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	p := &reactorPlan{u: u}
	for i := range events {
		e := &events[i]
		var commands []flow.Command
		err := safely("saga: "+u.name, func() error {
			payload, err := u.reactor.Decode(*e)
			if err == nil {
				commands, err = u.reactor.Commands(ctx, u.sender, e, payload)
			}
			return err
		})
		if err != nil {
			return nil, &consumer.EventError{Index: i, Err: fmt.Errorf("saga: %s: %w", u.name, err)}
		}
		meta := eventstore.Metadata{
			Tenant: e.Metadata.Tenant, CorrelationID: e.Metadata.CorrelationID, CausationID: e.ID.String(), Actor: actorOf(u.name),
		}
		if meta.CorrelationID == "" {
			meta.CorrelationID = e.ID.String()
		}
		for _, c := range commands {
			p.all = append(p.all, send{Command: c, place: place{key: e.ID.String()}, meta: meta, position: e.Position.Ordinal()})
		}
	}
	return p, nil
}

// Load implements [consumer.Plan]: the rows are written first, and say which commands are new.
func (p *reactorPlan) Load(b *pgx.Batch) {
	p.turn, p.rows, p.news = p.u.turn(), commandRows{}, map[uuid.UUID]bool{}
	b.Queue(planSQL)
	p.turn.loadNow(b)
	if len(p.all) == 0 {
		return
	}
	for _, s := range p.all {
		p.rows.add(s)
	}
	b.Queue(p.u.sql.reacted, p.rows.args(p.u)...).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			command, err := uuid.Parse(id)
			p.news[command] = true
			return err
		})
		return err
	})
}

// Apply implements [consumer.Plan].
func (p *reactorPlan) Apply(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	t := p.turn
	for _, s := range p.all {
		if p.news[s.ID] {
			delete(p.news, s.ID)
			t.sends = append(t.sends, s)
		} else {
			t.counts.ignored++
		}
	}
	t.counts.reactions += int64(len(t.sends))
	p.u.cfg.Probe(ProbeReacted)
	return t.enqueue(ctx, tx)
}

// Committed implements [consumer.Committed].
func (p *reactorPlan) Committed() { p.u.committed(p.turn) }

// reactedSQL is commandsSQL for what an event brings about by itself. What was sent so long ago that its rows are gone is not
// sent again.
const reactedSQL = `
INSERT INTO {schema}.saga_commands (command, saga, key, run, step, direction, intent, undoes, type, target, content_type, data, position, sent_at)
SELECT u.id::uuid, $1, u.key, u.run, u.step, u.direction, u.intent, u.undoes::uuid, u.type, u.target, u.content_type, u.data, u.position,
       coalesce($2::timestamptz, clock_timestamp())
  FROM unnest($3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::int[], $9::text[], $10::text[], $11::text[], $12::text[],
              $13::bytea[], $14::bigint[])
       AS u(id, key, run, step, direction, intent, undoes, type, target, content_type, data, position)
 WHERE u.position > coalesce((SELECT n.cleaned FROM {schema}.saga_names n WHERE n.saga = $1), 0)
ON CONFLICT (command) DO NOTHING
RETURNING command::text`
