package saga

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// What no instance has, or nobody could read, is refused before anything is written, by an error of a few lines.
func TestOperatorsTypeAnything(t *testing.T) {
	t.Parallel()
	w := many(t)
	ctx, o, one := t.Context(), w.operator(), Of("checkout", "k01")
	huge := strings.Repeat("x", 5<<20)
	by := func(actor, reason string) error {
		_, err := Operator{DB: w.pool, Actor: actor, Reason: reason}.Pause(ctx, one)
		return err
	}
	retry := func(s Selection, step string) error { _, err := o.Retry(ctx, s, step); return err }
	answer := func(a HandAnswer) error { _, err := o.Answer(ctx, one, "pay", a); return err }
	list := func(f Filter) error { _, err := List(ctx, w.pool, f); return err }
	for name, c := range map[string]struct {
		err   error
		field string
	}{
		"no actor":         {by(" \t", "x"), "Operator.Actor"},
		"a long actor":     {by(huge, "x"), "5242880 bytes, more than 200"},
		"no reason":        {by("ann", " \n "), "Operator.Reason"},
		"a long reason":    {by("ann", huge), "5242880 bytes, more than 4000"},
		"a reason of NULs": {by("ann", "a\x00"), "Operator.Reason"},
		"no text":          {by("ann", "a\xff"), "Operator.Reason"},
		"a long key":       {retry(Of("checkout", huge), ""), "5242880 bytes, more than 400"},
		"an empty key":     {retry(Of("checkout", "k01", ""), ""), "saga or key"},
		"no saga":          {retry(Of("", "k01"), ""), `saga "" is empty`},
		"a long saga":      {retry(Of(huge, "k01"), ""), "5242880 bytes, more than 400"},
		"a long step":      {retry(one, huge), "step"},
		"a step of NULs":   {retry(one, "\x00"), "step"},
		"a long type":      {answer(HandAnswer{Type: huge, Payload: json.RawMessage(`{}`)}), "HandAnswer.Type"},
		"a long payload":   {answer(HandAnswer{Type: "x", Payload: json.RawMessage(`"` + huge + `"`)}), "HandAnswer.Payload"},
		"a reason of none": {retry(Matching(Filter{Saga: "checkout", Reason: ReasonOutboxBlocked}), ""), "is not stored with instances"},
		"a long reason is": {list(Filter{Saga: "checkout", Reason: huge}), "Filter.Reason"},
		"a long state":     {list(Filter{Saga: "checkout", State: huge}), "Filter.State"},
		"a long cursor":    {list(Filter{Saga: "checkout", After: huge}), "Filter.After"},
		"a cursor of none": {list(Filter{Saga: "checkout", Stuck: true, After: listCursor{Order: "nothing"}.String()}), "Filter.After"},
		"of another":       {list(Filter{Saga: "checkout", Reason: ReasonPaused, After: listCursor{Order: "overdue"}.String()}), "Filter.After"},
		"a run of none":    {func() error { _, err := Explain(ctx, w.pool, "checkout", "k01", OfRun(math.MaxInt32+1)); return err }(), "OfRun"},
		"a key of NULs":    {func() error { _, err := Explain(ctx, w.pool, "checkout", "\x00"); return err }(), "saga or key"},
		"plans of NULs":    {func() error { _, err := Plans(ctx, w.pool, "\x00", false); return err }(), "saga"},
	} {
		if !errors.Is(c.err, eventstore.ErrInvalid) || !strings.Contains(c.err.Error(), c.field) || len(c.err.Error()) > 1000 || strings.Contains(c.err.Error(), "SQLSTATE") {
			t.Errorf("%s: %.500v", name, c.err)
		}
	}
	// What is there, but not here.
	for _, c := range []struct{ saga, key, want string }{
		{"other", "k01", `near it are "k"`}, {"none", "k01", `there are some of "checkout", "other"`}, {"checkout", "k", `near it are "k01", "k02"`},
	} {
		if err := retry(Of(c.saga, c.key), ""); !errors.Is(err, ErrNoInstance) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.saga, c.key, err)
		}
	}
	if _, err := o.CancelPlan(ctx, uuid.Nil); !errors.Is(err, ErrNoPlan) {
		t.Error(err)
	}
	var plans int
	if err := w.pool.QueryRow(ctx, `SELECT count(*) FROM daybook.saga_plans`).Scan(&plans); err != nil || plans != 0 {
		t.Errorf("%d plans were written: %v", plans, err)
	}
	// Control characters are kept as they are, and never printed; see explainClean.
	if plan, err := (Operator{DB: w.pool, Actor: "a\x1bb", Reason: "\x1b[2J\r\nred"}).Pause(ctx, one); err != nil || plan.Reason != "\x1b[2J\r\nred" {
		t.Errorf("%+v, %v", plan, err)
	}
}

// Of those who decide for an instance at the same moment one is first, and the others are told of it; nobody's plan is lost.
func TestOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	w := many(t)
	const people = 6
	var all sync.WaitGroup
	errs := make([]error, people)
	for n := range people {
		all.Go(func() {
			_, errs[n] = w.operator().Pause(t.Context(), Of("checkout", "k01", "k02", "k01"))
		})
	}
	all.Wait()
	first := 0
	for _, err := range errs {
		switch {
		case err == nil:
			first++
		case !errors.Is(err, ErrOperatorRefused) || !strings.Contains(err.Error(), "2 instances are in plans that are running"):
			t.Errorf("%v", err)
		}
	}
	plans, err := Plans(t.Context(), w.pool, "checkout", true)
	if err != nil || first != 1 || len(plans) != 1 || plans[0].Items != 2 {
		t.Errorf("%d were first, %v: %+v", first, err, plans)
	}
}
