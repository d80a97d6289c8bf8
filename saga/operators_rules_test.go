package saga_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

func TestOperatorsCancel(t *testing.T) {
	t.Parallel()
	paying(t, checkoutDefinition).WhenOperator(sagatest.Cancel, "").ThenCompensates("take-payment", "reserve-stock").ThenCompensated().
		WhenOperatorIsRefused(sagatest.Cancel, "", "the instance is compensated")
	paying(t, checkoutDefinition).When(paymentBusy{}).ThenNothing().
		WhenOperator(sagatest.Cancel, "").ThenCompensates("reserve-stock").ThenCompensated()
	delivering(t, checkoutDefinition).WhenOperatorIsRefused(sagatest.Cancel, "", "there is no way back").
		When(shipped{}).ThenSends(invoice{}, tell{}).WhenOperatorIsRefused(sagatest.Cancel, "", `the pivot "hand-over" is done`)
	refusing(t, checkoutDefinition).WhenOperatorIsRefused(sagatest.Cancel, "", "is compensating")
	// In the pause after an attempt was undone there is nothing left of it.
	paying(t, checkoutDefinition).WhenReply("take-payment", saga.ReplyFailed).ThenSends(refund{}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		WhenOperator(sagatest.Cancel, "").ThenCompensates("reserve-stock").ThenCompensated()
	// When the pivot was given up, nobody knows whether there is a way back; what has ended is not stuck.
	given := func() *sagatest.Scenario {
		return delivering(t, checkoutDefinition).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
			WhenOperatorIsRefused(sagatest.Cancel, "", "say with answer how it ended").ThenStuck("dead_letter").
			WhenOperator(sagatest.Refuse, "hand-over")
	}
	given().ThenSends(refund{"r1"}).ThenStuck("")
	given().ThenCompensates("take-payment", "reserve-stock").ThenCompensated().ThenStuck("")
	none := changed(func(p *saga.Process[shop]) { p.Steps = p.Steps[:2] })
	paying(t, none).When(paymentTaken{"812", "r"}).WhenOperatorIsRefused(sagatest.Cancel, "", "all steps are done")
}

func TestOperatorsAnswer(t *testing.T) {
	t.Parallel()
	paying(t, checkoutDefinition).WhenOperator(sagatest.Refuse, "").ThenCompensates("reserve-stock").ThenCompensated()
	paying(t, checkoutDefinition).
		WhenOperatorIsRefused(sagatest.Answer, "reserve-stock", "the step is done").
		WhenOperatorIsRefused(sagatest.Answer, "hand-over", "has not begun").
		WhenOperatorIsRefused(sagatest.Mark, "", "0 steps fit")
	delivering(t, checkoutDefinition).When(shipped{}).ThenSends(invoice{}, tell{}).
		WhenOperatorIsRefused(sagatest.Refuse, "mail", "behind the pivot").
		WhenOperatorIsRefused(sagatest.Answer, "", "name one of invoice, mail").
		WhenOperatorIsRefused(sagatest.Answer, "tell", "the step is waiting").
		WhenOperator(sagatest.Answer, "mail").ThenNothing().
		When(invoiced{}).WhenOperatorIsRefused(sagatest.Refuse, "completed", "the last command has no answers")
}

// plain stores commands without a codec.
type plain struct{ fail error }

func (p plain) Prepare(_ context.Context, to string, payload any) (flow.Command, error) {
	return flow.Command{Type: "t", Target: to, Payload: payload}, p.fail
}

// started begins an instance by hand, for what a scenario does not show.
func started(t *testing.T, d saga.Definition) (flow.Machine, *flow.Instance, flow.Effects) {
	t.Helper()
	parts, err := d.Parts()
	if err != nil {
		t.Fatal(err)
	}
	in := event(t, orderPlaced{"ada", 500})
	i, fx, err := parts.Machine.Begin(t.Context(), plain{}, flow.Ref{Saga: d.Name(), Key: "812", Run: 1}, in)
	if err != nil {
		t.Fatal(err)
	}
	return parts.Machine, i, fx
}

var noon = time.Date(2024, 2, 29, 12, 0, 0, 1, time.FixedZone("CET", 3600))

func event(t *testing.T, payload any) flow.Input {
	t.Helper()
	data, err := shopEvents.Encode(payload)
	if err != nil {
		t.Fatal(err)
	}
	return flow.Input{Now: noon, Payload: payload, Event: &eventstore.RecordedEvent{
		EventData: data, Stream: eventstore.NewStreamID("order", "812"), Version: 1, RecordedAt: noon,
	}}
}

func TestAnswerByHandWithAnEvent(t *testing.T) {
	t.Parallel()
	m, i, _ := started(t, checkoutDefinition)
	act := func(payload any, change func(*flow.Action)) (flow.Effects, error) {
		in := event(t, payload)
		a := &flow.Action{Name: flow.ActionAnswer, Event: in.Event, Actor: "ada", Reason: "the shelf is full"}
		change(a)
		return m.React(t.Context(), plain{}, i, flow.Input{Now: noon, Action: a})
	}
	refusal := (*saga.ActionError)(nil)
	for name, change := range map[string]func(*flow.Action){
		"a success as a refusal":       func(a *flow.Action) { a.Refuse = true },
		"no actor":                     func(a *flow.Action) { a.Actor = " " },
		"no reason":                    func(a *flow.Action) { a.Reason = "" },
		"no such action":               func(a *flow.Action) { a.Name = "jump" },
		"no such event":                func(a *flow.Action) { a.Event.Type = "payment.taken" },
		"an event that cannot be read": func(a *flow.Action) { a.Event.Data = []byte{0xc1} },
	} {
		if _, err := act(stockReserved{"s9"}, change); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fx, err := act(stockReserved{"s9"}, func(*flow.Action) {})
	if err != nil {
		t.Fatal(err)
	}
	if got := i.Data.(shop).Shelf; got != "s9" {
		t.Errorf("the state has shelf %q", got)
	}
	if !i.Step("reserve-stock").Marked {
		t.Error("nothing says that it was done by hand")
	}
	if h := fx.History[0]; h.Kind != "action" || h.Actor != "ada" || h.Reason != "the shelf is full" || h.Step != "reserve-stock" {
		t.Errorf("the history begins with %+v", h)
	}
}

func TestWhatIsStored(t *testing.T) {
	t.Parallel()
	m, i, fx := started(t, checkoutDefinition)
	if i.StartedAt.Location() != time.UTC || i.StartedAt.Nanosecond() != 0 {
		t.Errorf("the time %v is not one of the database", i.StartedAt)
	}
	if i.CorrelationID == "" || i.Version != 1 || i.State != flow.Running {
		t.Errorf("%+v", i)
	}
	want := flow.CommandID(i.Ref, "reserve-stock", flow.Do, 1)
	if len(fx.Commands) != 1 || fx.Commands[0].ID != want || fx.Commands[0].Target != "812" {
		t.Errorf("sent %+v", fx.Commands)
	}
	data, contentType, steps, err := m.Encode(i)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(steps), `"plan":["reserve-stock","take-payment","hand-over","invoice","mail"]`) {
		t.Errorf("the steps to come are not stored: %s", steps)
	}
	var back flow.Instance
	if err := m.Restore(&back, data, contentType, steps); err != nil {
		t.Fatal(err)
	}
	if back.Data != i.Data || back.Steps[0] != i.Steps[0] {
		t.Errorf("it comes back as %+v", back)
	}
	for name, err := range map[string]error{
		"form":  m.Restore(&back, data, "text/plain", steps),
		"state": m.Restore(&back, []byte{0xc1}, contentType, steps),
		"steps": m.Restore(&back, data, contentType, []byte("{")),
	} {
		if err == nil {
			t.Errorf("another %s is taken", name)
		}
	}
}

func TestWhatCannotBe(t *testing.T) {
	t.Parallel()
	m, i, _ := started(t, checkoutDefinition)
	ref := flow.Ref{Saga: "checkout", Key: "813", Run: 1}
	unknown := errors.New("no such command")
	if _, _, err := m.Begin(t.Context(), plain{unknown}, ref, event(t, orderPlaced{})); !errors.Is(err, unknown) {
		t.Errorf("a command that the bus does not know: %v", err)
	}
	if _, _, err := m.Begin(t.Context(), plain{}, ref, flow.Input{}); err == nil {
		t.Error("it begins without an event")
	}
	if _, _, err := m.Begin(t.Context(), plain{}, ref, event(t, told{})); err == nil {
		t.Error("it begins with another event")
	}
	if _, err := m.React(t.Context(), plain{}, i, flow.Input{}); err == nil {
		t.Error("it reacts to nothing")
	}
	for _, in := range []flow.Input{
		{Timer: "gone/retry"}, {Timer: "odd"}, {Timer: "reserve-stock/retry"}, {Timer: "reserve-stock/undo"}, {Timer: "completed/retry"},
		{Reply: &flow.Reply{State: flow.ReplyDone}, Origin: flow.Origin{Step: "gone", Direction: flow.Do, Intent: 1}},
		{Reply: &flow.Reply{State: flow.ReplyDone}, Origin: flow.Origin{Step: "reserve-stock", Direction: flow.Undo, Intent: 1}},
		{Reply: &flow.Reply{State: flow.ReplyDone}, Origin: flow.Origin{Step: "completed", Direction: flow.End, Intent: 1}},
	} {
		fx, err := m.React(t.Context(), plain{}, i, in)
		if err != nil || fx.Ignored != 1 || len(fx.Commands) > 0 || i.State != flow.Running {
			t.Errorf("%+v: %v, %+v", in, err, fx)
		}
	}
	if _, _, err := m.Starts(&eventstore.RecordedEvent{
		EventData: eventstore.EventData{Type: "order.placed"}, Stream: eventstore.StreamID{Category: "order", ID: "\xff"},
	}, orderPlaced{}); err == nil {
		t.Error("a key that cannot be stored is taken")
	}
}
