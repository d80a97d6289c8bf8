package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Plan is what an operator has decided for instances of a saga, and how far it is.
type Plan struct {
	ID     uuid.UUID `json:"id"`
	Saga   string    `json:"saga"`
	Action string    `json:"action"` // "retry", "answer", "cancel", "mark", "skip", "pause", "resume"
	Step   string    `json:"step,omitempty"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	// Selection is what was asked for.
	Selection string `json:"selection"`
	State     string `json:"state"` // "running", "done", "cancelled"
	// Items is how many instances it has: of them Done have taken the action, Refused have not, and the rest waits, or is
	// not tried when the plan was cancelled.
	Items     int       `json:"items"`
	Done      int       `json:"done"`
	Refused   int       `json:"refused"`
	Rate      float64   `json:"rate,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// EndedBy and EndedWhy are of a plan that was cancelled.
	EndedBy  string `json:"ended_by,omitempty"`
	EndedWhy string `json:"ended_why,omitempty"`
	// Waits says what a plan that is running waits for, if that is not its turn: "no process runs the manager of checkout".
	Waits string `json:"waits,omitempty"`
	// Refusals are the first instances that refused, at most ten. Only [ReadPlan] fills them in.
	Refusals []PlanItem `json:"refusals,omitempty"`
}

// PlanItem is an instance of a plan.
type PlanItem struct {
	Key    string `json:"key"`
	Run    int    `json:"run"`
	Result string `json:"result"` // why it refused
}

// Left is how many instances have not had their turn.
func (p Plan) Left() int { return max(p.Items-p.Done-p.Refused, 0) }

// Running reports whether it has not ended.
func (p Plan) Running() bool { return p.State == "running" }

// ReadPlan returns how far a plan is. An unknown one is [ErrNoPlan]. Of the options it takes [InSchema].
func ReadPlan(ctx context.Context, db DB, id uuid.UUID, options ...ExplainOption) (Plan, error) {
	var p Plan
	o := explainOptions(options)
	err := o.read(ctx, db, "plan", func(tx pgx.Tx) (err error) {
		p, err = o.plan(ctx, tx, id)
		return err
	})
	return p, err
}

func (o explaining) plan(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Plan, error) {
	p, err := scanPlan(tx.QueryRow(ctx, o.sql(planSelectSQL+` WHERE p.plan = $1`), id))
	if errors.Is(err, pgx.ErrNoRows) {
		return p, fmt.Errorf("%w: %s", ErrNoPlan, id)
	} else if err != nil || p.Refused == 0 {
		return p, err
	}
	rows, err := tx.Query(ctx, o.sql(refusalsSQL), id)
	if err != nil {
		return p, err
	}
	p.Refusals, err = pgx.CollectRows(rows, pgx.RowToStructByPos[PlanItem])
	return p, err
}

// Plans returns the plans of a saga, or of all when it is empty, the newest first, at most a hundred; only those that are
// running when running is set. Of the options it takes [InSchema].
func Plans(ctx context.Context, db DB, saga string, running bool, options ...ExplainOption) ([]Plan, error) {
	plans := []Plan{}
	if !opStorable(saga) {
		return plans, opInvalid("saga", clipped(saga), "has a zero byte, or is not UTF-8", "name a saga, or none for all")
	}
	o := explainOptions(options)
	err := o.read(ctx, db, "plans", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, o.sql(planSelectSQL+`
 WHERE ($1 = '' OR p.saga = $1) AND (NOT $2 OR p.state = 'running') ORDER BY p.created_at DESC, p.plan LIMIT 100`), saga, running)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Plan, error) { return scanPlan(row) })
		plans = append(plans, found...)
		return err
	})
	return plans, err
}

const planSelectSQL = `
SELECT p.plan, p.saga, p.action, p.step, p.actor, p.reason, p.selection, p.state, p.items, p.done, p.refused, p.rate, p.created_at, p.ended_at,
       p.ended_by, p.ended_why,
       EXISTS (SELECT FROM {schema}.segments g WHERE g.consumer = 'saga-' || p.saga AND g.expires_at > clock_timestamp())
  FROM {schema}.saga_plans p`

const refusalsSQL = `
SELECT i.key, i.run, i.result FROM {schema}.saga_plan_items i WHERE i.plan = $1 AND i.state = 'refused' ORDER BY i.item LIMIT 10`

func scanPlan(row pgx.Row) (p Plan, err error) {
	var ended *time.Time
	var live bool
	err = row.Scan(&p.ID, &p.Saga, &p.Action, &p.Step, &p.Actor, &p.Reason, &p.Selection, &p.State, &p.Items, &p.Done, &p.Refused, &p.Rate,
		&p.CreatedAt, &ended, &p.EndedBy, &p.EndedWhy, &live)
	p.CreatedAt, p.EndedAt = p.CreatedAt.UTC(), explainTime(ended)
	if p.Running() && !live {
		p.Waits = "no process runs the manager of " + p.Saga
	}
	return p, err
}

// CancelPlan ends a running plan: instances that have not had their turn are left as they are. A plan that has ended is
// refused. Who and why are kept with the plan.
func (o Operator) CancelPlan(ctx context.Context, id uuid.UUID) (Plan, error) {
	if err := o.validate(); err != nil {
		return Plan{}, err
	}
	var p Plan
	e := o.explaining()
	err := e.write(ctx, o.DB, "cancel plan", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, e.sql(planCancelSQL), id, o.Actor, o.Reason)
		if err != nil {
			return err
		}
		if p, err = e.plan(ctx, tx, id); err == nil && tag.RowsAffected() == 0 {
			return &OperatorError{Action: "cancel plan", Plan: id, Reason: "it is " + p.State + " already"}
		}
		return err
	})
	return p, err
}

const planCancelSQL = `
UPDATE {schema}.saga_plans SET state = 'cancelled', ended_at = clock_timestamp(), ended_by = $2, ended_why = $3 WHERE plan = $1 AND state = 'running'`

// planWait is how often a plan is looked at that somebody waits for.
const planWait = time.Second

// WaitPlan returns a plan when it has ended, and calls said, if it is not nil, with each change before. When ctx ends it
// returns the plan as it was last, and the error of ctx; the plan goes on.
func WaitPlan(ctx context.Context, db DB, id uuid.UUID, said func(Plan), options ...ExplainOption) (Plan, error) {
	return waitPlan(ctx, db, id, planWait, said, options)
}

func waitPlan(ctx context.Context, db DB, id uuid.UUID, every time.Duration, said func(Plan), options []ExplainOption) (Plan, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last Plan
	for {
		p, err := ReadPlan(ctx, db, id, options...)
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil:
			return last, err
		case said != nil && (p.State != last.State || p.Done != last.Done || p.Refused != last.Refused || p.Waits != last.Waits):
			said(p)
		}
		if last = p; !p.Running() {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}
