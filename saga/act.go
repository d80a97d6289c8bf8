package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/retry"
)

// planItem is an instance for which an operator has decided something.
type planItem struct {
	plan                        string
	action, step, actor, reason string
	arguments                   []byte
	item                        *int // nil: the plan has no more
	key                         *string
	run                         *int
	rate                        float64
	kept                        bool // what was kept for the instance can be taken at once
}

// carryOut carries out items of plans that are running, each in a transaction of its own that locks its plan: in order, once,
// at the plan's rate, whichever process does it. It reports whether there may be more at once.
func (k *keeper) carryOut(ctx context.Context) (more bool, err error) {
	for range actAtOnce {
		did, err := k.act(ctx)
		if err != nil || !did {
			return false, err
		}
	}
	return true, nil
}

// act carries out one item.
func (k *keeper) act(ctx context.Context) (did bool, err error) {
	u := k.u
	var i planItem
	var result string
	t := u.turn()
	load := func(b *pgx.Batch) {
		b.Queue(planSQL)
		b.Queue(customSQL)
		b.Queue(u.sql.plan, u.name, u.clock()).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&i.plan, &i.action, &i.step, &i.actor, &i.reason, &i.arguments, &i.rate)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}
	err = k.transact(ctx, load, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
		if i.plan == "" {
			return errNothing
		}
		if err := k.item(ctx, tx, t, &i); err != nil {
			return err
		}
		if i.item == nil {
			b.Queue(u.sql.acted, i.plan, nil, "", "", u.clock())
			return nil
		}
		state := "done"
		var refused error
		refused, err := k.do(ctx, tx, b, t, &i)
		if err != nil {
			return err
		}
		if refused != nil {
			state, result = "refused", retry.Text(refused.Error())
		}
		u.cfg.Probe(ProbeActed)
		// Behind the plan's own row, and before the commands, which are written last.
		b.Queue(u.sql.acted, i.plan, *i.item, state, result, u.clock())
		return nil
	})
	if errors.Is(err, errNothing) {
		return false, nil
	}
	if err != nil {
		if i.item != nil && ctx.Err() == nil && unwritable(err) {
			return true, k.refuse(ctx, &i, err)
		}
		return false, err
	}
	if i.item != nil {
		u.sum.acted.Add(1)
		if result != "" {
			u.sum.refused.Add(1)
		}
	}
	u.committed(t)
	if i.action == actionResume || i.kept {
		u.glance()
	}
	return true, nil
}

// refuse marks an item as refused whose effects cannot be written. They were rolled back, so that nothing else of it is there.
func (k *keeper) refuse(ctx context.Context, i *planItem, cause error) error {
	u := k.u
	running := false
	load := func(b *pgx.Batch) {
		b.Queue(planSQL)
		b.Queue(inSchema(lockPlanSQL, u.schema), i.plan).QueryRow(func(row pgx.Row) error { return row.Scan(&running) })
	}
	err := k.transact(ctx, load, func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
		var next *int
		if err := tx.QueryRow(ctx, u.sql.item, i.plan).Scan(&next, new(*string), new(*int)); err != nil {
			return fmt.Errorf("saga: read plan %s: %w", i.plan, err)
		}
		if next == nil || *next != *i.item {
			return errNothing // another process has done it meanwhile
		}
		b.Queue(u.sql.acted, i.plan, *i.item, "refused", retry.Text(storable("what follows cannot be written: "+cause.Error())), u.clock())
		return nil
	})
	if errors.Is(err, errNothing) || errors.Is(err, pgx.ErrNoRows) { // the plan does not run any more
		return nil
	}
	if err == nil {
		u.sum.acted.Add(1)
		u.sum.refused.Add(1)
	}
	return err
}

// unwritable reports whether what was to be written is to blame: a definition, what it sends, or values that the database
// does not take. Trying again changes nothing.
func unwritable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23")) {
		return true // data exception, violated constraint
	}
	return atFault(err)
}

