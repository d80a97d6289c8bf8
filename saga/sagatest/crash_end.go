package sagatest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

// holding is a sender that sends twice, or keeps a command back until the instance has ended.
type holding struct {
	r *crashRun

	mu    sync.Mutex
	inner *commands.SagaSender
}

var _ saga.Sender = (*holding)(nil)

func (h *holding) set(s *commands.SagaSender) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inner = s
}

func (h *holding) to() *commands.SagaSender {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inner
}

func (h *holding) Schema() string { return h.to().Schema() }

func (h *holding) Prepare(ctx context.Context, to string, payload any) (flow.Command, error) {
	return h.to().Prepare(ctx, to, payload)
}

func (h *holding) Replies(name string) (saga.Source, func(eventstore.RecordedEvent) (flow.Reply, error), error) {
	source, decode, err := h.to().Replies(name)
	return h.r.behind(source, replies), decode, err
}

func (h *holding) Enqueue(ctx context.Context, tx pgx.Tx, name string, meta []eventstore.Metadata, list []flow.Command) error {
	d := h.r.d
	var sent []flow.Command
	var with []eventstore.Metadata
	for i, c := range list {
		if d.held && c.Step == d.late && c.Direction == flow.Do {
			continue // it comes when all is over
		}
		sent, with = append(sent, c), append(with, meta[i])
		if d.twice || d.double == c.Step {
			sent, with = append(sent, c), append(with, meta[i])
		}
	}
	if len(sent) == 0 {
		return nil
	}
	return h.to().Enqueue(ctx, tx, name, with, sent)
}

// The two consumers of a saga.
const (
	events  = "events"
	replies = "replies"
)

// behind lets one of the consumers wait for a while, at each page, until the other has read everything.
func (r *crashRun) behind(s saga.Source, which string) saga.Source {
	if r.d.behind != which {
		return s
	}
	other := "saga-" + r.def.Name()
	if which == events {
		other += "-replies"
	}
	return waiting{s, func(ctx context.Context) {
		r.poll(ctx, slowFor, func() bool {
			return r.ask("SELECT coalesce(min(floor), 0) FROM daybook.segments WHERE consumer = $1", other) >= r.head(ctx)
		})
	}}
}

type waiting struct {
	saga.Source
	wait func(context.Context)
}

func (w waiting) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	w.wait(ctx)
	return w.Source.ReadPage(ctx, after, f, limit)
}

// settle waits until the instance has ended and nothing is under way. What is held back passes its deadline meanwhile.
func (r *crashRun) settle(ctx context.Context) {
	r.t.Helper()
	if r.d.held {
		r.pass(ctx, r.d.late)
	}
	r.rests(ctx)
}

// rests waits until the instance has ended, all commands have, and everybody has read everything.
func (r *crashRun) rests(ctx context.Context) {
	r.t.Helper()
	over := r.poll(ctx, crashPatience, func() bool { return r.t.Failed() || r.ask(unsettledSQL, r.head(ctx)) == 0 })
	if r.t.Failed() || !over {
		r.t.Fatalf("sagatest: it does not end:\n%s", r.story())
	}
}

// head is the position up to which everybody must have read.
func (r *crashRun) head(ctx context.Context) int64 {
	head, err := r.w.Store.SafeHead(ctx)
	if err != nil && ctx.Err() == nil { // a process that was killed asks in vain
		r.t.Errorf("sagatest: %v", err)
	}
	return head.Ordinal()
}

// unsettledSQL counts what is not done yet.
const unsettledSQL = `SELECT CASE WHEN EXISTS (SELECT FROM daybook.sagas) THEN 0 ELSE 1 END
  + (SELECT count(*) FROM daybook.sagas WHERE ended_at IS NULL)
  + (SELECT count(*) FROM daybook.saga_commands WHERE replied_at IS NULL AND NOT closed)
  + (SELECT count(*) FROM daybook.parked)
  + (SELECT count(*) FROM daybook.segments g JOIN daybook.consumers c USING (consumer, version) WHERE c.kind IN ('saga', 'dispatcher') AND g.floor < $1)`

// atTheEnd delivers everything once more, if the run is about that, and waits again.
func (r *crashRun) atTheEnd(ctx context.Context) {
	r.t.Helper()
	d := r.d
	if d.forget {
		r.forget(ctx)
	}
	if d.again || d.held {
		r.deliver(ctx)
		r.rests(ctx)
	}
	if d.rewind && len(d.crash) == 0 {
		r.rewind()
		r.rests(ctx)
	}
}

