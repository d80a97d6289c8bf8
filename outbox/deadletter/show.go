package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// Show returns all that is known of one letter, its message unchanged. An unknown letter is [ErrNotFound].
func (l *Letters) Show(ctx context.Context, id uuid.UUID) (Detail, error) {
	var d Detail
	err := l.read(ctx, "show", func(tx pgx.Tx) error {
		if err := l.detail(ctx, tx, id, &d); err != nil {
			return err
		}
		if err := l.waiting(ctx, tx, &d); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, l.sql(actionsSQL), id)
		if err != nil {
			return err
		}
		d.Actions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Action, error) {
			var a Action
			var plan *uuid.UUID
			err := row.Scan(&a.At, &a.Actor, &a.What, &plan, &a.Reason)
			if a.At = a.At.UTC(); plan != nil {
				a.Plan = *plan
			}
			return a, err
		})
		return err
	})
	return d, err
}

func (l *Letters) detail(ctx context.Context, tx pgx.Tx, id uuid.UUID, d *Detail) error {
	p, err := parking.ScanLetter(behind{tx.QueryRow(ctx, l.sql(showSQL), id), []any{&d.Consumer, &d.Version}})
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound("letter", id)
	} else if err != nil {
		return err
	}
	m := p.Message
	d.ID, d.Topic, d.Sequence, d.Partition, d.Position = p.ID, p.Topic, p.Sequence, p.Partition, m.Position
	d.State, d.Kind, d.Attempts, d.Round, d.Fingerprint = State(p.State), p.Kind.String(), p.Attempts, p.Round, p.Fingerprint
	d.FirstFailedAt, d.LastFailedAt, d.Handler, d.Program = p.FirstFailedAt.UTC(), p.LastFailedAt.UTC(), p.Handler, p.Program
	d.ClosedBy, d.Reason = p.ClosedBy, p.Reason
	if !p.ClosedAt.IsZero() {
		d.ClosedAt = p.ClosedAt.UTC()
	}
	d.MessageID, d.Type, d.StreamVersion, d.RecordedAt = m.ID, m.Type, m.Version, m.RecordedAt
	if !m.Stream.IsZero() {
		d.Stream = m.Stream.String()
	}
	if d.Errors, d.FirstErrors = p.Errors, p.FirstErrors; len(p.Errors) > 0 {
		d.Error = p.Errors[0]
	}
	d.Message = m
	return nil
}

// behind scans a row whose first columns go elsewhere.
type behind struct {
	row   pgx.Row
	first []any
}

func (b behind) Scan(rest ...any) error { return b.row.Scan(append(b.first, rest...)...) }

func (l *Letters) waiting(ctx context.Context, tx pgx.Tx, d *Detail) error {
	var w Waiting
	var due *time.Time
	var first, last int64
	err := tx.QueryRow(ctx, l.sql(waitingSQL), d.Consumer, d.Version, d.Topic, d.Sequence).
		Scan(&w.State, &due, &w.Since, &w.Queued, &first, &last)
	switch {
	case err == nil:
		w.Since, w.First, w.Last = w.Since.UTC(), eventstore.PositionAt(first), eventstore.PositionAt(last)
		if due != nil {
			w.DueAt = due.UTC()
		}
		d.Waiting = &w
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	err = tx.QueryRow(ctx, l.sql(plannedSQL), d.Consumer, d.Version, d.Topic, d.Sequence).Scan(&d.Plan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

const showSQL = `SELECT l.consumer, l.version, ` + parking.LetterColumns + ` FROM {schema}.letters l WHERE l.letter = $1`

const waitingSQL = `
SELECT state, due_at, since, queued, first_position, last_position FROM {schema}.parked
 WHERE consumer = $1 AND version = $2 AND topic = $3 AND sequence = $4`

// plannedSQL finds the running plan that has a sequence. There is at most one.
const plannedSQL = `
SELECT r.redrive FROM {schema}.redrives r
  JOIN {schema}.redrive_items i ON i.redrive = r.redrive AND i.state IN ('waiting', 'running')
 WHERE r.consumer = $1 AND r.version = $2 AND r.state = 'running' AND i.topic = $3 AND i.sequence = $4 LIMIT 1`

const actionsSQL = `
SELECT at, actor, what, redrive, reason FROM {schema}.letter_actions WHERE letter = $1 ORDER BY action LIMIT 1000`
