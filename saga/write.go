package saga

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
)
