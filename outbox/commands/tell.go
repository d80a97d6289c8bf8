package commands

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/outbox"
)

// tellEvery is how often a batch that takes long tells what it knows already.
const tellEvery = 50 * time.Millisecond

// tellWhileRunning tells of commands that are under way, and of those that have ended while others of their batch have
// not. Only ends that are stored under their keys are told here: a dispatcher that was replaced may do so too, since
// nobody can come to another end. What a dispatcher has decided by itself is committed with the checkpoint.
func (b *batch) tellWhileRunning(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := b.tell(ctx); err != nil && ctx.Err() == nil {
			b.log.Debug("what commands are doing could not be told, and will be", "error", err.Error())
		}
	}
}

func (b *batch) tell(ctx context.Context) error {
	ends := b.ends(func(e *entry) bool { return !e.told && e.verdict.stored })
	running := b.running()
	if len(ends)+len(running) == 0 {
		return nil
	}
	byID := make(map[uuid.UUID]*entry, len(ends))
	ids := make([]uuid.UUID, 0, len(ends)+len(running))
	for _, e := range ends {
		byID[e.command.ID] = e
		ids = append(ids, e.command.ID)
	}
	for _, r := range running {
		ids = append(ids, r.command.ID)
	}
	replied := false
	err := pgx.BeginTxFunc(ctx, b.db, brief(b.cfg.Lease), func(tx pgx.Tx) error {
		if len(running) > 0 {
			if _, err := tx.Exec(ctx, b.sql.run, runArgs(running)...); err != nil {
				return err
			}
		}
		if len(ends) == 0 {
			return nil
		}
		rows, err := tx.Query(ctx, b.sql.finish, finishArgs(ends)...)
		if err != nil {
			return err
		}
		changed, err := collectIDs(rows)
		if err != nil {
			return err
		}
		asked := asking(byID, changed)
		replied = len(asked) > 0
		return b.sendReplies(ctx, tx, asked)
	})
	b.mu.Lock()
	for _, r := range running {
		if err != nil && r.said {
			r.entry.said.again()
		}
		r.toldRunning = r.toldRunning || err == nil
	}
	for _, e := range ends {
		e.told = err == nil
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	b.cfg.probe(probeTold)
	changes.tell(ids)
	if replied {
		b.cfg.Wake()
	}
	return nil
}

// ends are the commands that have ended and that want is true for, in the order in which everybody locks them. Of two
// with one id, which are the same command sent twice, the first counts.
func (b *batch) ends(want func(*entry) bool) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ends []*entry
	for _, e := range b.entries {
		if e.verdict != nil && want(e) {
			ends = append(ends, e)
		}
	}
	slices.SortStableFunc(ends, func(x, y *entry) int { return bytes.Compare(x.command.ID[:], y.command.ID[:]) })
	return slices.CompactFunc(ends, func(x, y *entry) bool { return x.command.ID == y.command.ID })
}

// runner is a command under way about which there is something to tell.
type runner struct {
	*entry
	fraction float64
	note     string
	said     bool // the handler has said something new
	age      time.Duration
}

func (b *batch) running() []runner {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []runner
	for _, e := range b.entries {
		if e.verdict != nil || e.began.IsZero() {
			continue
		}
		r := runner{entry: e, age: time.Since(e.began)}
		if r.fraction, r.note, r.said = e.said.take(); r.said || !e.toldRunning {
			all = append(all, r)
		}
	}
	return all
}

// asking are those among entries whose end took effect and whose sender wants to be told.
func asking(entries map[uuid.UUID]*entry, changed []uuid.UUID) []*entry {
	var asked []*entry
	for _, id := range changed {
		if e := entries[id]; e != nil && e.command.ReplyTo != "" {
			asked = append(asked, e)
		}
	}
	return asked
}

// sendReplies writes replies into the outbox. One that cannot be sent at all is named in the log; it must not hold what
// follows.
func (b *batch) sendReplies(ctx context.Context, tx pgx.Tx, ends []*entry) error {
	var messages []outbox.Message
	for _, e := range ends {
		m, err := replyTo(e)
		if err != nil {
			b.log.Error("a reply cannot be sent", "id", e.command.ID, "error", err)
			continue
		}
		messages = append(messages, m)
	}
	err := b.outbox.Enqueue(ctx, tx, messages...)
	if !errors.Is(err, eventstore.ErrInvalid) {
		return err
	}
	for _, m := range messages {
		if err := b.outbox.Enqueue(ctx, tx, m); errors.Is(err, eventstore.ErrInvalid) {
			b.log.Error("a reply cannot be sent", "id", m.Metadata.CausationID, "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func collectIDs(rows pgx.Rows) ([]uuid.UUID, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return id, err
		}
		return uuid.Parse(text)
	})
}

