package saga

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/timers"
)

// maxEnqueue bounds how many commands are handed to the Sender at once.
const maxEnqueue = 5000

// faultyInput says which input an instance cannot be written after.
type faultyInput struct {
	index int
	err   error
}

func (e *faultyInput) Error() string { return e.err.Error() }
func (e *faultyInput) Unwrap() error { return e.err }

// write sends the commands and queues everything else on b. It is the last thing before the commit: from the sending on the
// head of the log is held back.
func (t *turn) write(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	slices.SortFunc(t.order, func(x, y *instance) int { return cmp.Or(cmp.Compare(x.key, y.key), cmp.Compare(x.run, y.run)) })
	if err := t.writeInstances(b); err != nil {
		return err
	}
	t.writeHistory(b)
	t.writeHeld(b)
	if err := t.bytesOf(ctx, tx); err != nil {
		return err
	}
	t.writeCommands(b)
	t.writeTimers(b)
	return t.enqueue(ctx, tx)
}

// now is the time that the database is given; nil: its own.
func (u *unit) clock() *time.Time {
	if u.cfg.Clock == nil {
		return nil
	}
	now := u.cfg.Clock()
	return &now
}

func (t *turn) writeInstances(b *pgx.Batch) error {
	var fresh, old rows
	for _, in := range t.order {
		if in.state == nil { // only kept something
			continue
		}
		var data, progress []byte
		var contentType, awaits string
		err := safely("saga: "+t.u.name, func() (err error) {
			onward(in.machine, in.state)
			if data, contentType, progress, err = in.machine.Encode(in.state); err == nil {
				awaits = in.machine.Awaits(in.state)
			}
			return err
		})
		if err != nil {
			return &faultyInput{in.last, fmt.Errorf("saga: encode %s: %w", in.facts.Ref, err)}
		}
		if in.fresh {
			fresh.add(in, data, contentType, progress, awaits)
		} else {
			old.add(in, data, contentType, progress, awaits)
		}
		t.sticks(in, in.state.Stuck)
		if !in.over && in.state.State.Over() {
			t.counts.ended++
		}
	}
	if len(fresh.keys) > 0 {
		b.Queue(t.u.sql.insert, append(fresh.args(t.u), fresh.kinds, fresh.startedBy, fresh.tenants, fresh.correlations, fresh.began, fresh.startedAt)...)
	}
	if len(old.keys) > 0 {
		b.Queue(t.u.sql.update, old.args(t.u)...)
	}
	return nil
}

// rows are instances to be written, an array for each column.
type rows struct {
	keys, states, reasons, steps, texts, awaits, types []string
	runs, versions                                     []int32
	since, waits, retries                              []*time.Time
	progress, data                                     [][]byte
	entries, positions                                 []int64
	over                                               []bool

	kinds, startedBy, tenants, correlations []string // of new ones
	began                                   []int64
	startedAt                               []time.Time
}

func (r *rows) add(in *instance, data []byte, contentType string, progress []byte, awaits string) {
	i := in.state
	r.keys, r.runs, r.versions = append(r.keys, in.key), append(r.runs, int32(in.run)), append(r.versions, int32(in.version))
	r.states, r.reasons = append(r.states, string(i.State)), append(r.reasons, i.Stuck.Reason)
	r.steps, r.texts = append(r.steps, i.Stuck.Step), append(r.texts, storable(i.Stuck.Text))
	var since *time.Time
	if i.Stuck.Reason != "" && !i.Stuck.Since.IsZero() {
		since = &i.Stuck.Since
	}
	r.since, r.awaits = append(r.since, since), append(r.awaits, storable(awaits))
	r.types, r.data, r.progress = append(r.types, contentType), append(r.data, some(data)), append(r.progress, some(progress))
	r.entries, r.positions = append(r.entries, in.entries+int64(len(in.history))), append(r.positions, in.position)
	r.over = append(r.over, i.State.Over())
	waits, retries := waits(in.machine, i)
	r.waits, r.retries = append(r.waits, waits), append(r.retries, retries)
	if in.fresh {
		r.kinds, r.startedBy = append(r.kinds, in.machine.Kind()), append(r.startedBy, i.StartedBy.String())
		r.tenants, r.correlations = append(r.tenants, i.Tenant), append(r.correlations, i.CorrelationID)
		r.began, r.startedAt = append(r.began, in.began), append(r.startedAt, i.StartedAt)
	}
}

func (r *rows) args(u *unit) []any {
	return []any{
		u.name, u.clock(), r.keys, r.runs, r.versions, r.states, r.reasons, r.steps, r.texts, r.since, r.awaits, r.types, r.data, r.progress,
		r.entries, r.positions, r.over, r.waits, r.retries,
	}
}

