package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/parking"
)

// minRate is one sequence in eleven days.
const minRate = 1e-6

// Options of a change. Actor is needed.
type Options struct {
	// Actor is who does it, Reason why. Both are kept with the letter.
	Actor, Reason string
	// Expect is how many letters the caller believes to be selected; when there are more by now, nothing is done. 0 for any
	// number.
	Expect int

	// The rest is for a redrive.

	// Rate is how many sequences are tried in a second. Default: as fast as it goes.
	Rate float64
	// Canary is how many must succeed before the others begin. Default 0: all begin.
	Canary int
	// MaxFailures is how many may fail before the plan stops. Negative: any number. Default 1: it stops at the first.
	MaxFailures int
}

func (o Options) validate(reason bool) error {
	switch {
	case o.Actor == "":
		return invalid("Options.Actor", "", "is empty", "say who does it")
	case !storable(o.Actor):
		return invalid("Options.Actor", fmt.Sprintf("%.200q", o.Actor), "has a zero byte, or is not UTF-8", "say who does it, in text")
	case !storable(o.Reason):
		return invalid("Options.Reason", fmt.Sprintf("%.200q", o.Reason), "has a zero byte, or is not UTF-8", "say why, in text")
	case reason && o.Reason == "":
		return invalid("Options.Reason", "", "is empty", "say why: it is kept with the letter")
	case !(o.Rate >= minRate) && o.Rate != 0 || math.IsInf(o.Rate, 0):
		return invalid("Options.Rate", fmt.Sprint(o.Rate), "is no rate", "name sequences a second, at least 0.000001, or 0 for as fast as it goes")
	case o.Canary < 0:
		return invalid("Options.Canary", fmt.Sprint(o.Canary), "is below 0", "name how many must succeed first, or 0")
	case o.Expect < 0:
		return invalid("Options.Expect", fmt.Sprint(o.Expect), "is below 0", "name a number of letters, or 0 for any")
	}
	return nil
}

// most is how MaxFailures is stored.
func (o Options) most() int {
	switch {
	case o.MaxFailures < 0:
		return 0
	case o.MaxFailures == 0:
		return 1
	}
	return min(o.MaxFailures, math.MaxInt32)
}

// Redrive decides that the selected letters are tried again. It applies nothing and moves no checkpoint: it writes a plan,
// frozen now, that the owners of the segments carry out in the order of the positions, one sequence at a time, each with
// what is queued behind its letter. What the plan has done is committed with the effects, so it goes on where it was after
// any crash.
//
// A letter that is not the first open one of its sequence is never part of a plan, nor is a sequence that is in a running
// plan already: of a wider selection those are left out, and a single one is refused with a [*RefusedError] that names what
// is in its way. So is a selection of which nothing is left. [ErrNotFound] says that nothing is selected.
func (l *Letters) Redrive(ctx context.Context, s Selection, o Options) (Plan, error) {
	err := errors.Join(s.validate(), o.validate(false))
	if err != nil {
		return Plan{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Plan{}, fmt.Errorf("deadletter: redrive: %w", err)
	}
	err = l.write(ctx, "redrive", func(tx pgx.Tx) error {
		f, letter, err := l.resolve(ctx, tx, "redrive", s)
		if err != nil {
			return err
		}
		// One at a time, so that two plans never have one sequence.
		name := fmt.Sprintf("%s\x1f%s\x1f%d", l.lockName("redrive"), f.Consumer, f.Version)
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, name); err != nil {
			return err
		}
		return l.freeze(ctx, tx, id, s, f, letter, o)
	})
	if err != nil {
		return Plan{}, err
	}
	return l.Plan(ctx, id)
}

