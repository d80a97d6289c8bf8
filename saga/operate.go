package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/internal/flow"
)

// The actions of operators that managers carry out themselves, beside those of flow.
const (
	actionPause  = "pause"
	actionResume = "resume"
	actionSkip   = "skip"
)

const (
	// opMost is how many instances one plan may have.
	opMost = 100_000
	// opMinRate is one instance in eleven days.
	opMinRate = 1e-6
	// What is kept with a plan, and most of it with each of its instances, is for people to read.
	opMostActor, opMostReason, opMostName, opMostPayload = 200, 4000, 200, 1 << 20
)

// Operator decides for instances: what is asked for is written down as a plan, with who and why, and managers carry it out,
// each instance in a transaction of its own. A plan is frozen when it is written: instances that come to be what was
// asked for later are not part of it. Whether an instance can take the action is judged when its turn comes; see
// [PlanItem]. Nothing is carried out as long as no manager of the saga runs.
//
// The zero value lacks DB, Actor and Reason. An Operator is a value and safe for concurrent use as far as DB is.
type Operator struct {
	DB DB
	// Actor is who decides, Reason why. Both are kept with the plan and in the history of each instance. Needed.
	Actor, Reason string
	// Schema is the PostgreSQL schema of the store. Default "daybook".
	Schema string
	// Rate is how many instances have their turn in a second. Default: as fast as it goes.
	Rate float64
	// Expect is how many instances the caller believes to be selected; when there are more by now, nothing is done. 0 for any
	// number.
	Expect int
}

// Retry decides that a step is done now: what waits is sent again under the same id, what has failed, or is stuck, with a
// new one, and without waiting for its pause. Without a step it is the one at which the instance is stuck, or that it waits
// for. Where what was kept for an instance fails, that is tried again, and timers that were given up come again.
func (o Operator) Retry(ctx context.Context, s Selection, step string) (Plan, error) {
	return o.decide(ctx, s, flow.ActionRetry, step, planArguments{})
}

// HandAnswer is an answer by hand.
type HandAnswer struct {
	// Refused: it was definitely not done, and is not tried again.
	Refused bool
	// Type and Payload are those of an event as the step's declared answers take it: then the state is folded as by the
	// event itself. Type is the wire name, Payload is JSON. Both empty: the state stays as it is.
	Type    string
	Payload json.RawMessage
}

// Answer decides that a step counts as answered: done, or refused. It is for answers that will never come, once somebody
// has found out how it really ended.
func (o Operator) Answer(ctx context.Context, s Selection, step string, a HandAnswer) (Plan, error) {
	switch {
	case step == "":
		return Plan{}, opInvalid("step", "", "is empty", "name the step that the answer is for")
	case a.Type == "" && len(a.Payload) > 0:
		return Plan{}, opInvalid("HandAnswer.Type", "", "is empty, and there is a payload", "name the type of the event")
	case a.Type != "" && len(a.Payload) == 0:
		return Plan{}, opInvalid("HandAnswer.Payload", "", "is empty, and there is a type", "give the event as JSON")
	case len(a.Payload) > 0 && !json.Valid(a.Payload):
		return Plan{}, opInvalid("HandAnswer.Payload", fmt.Sprintf("%.100q", a.Payload), "is no JSON", "give the event as JSON")
	case len(a.Payload) > opMostPayload:
		return Plan{}, opInvalid("HandAnswer.Payload", fmt.Sprintf("%.100q…", a.Payload), opLong(string(a.Payload), opMostPayload), "answer by an event that is appended as others are")
	case !opStorable(a.Type) || len(a.Type) > opMostName:
		return Plan{}, opInvalid("HandAnswer.Type", fmt.Sprintf("%.100q", a.Type), fmt.Sprintf("has a zero byte, is not UTF-8, or is longer than %d bytes", opMostName), "name the type of the event")
	}
	return o.decide(ctx, s, flow.ActionAnswer, step, planArguments{Refused: a.Refused, Type: a.Type, Payload: a.Payload})
}

// Cancel decides that instances are compensated. Behind its pivot an instance refuses. One that cannot take what was kept for
// it passes that by.
func (o Operator) Cancel(ctx context.Context, s Selection) (Plan, error) {
	return o.decide(ctx, s, flow.ActionCancel, "", planArguments{})
}

// MarkUndone decides that a step counts as undone: somebody has undone it by hand.
func (o Operator) MarkUndone(ctx context.Context, s Selection, step string) (Plan, error) {
	if step == "" {
		return Plan{}, opInvalid("step", "", "is empty", "name the step that was undone by hand")
	}
	return o.decide(ctx, s, flow.ActionMark, step, planArguments{})
}

// Pause decides that instances stand still: what comes for them is kept, and their timers do nothing.
func (o Operator) Pause(ctx context.Context, s Selection) (Plan, error) {
	return o.decide(ctx, s, actionPause, "", planArguments{})
}

// Resume decides that paused instances go on, and first take what was kept, in order. With shift their timers are moved by
// as long as they were paused; without it those that were due meanwhile fire at once.
func (o Operator) Resume(ctx context.Context, s Selection, shift bool) (Plan, error) {
	return o.decide(ctx, s, actionResume, "", planArguments{Shift: shift})
}