// some: no bytes are not NULL.
func some(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (t *turn) writeHistory(b *pgx.Batch) {
	var keys, kinds, steps, texts, actors, reasons []string
	var runs []int32
	var entries, positions []int64
	var events []*string
	for _, in := range t.order {
		for n, e := range in.history {
			keys, runs, entries = append(keys, in.key), append(runs, int32(in.run)), append(entries, in.entries+int64(n)+1)
			kinds, steps, texts = append(kinds, e.Kind), append(steps, e.Step), append(texts, storable(e.Text))
			var event *string
			if e.Event != uuid.Nil {
				id := e.Event.String()
				event = &id
			}
			events, positions = append(events, event), append(positions, e.Position.Ordinal())
			actors, reasons = append(actors, storable(e.Actor)), append(reasons, storable(e.Reason))
		}
	}
	if len(keys) > 0 {
		b.Queue(t.u.sql.history, t.u.name, t.u.clock(), keys, runs, entries, kinds, steps, texts, events, positions, actors, reasons)
	}
}

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

// writeTimers removes before it sets: what is cancelled and set anew is there. What is removed are ranges of names, of one
// or of all of an instance.
func (t *turn) writeTimers(b *pgx.Batch) {
	type span struct{ first, behind string }
	var gone []span
	var set []timers.Setting
	queue := timerQueue(t.u.name)
	for _, in := range t.order {
		ref := in.facts.Ref
		if in.cancelAll && !in.fresh {
			gone = append(gone, span{timerPrefix(ref), timersAfter(ref)})
		}
		for name, timer := range in.timers {
			full := timerName(ref, name)
			if timer == nil {
				gone = append(gone, span{full, full + "\x01"})
				continue
			}
			set = append(set, timers.Setting{Queue: queue, Name: full, After: timer.After, From: timer.From, Spread: timer.Spread, Does: storable(timer.Does)})
		}
	}
	if len(gone) > 0 {
		slices.SortFunc(gone, func(x, y span) int { return cmp.Compare(x.first, y.first) })
		first, behind := make([]string, len(gone)), make([]string, len(gone))
		for n, s := range gone {
			first[n], behind[n] = s.first, s.behind
		}
		b.Queue(t.u.sql.lockTimers, queue, first, behind)
		b.Queue(t.u.sql.cancel, queue, first, behind)
	}
	if len(set) > 0 {
		timers.Set(b, t.u.schema, t.u.clock(), set)
	}
	t.counts.timersSet += int64(len(set))
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
	insertSQL = `
INSERT INTO {schema}.sagas (saga, key, run, version, kind, state, stuck, stuck_step, stuck_text, stuck_since, awaits, content_type, data, progress,
       started_by, tenant, correlation_id, entries, began, position, started_at, changed_at, ended_at, waits_since, retries_since)
SELECT $1, u.key, u.run, u.version, u.kind, u.state, u.stuck, u.step, u.text, coalesce(u.since, CASE WHEN u.stuck <> '' THEN n.now END), u.awaits,
       u.content_type, u.data, u.progress, u.started_by::uuid, u.tenant, u.correlation, u.entries, u.began, u.position, u.started_at, n.now,
       CASE WHEN u.ended THEN n.now END, u.waits, u.retries
  FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) n,
       unnest($3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[], $11::text[], $12::text[],
              $13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[], $17::boolean[], $18::timestamptz[], $19::timestamptz[],
              $20::text[], $21::text[], $22::text[], $23::text[], $24::bigint[], $25::timestamptz[])
       AS u(key, run, version, state, stuck, step, text, since, awaits, content_type, data, progress, entries, position, ended, waits, retries,
            kind, started_by, tenant, correlation, began, started_at)`

	// An instance that goes on after its end has been reopened for good: another run may be under way beside it. The rows are
	// locked, so that they stay where they are found.
	updateSQL = `
UPDATE {schema}.sagas s
   SET state = u.state, stuck = u.stuck, stuck_step = u.step, stuck_text = u.text,
       stuck_since = CASE WHEN u.stuck <> '' THEN coalesce(u.since, CASE WHEN s.stuck = u.stuck THEN s.stuck_since END, n.now) END,
       awaits = u.awaits, content_type = u.content_type, data = u.data, progress = u.progress, entries = u.entries, position = u.position,
       reopened = s.reopened OR s.ended_at IS NOT NULL AND NOT u.ended,
       ended_at = CASE WHEN u.ended THEN coalesce(s.ended_at, n.now) END, changed_at = n.now, revision = s.revision + 1,
       waits_since = u.waits, retries_since = u.retries
  FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) n,
       unnest($3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $9::text[], $10::timestamptz[], $11::text[], $12::text[],
              $13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[], $17::boolean[], $18::timestamptz[], $19::timestamptz[])
       AS u(key, run, version, state, stuck, step, text, since, awaits, content_type, data, progress, entries, position, ended, waits, retries)
 CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.sagas x WHERE x.saga = $1 AND x.key = u.key AND x.run = u.run OFFSET 0) r
 WHERE s.ctid = r.at`

	historySQL = `
INSERT INTO {schema}.saga_history (saga, key, run, entry, at, kind, step, text, event, position, actor, reason)
SELECT $1, u.key, u.run, u.entry, coalesce($2::timestamptz, clock_timestamp()), u.kind, u.step, u.text, u.event::uuid, u.position, u.actor, u.reason
  FROM unnest($3::text[], $4::int[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[])
       AS u(key, run, entry, kind, step, text, event, position, actor, reason)`

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

	// lockTimersSQL waits for claims that are under way; behind it the timers stay where they are.
	lockTimersSQL = `
SELECT FROM unnest($2::text[], $3::text[]) AS u(first, behind)
 CROSS JOIN LATERAL (SELECT FROM {schema}.timers x WHERE x.queue = $1 AND x.name >= u.first AND x.name < u.behind ORDER BY x.name FOR UPDATE OF x) t`

	// cancelSQL: an array of names would not bound the scan in every plan.
	cancelSQL = `
DELETE FROM {schema}.timers WHERE ctid = ANY (ARRAY(
  SELECT t.at FROM unnest($2::text[], $3::text[]) AS u(first, behind)
   CROSS JOIN LATERAL (SELECT x.ctid AS at FROM {schema}.timers x WHERE x.queue = $1 AND x.name >= u.first AND x.name < u.behind ORDER BY x.name OFFSET 0) t))`
)
