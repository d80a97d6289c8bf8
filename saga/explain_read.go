package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

const (
	explainEntries  = 500
	explainCommands = 100
	explainTimers   = 100
)

// reading is what is read of an instance, in one transaction.
type reading struct {
	explaining
	tx  pgx.Tx
	now time.Time

	row      explainRow
	progress explainProgress
	history  []Entry
	commands []CommandInfo
	timers   []TimerInfo
	letters  []explainOpen // that concern it
	actions  []ActionInfo

	// What all instances of the saga have in common.
	consumers map[string]explainConsumer
	open      []explainOpen
}

type explainRow struct {
	saga, key                            string
	run, runs, version                   int
	kind, state                          string
	stuck, stuckStep, stuckText          string
	stuckSince                           time.Time
	pausedAt                             time.Time
	pausedBy, pausedWhy, awaits          string
	progress                             []byte
	startedBy                            uuid.UUID
	tenant, correlation                  string
	entries                              int64
	held                                 int
	keptFirst                            string // the kind of the first input that is kept
	startedAt, changedAt, endedAt, clock time.Time
	waitsSince, retriesSince             time.Time // see waits
}

// explainProgress is the part of the stored progress that is read here.
type explainProgress struct {
	Steps []flow.Step       `json:"steps"`
	Extra map[string]string `json:"extra,omitempty"`
	Plan  []string          `json:"plan"` // the names of all steps in their order, if the machine stores them
}

func (r *reading) all(ctx context.Context, saga, key string) error {
	r.row.saga, r.row.key = saga, key
	err := r.scanRow(r.tx.QueryRow(ctx, r.sql(explainRowSQL), saga, key, r.run))
	if errors.Is(err, pgx.ErrNoRows) {
		return r.near(ctx, saga, key)
	}
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	r.queueFacts(b)
	if err := r.tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	for _, read := range []func(context.Context) error{r.readHistory, r.readActions, r.readConsumers, r.readOpen, r.find} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	r.concern()
	return nil
}

// queueFacts queues what is read of each instance beside its row before it is judged.
func (r *reading) queueFacts(b *pgx.Batch) {
	b.Queue(r.sql(explainCommandsSQL), r.row.saga, r.row.key, r.row.run, explainCommands).Query(r.scanCommands)
	ref := flow.Ref{Saga: r.row.saga, Key: r.row.key, Run: r.row.run}
	b.Queue(r.sql(explainTimersSQL), timerQueue(ref.Saga), timerPrefix(ref), timersAfter(ref), explainTimers).Query(r.scanTimers)
}

func (r *reading) scanRow(row pgx.Row) error {
	i := &r.row
	var stuck, paused, ended, waits, retries *time.Time
	err := row.Scan(&i.run, &i.runs, &i.version, &i.kind, &i.state,
		&i.stuck, &i.stuckStep, &i.stuckText, &stuck, &paused, &i.pausedBy, &i.pausedWhy, &i.awaits, &i.progress,
		&i.startedBy, &i.tenant, &i.correlation, &i.entries, &i.held, &i.startedAt, &i.changedAt, &ended, &i.clock, &waits, &retries, &i.keptFirst)
	if err != nil {
		return err
	}
	i.stuckSince, i.pausedAt, i.endedAt = explainTime(stuck), explainTime(paused), explainTime(ended)
	i.waitsSince, i.retriesSince = explainTime(waits), explainTime(retries)
	i.startedAt, i.changedAt = i.startedAt.UTC(), i.changedAt.UTC()
	if r.now = r.at; r.now.IsZero() {
		r.now = i.clock
	}
	r.now = r.now.UTC()
	if err := json.Unmarshal(i.progress, &r.progress); err != nil && json.Unmarshal(i.progress, &r.progress.Steps) != nil {
		return fmt.Errorf("the progress of %q cannot be read: %w", i.key, err)
	}
	return nil
}

const explainRowSQL = `
SELECT s.run, (SELECT m.run FROM {schema}.sagas m WHERE m.saga = $1 AND m.key = $2 ORDER BY m.run DESC LIMIT 1), s.version, s.kind, s.state,
       s.stuck, s.stuck_step, s.stuck_text, s.stuck_since, s.paused_at, s.paused_by, s.paused_why, s.awaits, s.progress,
       s.started_by, s.tenant, s.correlation_id, s.entries, s.held, s.started_at, s.changed_at, s.ended_at, clock_timestamp(),
       s.waits_since, s.retries_since,
       coalesce((SELECT i.kind FROM {schema}.saga_inputs i WHERE s.held > 0 AND i.saga = s.saga AND i.key = s.key AND i.run = s.run ORDER BY i.input LIMIT 1), '')
  FROM {schema}.sagas s WHERE s.saga = $1 AND s.key = $2 AND ($3 = 0 OR s.run = $3) ORDER BY (s.ended_at IS NULL) DESC, s.run DESC LIMIT 1`