func (l *Letters) freeze(ctx context.Context, tx pgx.Tx, id uuid.UUID, s Selection, f Filter, letter uuid.UUID, o Options) error {
	_, err := tx.Exec(ctx, l.sql(planRowSQL), id, f.Consumer, f.Version, o.Actor, o.Reason, s.String(), o.Rate, min(o.Canary, math.MaxInt32), o.most())
	if err != nil {
		return err
	}
	sql, args := f.matchSQL(letter, itemsSQL, id, o.Actor, o.Reason)
	var matched, later, planned, items int
	if err := tx.QueryRow(ctx, l.sql(sql), args...).Scan(&matched, &later, &planned, &items); err != nil {
		return err
	}
	switch {
	case o.Expect > 0 && matched > o.Expect:
		return refuse("redrive", uuid.Nil, "%d letters are selected by now, not %d: look again", matched, o.Expect)
	case matched == 0 && letter != uuid.Nil:
		return refuse("redrive", letter, "it is no longer open")
	case matched == 0:
		return fmt.Errorf("%w: no open letter of %s", ErrNotFound, s)
	case items == 0 && letter != uuid.Nil:
		return l.inTheWay(ctx, tx, letter)
	case items == 0:
		return refuse("redrive", uuid.Nil, "of %d letters selected %d are behind others of their sequences and %d in plans that are running", matched, later, planned)
	}
	_, err = tx.Exec(ctx, l.sql(`UPDATE {schema}.redrives SET items = $2 WHERE redrive = $1`), id, items)
	return err
}

const planRowSQL = `
INSERT INTO {schema}.redrives (redrive, consumer, version, actor, reason, selection, rate, canary, most, items)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)`

const itemsSQL = `,
items AS (
  INSERT INTO {schema}.redrive_items (redrive, item, letter, topic, sequence, partition)
  SELECT %[3]s::uuid, row_number() OVER (ORDER BY m.position, m.topic), m.letter, m.topic, m.sequence, m.partition FROM m WHERE m.first AND NOT m.planned
  RETURNING letter),
noted AS (
  INSERT INTO {schema}.letter_actions (actor, what, consumer, version, letter, redrive, reason)
  SELECT %[4]s, 'redrive', %[1]s, %[2]s::int, i.letter, %[3]s::uuid, %[5]s FROM items i)
SELECT count(*), count(*) FILTER (WHERE NOT first), count(*) FILTER (WHERE first AND planned), (SELECT count(*) FROM items) FROM m`

// inTheWay says why a letter was not taken into a plan.
func (l *Letters) inTheWay(ctx context.Context, tx pgx.Tx, letter uuid.UUID) error {
	var d Detail
	if err := l.detail(ctx, tx, letter, &d); err != nil {
		return err
	}
	if err := l.waiting(ctx, tx, &d); err != nil {
		return err
	}
	if d.Plan != uuid.Nil {
		return refuse("redrive", letter, "its sequence is in plan %s, which is running: wait for it, or cancel it", d.Plan)
	}
	first, err := parking.OpenLetter(ctx, tx, l.owner(d.Letter), parking.Key{Topic: d.Topic, Sequence: d.Sequence})
	switch {
	case errors.Is(err, parking.ErrNotOpen), err == nil && first.ID == letter: // the statement before saw something else
		return refuse("redrive", letter, "it has changed meanwhile: look again")
	case err != nil:
		return err
	}
	return refuse("redrive", letter, "letter %s is before it in its sequence: redrive or discard that one first", first.ID)
}

func (l *Letters) owner(d Letter) parking.Owner {
	return parking.Owner{Schema: l.cfg.Schema, Consumer: d.Consumer, Version: d.Version}
}

// Cancel ends a running plan: what has not begun is not tried. What has been done stays done. A plan that has ended is
// refused.
func (l *Letters) Cancel(ctx context.Context, plan uuid.UUID, o Options) error {
	if err := o.validate(false); err != nil {
		return err
	}
	return l.write(ctx, "cancel", func(tx pgx.Tx) error {
		var consumer string
		var version int
		err := tx.QueryRow(ctx, l.sql(cancelSQL), plan).Scan(&consumer, &version)
		if errors.Is(err, pgx.ErrNoRows) {
			p, err := l.plan(ctx, tx, plan)
			if err != nil {
				return err
			}
			return refuse("cancel", plan, "the plan is %s already", p.State)
		} else if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, l.sql(actSQL), o.Actor, "cancel", consumer, version, nil, plan, o.Reason)
		return err
	})
}

const cancelSQL = `
UPDATE {schema}.redrives SET state = 'cancelled', ended_at = clock_timestamp()
 WHERE redrive = $1 AND state = 'running' RETURNING consumer, version`

const actSQL = `
INSERT INTO {schema}.letter_actions (actor, what, consumer, version, letter, redrive, reason) VALUES ($1, $2, $3, $4, $5, $6, $7)`
