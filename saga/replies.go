package saga

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/flow"
)

// replyApplier makes a consumer of what became of a saga's commands.
type replyApplier struct {
	u      *unit
	decode func(eventstore.RecordedEvent) (flow.Reply, error)
}

// Relaxed implements [consumer.Applier].
func (replyApplier) Relaxed() bool { return false }

// Plan implements [consumer.Applier].
func (a replyApplier) Plan(_ context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	p := &replyPlan{u: a.u, replies: make([]flow.Reply, len(events))}
	for i, e := range events {
		err := safely("saga: "+a.u.name, func() (err error) {
			p.replies[i], err = a.decode(e)
			return err
		})
		if err != nil {
			return nil, &consumer.EventError{Index: i, Err: err}
		}
		if p.replies[i].At.IsZero() {
			p.replies[i].At = e.RecordedAt
		}
	}
	return p, nil
}

// replyPlan is one attempt at some replies.
type replyPlan struct {
	u       *unit
	replies []flow.Reply
	turn    *turn
}

// Load implements [consumer.Plan].
func (p *replyPlan) Load(b *pgx.Batch) {
	p.turn = p.u.turn()
	ids := make([]string, len(p.replies))
	for i, r := range p.replies {
		ids[i] = r.Command.String()
	}
	p.turn.load(b, nil, distinct(ids), nil)
}

// Apply implements [consumer.Plan]. A reply that says what is known already was given before.
func (p *replyPlan) Apply(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	t := p.turn
	known := map[uuid.UUID]int{} // the place of its reply in the columns
	var ids, states, codes, reasons []string
	var at []time.Time
	for i := range p.replies {
		r := &p.replies[i]
		o, sent := t.origins[r.Command]
		if !sent || o.state == string(r.State) { // removed with its instance, or told before
			t.counts.ignored++
			continue
		}
		o.state = string(r.State)
		t.origins[r.Command] = o
		n, again := known[r.Command]
		if !again {
			n = len(ids)
			known[r.Command] = n
			ids, states, codes, reasons, at = append(ids, ""), append(states, ""), append(codes, ""), append(reasons, ""), append(at, r.At)
		}
		ids[n], states[n], codes[n], reasons[n], at[n] = r.Command.String(), string(r.State), storable(r.Code), storable(r.Reason), r.At
		in := t.instances[o.place]
		if in == nil { // of a reactor
			continue
		}
		s := stimulus{Input: flow.Input{Reply: r, Origin: o.Origin}, index: i, cause: r.Command.String()}
		if err := t.react(ctx, in, s); err != nil {
			return &consumer.EventError{Index: i, Err: err}
		}
	}
	p.u.cfg.Probe(ProbeReacted)
	if len(ids) > 0 {
		b.Queue(p.u.sql.replied, ids, states, codes, reasons, at)
	}
	return blamed(t.write(ctx, tx, b))
}

// Committed implements [consumer.Committed].
func (p *replyPlan) Committed() { p.u.committed(p.turn) }

// repliedSQL: nobody else writes to these rows meanwhile. Their instances are locked, and those of reactors are written by the
// one owner of the replies.
const repliedSQL = `
UPDATE {schema}.saga_commands c SET state = u.state, code = u.code, reason = u.reason, replied_at = u.at
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[]) AS u(id, state, code, reason, at)
 CROSS JOIN LATERAL (SELECT x.ctid AS place FROM {schema}.saga_commands x WHERE x.command = u.id::uuid OFFSET 0) r
 WHERE c.ctid = r.place`
