package saga

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// goOn notes that timers that had been given up come again.
func (k *keeper) goOn(t *turn, in *instance, i *planItem) error {
	in.state = nil // the machine may have left it in any state
	if err := safely("saga: "+k.u.name, in.restore); err != nil {
		return err
	}
	if in.state.Stuck.Reason == flow.DeadLetter {
		in.state.Stuck = flow.Stuck{}
	}
	t.change(in, 0)
	in.history = append(in.history, flow.Entry{Kind: "action", Text: i.action + ": its timers come again", Actor: i.actor, Reason: i.reason})
	return nil
}

// pause lets an instance stand still. Its timers keep their times, and none of them is claimed.
func (k *keeper) pause(b *pgx.Batch, t *turn, in *instance, i *planItem) error {
	switch {
	case in.over:
		return errors.New("it has ended")
	case in.paused:
		return errors.New("it is paused already")
	}
	u := k.u
	b.Queue(u.sql.pause, u.name, in.key, in.run, u.clock(), i.actor, i.reason)
	b.Queue(u.sql.freeze, timerQueue(u.name), timerPrefix(in.facts.Ref), timersAfter(in.facts.Ref), frozen, u.clock())
	k.tell(b, t, in, i, "paused")
	return nil
}

// resume lets it go on. What was kept for it is taken next.
func (k *keeper) resume(b *pgx.Batch, t *turn, in *instance, i *planItem, shift bool) error {
	if !in.paused {
		return errors.New("it is not paused")
	}
	u := k.u
	text := "resumed; timers that were due meanwhile fire"
	if shift {
		text = "resumed; timers are shifted by as long as it was paused"
	}
	// Before the row: it says since when it was paused.
	b.Queue(u.sql.thaw, timerQueue(u.name), timerPrefix(in.facts.Ref), timersAfter(in.facts.Ref), u.name, in.key, in.run, shift, u.clock(), frozen)
	b.Queue(u.sql.resume, u.name, in.key, in.run, u.clock())
	k.tell(b, t, in, i, text)
	t.counts.timersSet++ // perhaps
	return nil
}

const (
	pauseSQL = `
UPDATE {schema}.sagas SET paused_at = coalesce($4::timestamptz, clock_timestamp()), paused_by = $5, paused_why = $6, entries = entries + 1,
       changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = revision + 1
 WHERE saga = $1 AND key = $2 AND run = $3`

	resumeSQL = `
UPDATE {schema}.sagas SET paused_at = NULL, paused_by = '', paused_why = '', entries = entries + 1,
       changed_at = coalesce($4::timestamptz, clock_timestamp()), revision = revision + 1
 WHERE saga = $1 AND key = $2 AND run = $3`

	// A claim that is under way cannot finish. What was given up stays so, also behind the pause.
	freezeSQL = `
UPDATE {schema}.timers SET visible_at = due_at + $4::interval, token = token + 1, owner = ''
 WHERE queue = $1 AND name >= $2 AND name < $3
   AND NOT (owner = '' AND visible_at > coalesce($5::timestamptz, clock_timestamp()) + interval '100 years')`

	thawSQL = `
UPDATE {schema}.timers t
   SET due_at = t.due_at + p.shift, visible_at = t.due_at + p.shift, token = t.token + 1, owner = ''
  FROM (SELECT CASE WHEN $7::boolean THEN coalesce($8::timestamptz, clock_timestamp()) - s.paused_at ELSE interval '0' END AS shift
          FROM {schema}.sagas s WHERE s.saga = $4 AND s.key = $5 AND s.run = $6) p
 WHERE t.queue = $1 AND t.name >= $2 AND t.name < $3 AND t.visible_at = t.due_at + $9::interval`

	reviveSQL = `
WITH r AS (
  UPDATE {schema}.timers SET visible_at = due_at, token = token + 1, owner = '', attempts = 0
   WHERE queue = $1 AND name >= $2 AND name < $3 AND owner = ''
     AND visible_at > coalesce($4::timestamptz, clock_timestamp()) + interval '100 years' RETURNING 1)
SELECT count(*)::int FROM r`
)