func explainTime(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// near makes the error of an instance that is not there.
func (r *reading) near(ctx context.Context, saga, key string) error {
	missing := &NoInstanceError{Saga: saga, Key: key, Run: r.run}
	// The event that should have begun it may be a letter.
	r.row.saga, r.row.key = saga, key
	if err := r.readConsumers(ctx); err != nil {
		return err
	}
	if err := r.readOpen(ctx); err != nil {
		return err
	}
	r.concern()
	for _, l := range r.letters {
		missing.Letters = append(missing.Letters, l.ID)
	}
	rows, err := r.tx.Query(ctx, r.sql(explainNearSQL), saga, key)
	if err != nil {
		return err
	}
	if missing.Keys, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return err
	}
	if len(missing.Keys) == 0 {
		if missing.Sagas, err = r.sagas(ctx, r.tx, 10); err != nil {
			return err
		}
	}
	return missing
}

const explainNearSQL = `
SELECT DISTINCT k.key FROM (
  (SELECT s.key FROM {schema}.sagas s WHERE s.saga = $1 AND s.key < $2 ORDER BY s.key DESC, s.run DESC LIMIT 2)
  UNION ALL
  (SELECT s.key FROM {schema}.sagas s WHERE s.saga = $1 AND s.key >= $2 ORDER BY s.key, s.run LIMIT 2)) k ORDER BY 1`

// sagas are the names of sagas that have instances, found step by step.
func (o explaining) sagas(ctx context.Context, tx pgx.Tx, most int) ([]string, error) {
	rows, err := tx.Query(ctx, o.sql(explainSagasSQL), most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const explainSagasSQL = `
WITH RECURSIVE n AS (
  (SELECT s.saga FROM {schema}.sagas s ORDER BY s.saga LIMIT 1)
  UNION ALL
  SELECT x.saga FROM n, LATERAL (SELECT s.saga FROM {schema}.sagas s WHERE s.saga > n.saga ORDER BY s.saga LIMIT 1) x)
SELECT saga FROM n LIMIT $1`

func (r *reading) readHistory(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, r.sql(explainHistorySQL), r.row.saga, r.row.key, r.row.run, explainEntries)
	if err != nil {
		return err
	}
	r.history, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Entry, err error) {
		var position int64
		var event *uuid.UUID
		err = row.Scan(&h.Entry, &h.At, &h.Kind, &h.Step, &h.Text, &event, &position, &h.Actor, &h.Reason)
		if h.At, h.Position = h.At.UTC(), explainPosition(position); event != nil {
			h.Event = *event
		}
		return h, err
	})
	slices.Reverse(r.history)
	return err
}

const explainHistorySQL = `
SELECT h.entry, h.at, h.kind, h.step, h.text, h.event, h.position, h.actor, h.reason FROM {schema}.saga_history h
 WHERE h.saga = $1 AND h.key = $2 AND h.run = $3 ORDER BY h.entry DESC LIMIT $4`

func (r *reading) scanTimers(rows pgx.Rows) (err error) {
	prefix := timerPrefix(flow.Ref{Saga: r.row.saga, Key: r.row.key, Run: r.row.run})
	r.timers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t TimerInfo, err error) {
		err = row.Scan(&t.Name, &t.DueAt, &t.visible, &t.Does, &t.SetAt, &t.Attempts, &t.Owner, &t.Error, &t.id)
		t.Name = strings.TrimPrefix(t.Name, prefix)
		t.DueAt, t.SetAt, t.visible = t.DueAt.UTC(), t.SetAt.UTC(), t.visible.UTC()
		if t.FreeAt = t.visible; t.FreeAt.Sub(t.DueAt) > never/2 {
			t.FreeAt = time.Time{}
		}
		return t, err
	})
	return err
}

// An instance has few timers: they are sorted here.
const explainTimersSQL = `
SELECT k.* FROM (
  SELECT t.name, t.due_at, t.visible_at, t.does, t.set_at, t.attempts, t.owner, t.error, t.id FROM {schema}.timers t
   WHERE t.queue = $1 AND t.name >= $2 AND t.name < $3 ORDER BY t.name LIMIT 1000) k
 ORDER BY k.due_at, k.name LIMIT $4`

func (r *reading) readActions(ctx context.Context) error {
	rows, err := r.tx.Query(ctx, r.sql(explainActionsSQL), r.row.saga, r.row.key, r.row.run)
	if err != nil {
		return err
	}
	r.actions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a ActionInfo, err error) {
		var done *time.Time
		err = row.Scan(&a.Plan, &a.Action, &a.Step, &a.Actor, &a.Reason, &a.State, &a.Result, &a.At, &done)
		a.At, a.DoneAt = a.At.UTC(), explainTime(done)
		return a, err
	})
	return err
}

const explainActionsSQL = `
SELECT p.plan, p.action, p.step, p.actor, p.reason, CASE WHEN i.state = 'open' AND p.state = 'cancelled' THEN 'cancelled' ELSE i.state END,
       i.result, p.created_at, i.done_at
  FROM {schema}.saga_plan_items i JOIN {schema}.saga_plans p ON p.plan = i.plan
 WHERE i.key = $2 AND i.run = $3 AND p.saga = $1 ORDER BY p.created_at, p.plan LIMIT 100`