// Skip decides that instances pass by an input that was kept for them, while they were paused or their version was missing,
// and that their definition fails at: it counts as seen, has no effect, and is in the history. They go on with what was kept
// behind it. An instance of which nothing fails refuses, and one that fails at a timer, without which nothing may wake it: mend
// the program, or cancel. Cancel passes by what fails too, unless it is a timer that the cancellation does not cancel.
func (o Operator) Skip(ctx context.Context, s Selection) (Plan, error) {
	return o.decide(ctx, s, actionSkip, "", planArguments{})
}

// planArguments is the stored form of what an action needs besides a step. Its names do not change.
type planArguments struct {
	Refused bool            `json:"refused,omitempty"` // of an answer
	Type    string          `json:"type,omitempty"`    // of its event: the wire name, at the catalog's present version
	Payload json.RawMessage `json:"payload,omitempty"` // of its event
	Shift   bool            `json:"shift,omitempty"`   // of a resume
}

func (o Operator) explaining() explaining { return explainOptions([]ExplainOption{InSchema(o.Schema)}) }

func (o Operator) validate() error {
	switch {
	case o.DB == nil:
		return errors.New("saga: Operator.DB is nil: pass the pool of the store's database")
	case strings.TrimSpace(o.Actor) == "" || !opStorable(o.Actor):
		return opInvalid("Operator.Actor", fmt.Sprintf("%.200q", o.Actor), "is empty, has a zero byte, or is not UTF-8", "say who decides")
	case len(o.Actor) > opMostActor:
		return opInvalid("Operator.Actor", fmt.Sprintf("%.100q…", o.Actor), opLong(o.Actor, opMostActor), "name a person or a program")
	case strings.TrimSpace(o.Reason) == "" || !opStorable(o.Reason):
		return opInvalid("Operator.Reason", fmt.Sprintf("%.200q", o.Reason), "is empty, has a zero byte, or is not UTF-8", "say why: it is kept with the instances")
	case len(o.Reason) > opMostReason:
		return opInvalid("Operator.Reason", fmt.Sprintf("%.100q…", o.Reason), opLong(o.Reason, opMostReason), "say why in a few lines, and where the rest is")
	case !(o.Rate >= opMinRate) && o.Rate != 0 || math.IsInf(o.Rate, 0):
		return opInvalid("Operator.Rate", fmt.Sprint(o.Rate), "is no rate", "name instances a second, at least 0.000001, or 0 for as fast as it goes")
	case o.Expect < 0:
		return opInvalid("Operator.Expect", fmt.Sprint(o.Expect), "is below 0", "name a number of instances, or 0 for any")
	}
	return nil
}

// decide writes a plan.
func (o Operator) decide(ctx context.Context, s Selection, action, step string, args planArguments) (Plan, error) {
	err := errors.Join(o.validate(), s.validate())
	if err == nil && (!opStorable(step) || len(step) > opMostName) {
		err = opInvalid("step", fmt.Sprintf("%.200q", step), fmt.Sprintf("has a zero byte, is not UTF-8, or is longer than %d bytes", opMostName), "name a step")
	}
	if err != nil {
		return Plan{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Plan{}, fmt.Errorf("saga: %s: %w", action, err)
	}
	arguments, err := json.Marshal(args)
	if err != nil {
		return Plan{}, fmt.Errorf("saga: %s: %w", action, err)
	}
	e := o.explaining()
	err = e.write(ctx, o.DB, action, func(tx pgx.Tx) error {
		// One at a time, so that two running plans never have one instance.
		name := fmt.Sprintf("daybook saga plans\x1f%s\x1f%s", e.schema, s.saga)
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.sql(planInsertSQL), id, s.saga, action, step, arguments, o.Actor, o.Reason, s.String(), o.Rate); err != nil {
			return err
		}
		p, err := e.freeze(ctx, tx, s, id)
		if err != nil {
			return err
		}
		switch {
		case o.Expect > 0 && p.Instances > o.Expect:
			return opRefuse(action, "%d instances are selected by now, not %d: look again", p.Instances, o.Expect)
		case p.Instances > opMost:
			return opRefuse(action, "more than %d instances are selected: select less at once", opMost)
		case p.Instances == p.Planned+p.Over && p.Planned > 0:
			return opRefuse(action, "%s: see `daybook saga plans`", p.LeftOut())
		case p.Instances == p.Planned+p.Over:
			return opRefuse(action, "%s", p.LeftOut())
		}
		_, err = tx.Exec(ctx, e.sql(`UPDATE {schema}.saga_plans SET items = $2 WHERE plan = $1`), id, p.Instances-p.Planned-p.Over)
		return err
	})
	if err != nil {
		return Plan{}, err
	}
	return ReadPlan(ctx, o.DB, id, InSchema(e.schema))
}

const planInsertSQL = `
INSERT INTO {schema}.saga_plans (plan, saga, action, step, arguments, actor, reason, selection, rate, items)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)`

// write runs f in a transaction that it commits.
func (o explaining) write(ctx context.Context, db DB, what string, f func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return opFail(what, o.schema, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after the commit it does nothing
	if _, err = tx.Exec(ctx, explainPlanSQL, fmt.Sprint(explainTimeout.Milliseconds())); err == nil {
		err = f(tx)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return opFail(what, o.schema, err)
	}
	return nil
}