// item reads the next item of the plan, and locks its instance.
func (k *keeper) item(ctx context.Context, tx pgx.Tx, t *turn, i *planItem) error {
	u := k.u
	if err := tx.QueryRow(ctx, u.sql.item, i.plan).Scan(&i.item, &i.key, &i.run); err != nil {
		return fmt.Errorf("saga: read plan %s: %w", i.plan, err)
	}
	if i.item == nil {
		return nil
	}
	b := &pgx.Batch{}
	t.load(b, nil, nil, []place{{*i.key, *i.run}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("saga: lock an instance of plan %s: %w", i.plan, err)
	}
	return nil
}

// do carries out an item. refused says why it is not done; then nothing has changed. Behind an error the transaction is
// rolled back: something may have been queued.
func (k *keeper) do(ctx context.Context, tx pgx.Tx, b *pgx.Batch, t *turn, i *planItem) (refused, err error) {
	in := t.instances[place{*i.key, *i.run}]
	if in == nil {
		return errors.New("it is not there any more"), nil
	}
	var args planArguments
	if len(i.arguments) > 0 {
		if err := json.Unmarshal(i.arguments, &args); err != nil {
			return fmt.Errorf("its arguments cannot be read: %w", err), nil
		}
	}
	switch i.action {
	case actionPause:
		return k.pause(b, t, in, i), nil
	case actionResume:
		return k.resume(b, t, in, i, args.Shift), nil
	}
	switch {
	case in.machine == nil:
		return fmt.Errorf("no definition of version %d is here: deploy a program that has it", in.version), nil
	case in.paused:
		return errors.New("it is paused: resume it first"), nil
	case in.held > 0 && !in.keptFails():
		return errors.New("what was kept for it has not been taken yet: try again in a moment"), nil
	case in.held > 0 && i.action == flow.ActionRetry:
		k.retryKept(b, t, in, i)
		return nil, nil
	case in.held > 0 && i.action == actionSkip:
		return k.skip(ctx, tx, b, t, in, i)
	case in.held > 0 && i.action != flow.ActionCancel:
		return errors.New("what was kept for it comes first, and fails: mend the program, pass by what fails with skip, or cancel"), nil
	case i.action == actionSkip:
		return errors.New("nothing that was kept for it fails: there is nothing to pass by"), nil
	}
	s := stimulus{}
	s.Action = &flow.Action{Name: i.action, Step: i.step, Refuse: args.Refused, Actor: i.actor, Reason: i.reason}
	if args.Type != "" {
		if s.Action.Event, s.Payload, err = k.byHand(t, in, i, args); err != nil {
			return err, nil
		}
	}
	revived := 0
	if i.action == flow.ActionRetry {
		if err := tx.QueryRow(ctx, k.u.sql.revive, timerQueue(k.u.name), timerPrefix(in.facts.Ref), timersAfter(in.facts.Ref), k.u.clock()).
			Scan(&revived); err != nil {
			return nil, fmt.Errorf("saga: revive timers of %s: %w", in.facts.Ref, err)
		}
	}
	reaction := t.apply(ctx, in, s)
	switch {
	case reaction == nil:
	case revived == 0:
		return reaction, nil
	default: // the machine has nothing to retry, and its timers go on
		if err := k.goOn(t, in, i); err != nil {
			return nil, faultyReaction{err} // the timers have to stay as they were
		}
	}
	if revived > 0 {
		t.counts.timersSet += int64(revived)
	}
	if in.held > 0 { // it is cancelled
		if err := k.cancelKept(ctx, tx, b, t, in, i); err != nil {
			return nil, err
		}
	}
	return nil, t.write(ctx, tx, b)
}

// byHand makes the event of an answer by hand. Its id is the same however often the item is tried.
func (k *keeper) byHand(t *turn, in *instance, i *planItem, args planArguments) (*eventstore.RecordedEvent, any, error) {
	plan, err := uuid.Parse(i.plan)
	if err != nil {
		return nil, nil, err
	}
	e := &eventstore.RecordedEvent{
		EventData: eventstore.EventData{
			ID: uuid.NewSHA1(plan, fmt.Appendf(nil, "item %d", *i.item)), Type: args.Type, SchemaVersion: 1,
			ContentType: eventstore.JSON.ContentType(), Data: args.Payload,
			Metadata: eventstore.Metadata{Tenant: in.facts.Tenant, CorrelationID: in.facts.CorrelationID, Actor: i.actor},
		},
		RecordedAt: t.now.UTC(),
	}
	var payload any
	err = safely("saga: "+k.u.name, func() (err error) {
		payload, err = in.machine.Decode(*e)
		return err
	})
	return e, payload, err
}

func (k *keeper) tell(b *pgx.Batch, t *turn, in *instance, i *planItem, text string) {
	in.history = append(in.history, flow.Entry{Kind: "action", Text: text, Actor: i.actor, Reason: i.reason})
	t.change(in, 0)
	t.writeHistory(b)
}

// Wake makes the manager look at once for what operators have decided, and for inputs and timers that can be taken. It never
// blocks, and nothing depends on it: Config.Poll bounds how late the manager is.
func (m *Manager) Wake() {
	for _, u := range m.units {
		u.glance()
		u.wakeTimers()
	}
}

const (
	plannedSQL = `
SELECT EXISTS (SELECT FROM {schema}.saga_plans p
                WHERE p.saga = $1 AND p.state = 'running' AND p.next_at <= coalesce($2::timestamptz, clock_timestamp()))`

	planRowSQL = `
SELECT p.plan::text, p.action, p.step, p.actor, p.reason, p.arguments, p.rate FROM {schema}.saga_plans p
 WHERE p.saga = $1 AND p.state = 'running' AND p.next_at <= coalesce($2::timestamptz, clock_timestamp())
 ORDER BY p.created_at LIMIT 1 FOR UPDATE SKIP LOCKED`

	itemSQL = `
SELECT i.item, i.key, i.run FROM (SELECT 1) o LEFT JOIN LATERAL (
  SELECT x.item, x.key, x.run FROM {schema}.saga_plan_items x WHERE x.plan = $1::text::uuid AND x.state = 'open' ORDER BY x.item LIMIT 1) i ON true`

	lockPlanSQL = `SELECT true FROM {schema}.saga_plans p WHERE p.plan = $1::text::uuid AND p.state = 'running' FOR UPDATE`

	// The plan ends with its last item.
	actedSQL = `
WITH acted AS (
  UPDATE {schema}.saga_plan_items SET state = $3, result = $4, done_at = coalesce($5::timestamptz, clock_timestamp())
   WHERE plan = $1::text::uuid AND item = $2::int
  RETURNING 1),
left_over AS (
  SELECT EXISTS (SELECT FROM {schema}.saga_plan_items x WHERE x.plan = $1::text::uuid AND x.state = 'open' AND x.item IS DISTINCT FROM $2::int) AS any)
UPDATE {schema}.saga_plans p
   SET done = p.done + CASE $3 WHEN 'done' THEN 1 ELSE 0 END, refused = p.refused + CASE $3 WHEN 'refused' THEN 1 ELSE 0 END,
       next_at = CASE WHEN p.rate > 0 THEN greatest(p.next_at, coalesce($5::timestamptz, clock_timestamp()) - interval '1 second') + make_interval(secs => 1 / p.rate)
                      ELSE p.next_at END,
       state = CASE WHEN l.any THEN p.state ELSE 'done' END,
       ended_at = CASE WHEN l.any THEN p.ended_at ELSE coalesce($5::timestamptz, clock_timestamp()) END
  FROM left_over l LEFT JOIN acted ON true
 WHERE p.plan = $1::text::uuid`
)