// forget lets the store forget how commands ended.
func (r *crashRun) forget(ctx context.Context) {
	for range 2 { // both parts
		if _, err := r.w.Pool.Exec(ctx, `SELECT daybook.turn_outcomes('1 second', (SELECT since + interval '1 day' FROM daybook.outcome_turn))`); err != nil {
			r.t.Errorf("sagatest: forget outcomes: %v", err)
		}
	}
}

// deliver sends all commands again, as a broker or a redrive may, also those that were held back.
func (r *crashRun) deliver(ctx context.Context) {
	r.t.Helper()
	rows, err := r.w.Pool.Query(ctx, `SELECT command, step, direction, intent, coalesce(undoes, '00000000-0000-0000-0000-000000000000'), type, target,
		content_type, data FROM daybook.saga_commands ORDER BY sent_at, command`)
	r.must("read the commands", err)
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c flow.Command, err error) {
		err = row.Scan((*[16]byte)(&c.ID), &c.Step, &c.Direction, &c.Intent, (*[16]byte)(&c.Undoes), &c.Type, &c.Target, &c.ContentType, &c.Data)
		return c, err
	})
	r.must("read the commands", err)
	err = pgx.BeginFunc(ctx, r.w.Pool, func(tx pgx.Tx) error {
		return r.sender.to().Enqueue(ctx, tx, r.def.Name(), make([]eventstore.Metadata, len(list)), list)
	})
	r.must("send the commands again", err)
	r.w.Store.Wake()
}

// look says how it ended, when everybody has read everything.
func (r *crashRun) look(ctx context.Context) (got result) {
	r.t.Helper()
	err := r.w.Pool.QueryRow(ctx, "SELECT state FROM daybook.sagas WHERE saga = $1 ORDER BY run DESC LIMIT 1", r.def.Name()).Scan(&got.state)
	r.must("read the state", err)
	if n := r.ask("SELECT count(*) FROM daybook.sagas"); n != 1 {
		r.t.Errorf("sagatest: there are %d runs, want 1", n)
	}
	effects := r.s.Effects
	if effects == nil {
		effects = eventsOf
	}
	got.effects, err = effects(ctx, r.w)
	r.must("look at the effects", err)
	slices.Sort(got.effects)
	// An answer may have refused what was carried out; then there is nothing to undo.
	rows, err := r.w.Pool.Query(ctx, `SELECT step || ' (intent ' || intent || ')' FROM daybook.saga_commands d WHERE direction = 'do' AND state = 'done'
		AND NOT EXISTS (SELECT FROM daybook.saga_commands u WHERE u.undoes = d.command AND u.state = 'done')
		AND NOT EXISTS (SELECT FROM daybook.saga_history h WHERE h.kind = 'refused' AND h.step = d.step)`)
	r.must("look for what was not undone", err)
	got.bare, err = pgx.CollectRows(rows, pgx.RowTo[string])
	r.must("look for what was not undone", err)
	if r.s.Check != nil {
		if err := r.s.Check(ctx, r.w, got.state); err != nil {
			r.t.Errorf("sagatest: Check: %v\n%s", err, r.story())
		}
	}
	return got
}

func eventsOf(ctx context.Context, w World) (lines []string, err error) {
	for e, err := range w.Store.ReadAll(ctx, eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %s %q", e.Stream, e.Type, e.Data))
	}
	return lines, nil
}

// story is what people need to see why.
func (r *crashRun) story() string {
	var key, story string
	ctx := context.Background()
	if err := r.w.Pool.QueryRow(ctx, "SELECT key FROM daybook.sagas LIMIT 1").Scan(&key); err != nil {
		return "no instance has begun"
	}
	e, err := saga.Explain(ctx, r.w.Pool, r.def.Name(), key)
	if err != nil {
		return err.Error()
	}
	err = r.w.Pool.QueryRow(ctx, "SELECT string_agg(kind || ' ' || step || ' ' || text, E'\\n' ORDER BY run, entry) FROM daybook.saga_history").Scan(&story)
	if err != nil {
		return e.Sentence + "\n" + err.Error()
	}
	return e.Sentence + "\n" + story
}