func finishArgs(ends []*entry) []any {
	n := len(ends)
	var ids, scopes, types, states, notes, codes, reasons, contentTypes, streams, tokens []string
	fractions, results, versions := make([]float32, n), make([][]byte, n), make([]int64, n)
	deadlines, accepted, ages := make([]*time.Time, n), make([]time.Time, n), make([]*float64, n)
	for i, e := range ends {
		c, v := e.command, e.verdict
		fraction, note := e.said.last()
		if v.state == bus.OperationDone {
			fraction = 1
		}
		stream := ""
		if !v.stream.IsZero() {
			stream = v.stream.String()
		}
		ids, scopes, types, states = append(ids, c.ID.String()), append(scopes, scopeOf(c)), append(types, c.Type), append(states, string(v.state))
		notes, codes, reasons = append(notes, note), append(codes, v.code), append(reasons, v.reason)
		contentTypes, streams, tokens = append(contentTypes, v.contentType), append(streams, stream), append(tokens, tokenText(v.token))
		fractions[i], results[i], versions[i] = float32(fraction), append([]byte{}, v.result...), int64(v.version)
		if !c.Deadline.IsZero() {
			deadlines[i] = &c.Deadline
		}
		accepted[i] = e.event.RecordedAt
		if v.state != bus.OperationExpired && !e.began.IsZero() {
			age := time.Since(e.began).Seconds()
			ages[i] = &age
		}
	}
	return []any{ids, scopes, types, states, fractions, notes, codes, reasons, contentTypes, results, streams, versions, tokens, deadlines, accepted, ages}
}

func runArgs(running []runner) []any {
	var ids, notes []string
	var fractions []float32
	var ages []float64
	for _, r := range running {
		ids, notes = append(ids, r.command.ID.String()), append(notes, r.note)
		fractions, ages = append(fractions, float32(r.fraction)), append(ages, r.age.Seconds())
	}
	return []any{ids, fractions, notes, ages}
}

const (
	// The first end counts. A command that was sent without a queue gets its row here, so that its end is told once.
	finishSQL = `
INSERT INTO {schema}.operations AS o (id, scope, type, state, progress, note, code, reason, content_type, result, stream, version, token,
       deadline, accepted_at, started_at, changed_at, finished_at)
SELECT u.id::uuid, u.scope, u.type, u.state, u.progress, u.note, u.code, u.reason, u.content_type, u.result, u.stream, u.version, u.token,
       u.deadline, u.accepted, t.now - make_interval(secs => u.age), t.now, t.now
  FROM (SELECT clock_timestamp() AS now) t,
       unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::real[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bytea[],
              $11::text[], $12::bigint[], $13::text[], $14::timestamptz[], $15::timestamptz[], $16::double precision[])
       AS u(id, scope, type, state, progress, note, code, reason, content_type, result, stream, version, token, deadline, accepted, age)
ON CONFLICT (id) DO UPDATE
   SET state = excluded.state, progress = excluded.progress, note = excluded.note, code = excluded.code, reason = excluded.reason,
       content_type = excluded.content_type, result = excluded.result, stream = excluded.stream, version = excluded.version,
       token = excluded.token, started_at = coalesce(o.started_at, excluded.started_at), changed_at = excluded.changed_at,
       finished_at = excluded.finished_at, revision = o.revision + 1
 WHERE o.finished_at IS NULL
RETURNING o.id::text`

	runSQL = `
UPDATE {schema}.operations AS o
   SET state = 'running', progress = u.progress, note = u.note, changed_at = clock_timestamp(), revision = o.revision + 1,
       started_at = coalesce(o.started_at, clock_timestamp() - make_interval(secs => u.age))
  FROM unnest($1::text[], $2::real[], $3::text[], $4::double precision[]) AS u(id, progress, note, age)
 WHERE o.id = u.id::uuid AND o.finished_at IS NULL`
)
