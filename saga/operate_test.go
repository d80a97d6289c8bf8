package saga

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

func (w *rowWorld) operator() Operator {
	return Operator{DB: w.pool, Actor: "ann@desk", Reason: "the carrier is back"}
}

// items are those of a plan, as "1 k03/1 open".
func (w *rowWorld) items(plan uuid.UUID) string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT item || ' ' || key || '/' || run || ' ' || state FROM daybook.saga_plan_items WHERE plan = $1 ORDER BY item`, plan)
	if err != nil {
		w.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(lines, ", ")
}

func TestOperatorsWriteWhatIsCarriedOut(t *testing.T) {
	t.Parallel()
	w := many(t)
	o, ctx := w.operator(), t.Context()
	for _, c := range []struct {
		decide    func(Selection) (Plan, error)
		key       string
		action    string
		step      string
		arguments string
	}{
		{func(s Selection) (Plan, error) { return o.Retry(ctx, s, "pay") }, "k01", "retry", "pay", `{}`},
		{func(s Selection) (Plan, error) { return o.Answer(ctx, s, "pay", HandAnswer{Refused: true}) }, "k02", "answer", "pay", `{"refused":true}`},
		{
			func(s Selection) (Plan, error) {
				return o.Answer(ctx, s, "pay", HandAnswer{Type: "payment.taken", Payload: json.RawMessage(`{"receipt":"r1"}`)})
			}, "k03", "answer", "pay", `{"type":"payment.taken","payload":{"receipt":"r1"}}`,
		},
		{func(s Selection) (Plan, error) { return o.Cancel(ctx, s) }, "k05", "cancel", "", `{}`},
		{func(s Selection) (Plan, error) { return o.MarkUndone(ctx, s, "pay") }, "k06", "mark", "pay", `{}`},
		{func(s Selection) (Plan, error) { return o.Pause(ctx, s) }, "k07", "pause", "", `{}`},
		{func(s Selection) (Plan, error) { return o.Resume(ctx, s, true) }, "k09", "resume", "", `{"shift":true}`},
	} {
		plan, err := c.decide(Of("checkout", c.key))
		if err != nil {
			t.Fatalf("%s: %v", c.action, err)
		}
		var arguments string
		if err := w.pool.QueryRow(ctx, `SELECT convert_from(arguments, 'UTF8') FROM daybook.saga_plans WHERE plan = $1`, plan.ID).Scan(&arguments); err != nil {
			t.Fatal(err)
		}
		if plan.Action != c.action || plan.Step != c.step || arguments != c.arguments || plan.Actor != "ann@desk" || plan.Reason != "the carrier is back" ||
			plan.State != "running" || plan.Items != 1 || plan.Left() != 1 || plan.Waits != "no process runs the manager of checkout" || plan.Selection != `saga "checkout", "`+c.key+`"` {
			t.Errorf("%s: %s, %+v", c.action, arguments, plan)
		}
		if got := w.items(plan.ID); got != "1 "+c.key+"/1 open" {
			t.Errorf("%s: %s", c.action, got)
		}
	}
}

func TestPlansAreFrozen(t *testing.T) {
	t.Parallel()
	w := many(t)
	o, ctx := w.operator(), t.Context()
	stuck := Matching(Filter{Saga: "checkout", Stuck: true})
	p, err := o.Preview(ctx, stuck)
	if err != nil || p.Instances != 3 || p.Over+p.Planned != 0 || len(p.Examples) != 3 || p.Examples[0].Key != "k03" || p.Examples[0].Reason != flow.DeadLetter {
		t.Fatalf("%+v, %v", p, err)
	}
	o.Rate, o.Expect = 5, 3
	plan, err := o.Retry(ctx, stuck, "")
	if err != nil || plan.Items != 3 || plan.Rate != 5 || plan.Selection != `saga "checkout", stuck` {
		t.Fatalf("%+v, %v", plan, err)
	}
	const frozen = "1 k03/1 open, 2 k06/1 open, 3 k09/1 open"
	if got := w.items(plan.ID); got != frozen {
		t.Errorf("%s", got)
	}
	// What is in a running plan is in no other; of a wider selection it is left out.
	var refused *OperatorError
	if _, err := o.Retry(ctx, Of("checkout", "k03"), ""); !errors.As(err, &refused) || !errors.Is(err, ErrOperatorRefused) || !strings.Contains(err.Error(), "refused: 1 instance is in a plan that is running: see") {
		t.Errorf("%v", err)
	}
	w.exec(`UPDATE daybook.sagas SET stuck = 'dead_letter', stuck_since = now() WHERE key = 'k10'`)
	if _, err := o.Retry(ctx, stuck, ""); !errors.As(err, &refused) || !strings.Contains(err.Error(), "4 instances are selected by now, not 3") {
		t.Errorf("%v", err)
	}
	o.Expect = 0
	second, err := o.Retry(ctx, stuck, "")
	if err != nil || w.items(second.ID) != "1 k10/1 open" || w.items(plan.ID) != frozen {
		t.Errorf("%s, %v", w.items(second.ID), err)
	}

	// The manager takes its turn; an instance may refuse.
	w.exec(`UPDATE daybook.saga_plan_items SET state = 'done', done_at = now() WHERE plan = $1 AND item = 1`, plan.ID)
	w.exec(`UPDATE daybook.saga_plan_items SET state = 'refused', result = 'it is not stuck any more', done_at = now() WHERE plan = $1 AND item = 2`, plan.ID)
	w.exec(`UPDATE daybook.saga_plans SET done = 1, refused = 1 WHERE plan = $1`, plan.ID)
	w.consumer(explainEvents("checkout"), "saga", 1, 0, time.Now().Add(time.Hour), noon)
	plan, err = ReadPlan(ctx, w.pool, plan.ID)
	if err != nil || plan.Left() != 1 || plan.Waits != "" || len(plan.Refusals) != 1 || plan.Refusals[0] != (PlanItem{"k06", 1, "it is not stuck any more"}) {
		t.Errorf("%+v, %v", plan, err)
	}
	plans, err := Plans(ctx, w.pool, "checkout", true)
	if err != nil || len(plans) != 2 || plans[0].ID != second.ID {
		t.Errorf("%+v, %v", plans, err)
	}

	// Somebody waits; somebody else ends it.
	var said []Plan
	waited := make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		p, err := waitPlan(ctx, w.pool, plan.ID, time.Millisecond, func(p Plan) { said = append(said, p); begun <- struct{}{} }, nil)
		if err == nil && p.State != "cancelled" {
			err = errors.New(p.State)
		}
		waited <- err
	}()
	<-begun
	bob := Operator{DB: w.pool, Actor: "bob", Reason: "too early"}
	if plan, err = bob.CancelPlan(ctx, plan.ID); err != nil || plan.State != "cancelled" || plan.EndedBy != "bob" || plan.EndedWhy != "too early" {
		t.Errorf("%+v, %v", plan, err)
	}
	if err := <-waited; err != nil || len(said) != 2 {
		t.Errorf("%v, said %d", err, len(said))
	}
	if _, err := bob.CancelPlan(ctx, plan.ID); !errors.As(err, &refused) || !strings.Contains(err.Error(), "cancelled already") {
		t.Errorf("%v", err)
	}
	if plans, err = Plans(ctx, w.pool, "", true); err != nil || len(plans) != 1 {
		t.Errorf("%+v, %v", plans, err)
	}
	if e, err := Explain(ctx, w.pool, "checkout", "k09"); err != nil || len(e.Actions) != 1 || e.Actions[0].State != "cancelled" {
		t.Errorf("%+v, %v", e.Actions, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := WaitPlan(ended, w.pool, second.ID, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := ReadPlan(ctx, w.pool, uuid.New()); !errors.Is(err, ErrNoPlan) {
		t.Errorf("%v", err)
	}
	if _, err := bob.CancelPlan(ctx, uuid.New()); !errors.Is(err, ErrNoPlan) {
		t.Errorf("%v", err)
	}
}

func TestOperatorsAreRefused(t *testing.T) {
	t.Parallel()
	w := many(t)
	o, ctx := w.operator(), t.Context()
	retry := func(o Operator, s Selection) error { _, err := o.Retry(ctx, s, ""); return err }
	one := Of("checkout", "k01")
	for text, err := range map[string]error{
		"Operator.Actor":  retry(Operator{DB: w.pool, Reason: "x"}, one),
		"Operator.Reason": retry(Operator{DB: w.pool, Actor: "x"}, one),
		"Operator.Rate":   retry(Operator{DB: w.pool, Actor: "x", Reason: "x", Rate: -1}, one),
		"Operator.Expect": retry(Operator{DB: w.pool, Actor: "x", Reason: "x", Expect: -1}, one),
		"selects nothing": retry(o, Selection{}),
		"selects every":   retry(o, Matching(Filter{Saga: "checkout"})),
		"have ended":      retry(o, Matching(Filter{Saga: "checkout", State: "completed"})),
		"saga or key":     retry(o, Of("checkout", "")),
		"HandAnswer.Type": func() error {
			_, err := o.Answer(ctx, one, "pay", HandAnswer{Payload: json.RawMessage(`{}`)})
			return err
		}(),
		"HandAnswer.Payload": func() error {
			_, err := o.Answer(ctx, one, "pay", HandAnswer{Type: "x", Payload: json.RawMessage(`{`)})
			return err
		}(),
		"name the step that the answer is for": func() error { _, err := o.Answer(ctx, one, "", HandAnswer{}); return err }(),
		"name the step that was undone":        func() error { _, err := o.MarkUndone(ctx, one, ""); return err }(),
	} {
		if !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := retry(Operator{Actor: "x", Reason: "x"}, one); err == nil || !strings.Contains(err.Error(), "DB is nil") {
		t.Errorf("%v", err)
	}
	if err := retry(o, Of("checkout", "k04")); !errors.Is(err, ErrOperatorRefused) || !strings.Contains(err.Error(), "1 instance has ended") {
		t.Errorf("%v", err)
	}
	for _, c := range []struct {
		p    Preview
		want string
	}{
		{Preview{Instances: 3}, ""},
		{Preview{Over: 2}, "2 instances have ended"},
		{Preview{Planned: 2}, "2 instances are in plans that are running"},
		{Preview{Over: 1, Planned: 1}, "1 instance has ended, 1 is in a plan that is running"},
	} {
		if got := c.p.LeftOut(); got != c.want {
			t.Errorf("%+v: %s", c.p, got)
		}
	}
	var missing *NoInstanceError
	if err := retry(o, Of("checkout", "k01", "k99")); !errors.As(err, &missing) || missing.Key != "k99" {
		t.Errorf("%v", err)
	}
	if err := retry(o, Matching(Filter{Saga: "other", Stuck: true})); !errors.Is(err, ErrNoInstance) {
		t.Errorf("%v", err)
	}
	var plans int
	if err := w.pool.QueryRow(ctx, `SELECT count(*) FROM daybook.saga_plans`).Scan(&plans); err != nil || plans != 0 {
		t.Errorf("%d plans were written: %v", plans, err)
	}
}

// An error names its instance once.
func TestErrorsNameTheirInstanceOnce(t *testing.T) {
	t.Parallel()
	ref := flow.Ref{Saga: "order", Key: "n1", Run: 1}
	for text, want := range map[string]string{
		`saga: order "n1" run 1: prepare`: `saga: order "n1" run 1: prepare`,
		"saga: begin: there is no event":  `saga: begin order "n1" run 1: saga: begin: there is no event`,
		"closed":                          `saga: begin order "n1" run 1: closed`,
	} {
		cause := errors.New(text)
		if err := named("begin ", ref, cause); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
