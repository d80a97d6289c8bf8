package saga_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

// parcel asks one carrier after the other, until one takes it.
type parcel struct {
	Order   string
	Asked   int
	Ends    int
	Reminds int
}

func startParcel(e saga.Event[orderPlaced]) parcel { return parcel{Order: e.Stream.ID} }

func (p parcel) ask(fx *saga.Effects) parcel {
	p.Asked++
	fx.Send("ask", p.Order, handOver{})
	fx.After("remind", time.Minute)
	return p
}

func (p parcel) placed(_ saga.Event[orderPlaced], fx *saga.Effects) parcel { return p.ask(fx) }

func (p parcel) refused(_ saga.Event[noCarrier], fx *saga.Effects) parcel {
	if fx.Command() != "ask" {
		panic("caused by " + fx.Command())
	}
	if p.Asked == 3 {
		fx.Cancel("remind")
		fx.Compensated()
		return p
	}
	return p.ask(fx)
}

func (p parcel) shipped(_ saga.Event[shipped], fx *saga.Effects) parcel {
	fx.Complete()
	return p
}

func (p parcel) paidBack(_ saga.Event[paymentTaken], fx *saga.Effects) parcel {
	fx.Undo("ask", p.Order, releaseStock{})
	return p
}

func (p parcel) remind(fx *saga.Effects) parcel {
	p.Reminds++
	fx.Send("tell", "ada", tell{})
	return p
}

func (p parcel) reply(r saga.Reply, fx *saga.Effects) parcel {
	p.Ends++
	switch {
	case r.Undo && r.State == saga.ReplyDone:
		fx.Compensated()
	case r.Name == "ask" && r.State != saga.ReplyDone:
		fx.Stuck("ask", r.Reason)
	}
	return p
}

func (p parcel) cancel(fx *saga.Effects) parcel {
	fx.Undo("ask", p.Order, releaseStock{})
	return p
}

func parcelFlow() saga.Flow[parcel] {
	return saga.Flow[parcel]{
		Name: "parcel", Version: 1, Events: shopEvents, Start: saga.StartOn(startParcel),
		Reactions: []saga.Reaction[parcel]{
			saga.React(parcel.placed), saga.React(parcel.refused), saga.React(parcel.shipped),
			saga.ReactKey(payment, parcel.paidBack), saga.ReactTimer("remind", parcel.remind),
			saga.ReactReply(parcel.reply), saga.ReactCancel(parcel.cancel),
		},
	}
}

var parcelDefinition = saga.Define(parcelFlow())

func asked(t *testing.T, d saga.Definition) *sagatest.Scenario {
	t.Helper()
	return sagatest.For(t, d).In("order-812").When(orderPlaced{}).ThenSends(handOver{})
}

func TestFlows(t *testing.T) {
	t.Parallel()
	asked(t, parcelDefinition).ThenAwaits("an answer to ask (handOver to 812)").
		When(shipped{}).ThenNothing().ThenCompleted().
		When(noCarrier{}).ThenNothing().ThenCompleted()
	asked(t, parcelDefinition).
		After(time.Minute).ThenSends(tell{}).
		WhenReply("tell", saga.ReplyDone).ThenNothing().
		WhenCausedBy("ask", noCarrier{}).ThenSends(handOver{}).
		WhenCausedBy("ask", noCarrier{}).ThenSends(handOver{}).
		ThenState(parcel{Order: "812", Asked: 3, Ends: 1, Reminds: 1}).
		WhenCausedBy("ask", noCarrier{}).ThenNothing().ThenCompensated().
		After(time.Hour).ThenNothing()
	asked(t, parcelDefinition).When(paymentTaken{Order: "812"}).ThenSends(releaseStock{}).ThenRunning().ThenAwaits("ask to be undone").
		WhenReply("ask", saga.ReplyDone).ThenCompensated()
	asked(t, parcelDefinition).When(orderPlaced{}).ThenNothing()
}

func TestFlowsAreStuck(t *testing.T) {
	t.Parallel()
	asked(t, parcelDefinition).WhenReply("ask", saga.ReplyRefused, "closed").ThenStuck("dead_letter").ThenAwaits("somebody to decide").
		WhenOperatorIsRefused(sagatest.Retry, "ask", "only reactions make new ones").
		WhenOperator(sagatest.Cancel, "").ThenSends(releaseStock{}).ThenRunning().
		WhenOperator(sagatest.Retry, "ask").ThenSends(releaseStock{}).
		WhenOperator(sagatest.Mark, "ask").ThenCompensated().
		WhenOperatorIsRefused(sagatest.Cancel, "", "is compensated")
	// Without a reaction to replies it is stuck by itself.
	f := parcelFlow()
	f.Reactions = append(f.Reactions[:5:5], saga.ReactTimer("other", func(p parcel, fx *saga.Effects) parcel { return p }))
	d := saga.Define(f)
	asked(t, d).WhenOperatorIsRefused(sagatest.Cancel, "", "does not say how").
		WhenOperator(sagatest.Retry, "ask").ThenSends(handOver{}).
		WhenReply("ask", saga.ReplyDone).ThenRunning().
		When(paymentTaken{Order: "812"}).ThenSends(releaseStock{}).
		WhenReply("ask", saga.ReplyFailed, "gone").ThenStuck("compensation_failed").
		WhenOperator(sagatest.Mark, "ask").ThenRunning()
	asked(t, d).WhenReply("ask", saga.ReplyExpired).ThenStuck("dead_letter").
		WhenOperatorIsRefused(sagatest.Answer, "tell", "no such command").
		WhenOperatorIsRefused(sagatest.Mark, "ask", "use what fits").
		WhenOperator(sagatest.Answer, "ask").ThenRunning()
}

// toldState is the replies that a flow was told of.
type toldState struct{ Replies []saga.Reply }

// TestRepliesOfWhatWasReplaced: a flow is never told the end of one command as if it were that of the next of its name.
func TestRepliesOfWhatWasReplaced(t *testing.T) {
	t.Parallel()
	send := func(s toldState, _ saga.Event[orderPlaced], fx *saga.Effects) toldState {
		fx.Send("ask", "", tell{})
		return s
	}
	m, i, _ := started(t, saga.Define(saga.Flow[toldState]{
		Name: "f", Version: 1, Events: shopEvents, Start: saga.StartOn(func(saga.Event[orderPlaced]) toldState { return toldState{} }),
		Reactions: []saga.Reaction[toldState]{
			saga.React(send),
			saga.ReactKey(payment, func(s toldState, _ saga.Event[paymentTaken], fx *saga.Effects) toldState {
				fx.Send("ask", "", tell{})
				return s
			}),
			saga.ReactCancel(func(s toldState, fx *saga.Effects) toldState { fx.Undo("ask", "", tell{}); return s }),
			saga.ReactReply(func(s toldState, r saga.Reply, _ *saga.Effects) toldState { s.Replies = append(s.Replies, r); return s }),
		},
	}))
	react := func(in flow.Input) flow.Effects {
		t.Helper()
		in.Now = noon
		fx, err := m.React(t.Context(), plain{}, i, in)
		if err != nil {
			t.Fatal(err)
		}
		return fx
	}
	reply := func(direction flow.Direction, attempt int, state saga.ReplyState, want ...saga.Reply) {
		t.Helper()
		i.Data = toldState{}
		fx := react(flow.Input{Reply: &flow.Reply{State: state}, Origin: flow.Origin{Step: "ask", Direction: direction, Intent: attempt}})
		if got := i.Data.(toldState).Replies; !slices.Equal(got, want) {
			t.Errorf("%s %d %s: told %+v, want %+v", direction, attempt, state, got, want)
		}
		if len(want) == 0 && fx.Ignored != 1 {
			t.Errorf("%s %d %s: it is not counted as ignored", direction, attempt, state)
		}
	}
	again := event(t, paymentTaken{Order: "812"})
	again.ByKey = true
	react(again) // ask 2
	reply(flow.Do, 1, saga.ReplyRefused)
	reply(flow.Do, 1, saga.ReplyDone, saga.Reply{Name: "ask", Attempt: 1, Late: true, State: saga.ReplyDone})
	if s := i.Step("ask"); s.State != flow.Waiting || s.Carried {
		t.Errorf("by the end of the first the second is %s, carried out: %v", s.State, s.Carried)
	}
	reply(flow.Do, 2, saga.ReplyRefused, saga.Reply{Name: "ask", Attempt: 2, State: saga.ReplyRefused})
	reply(flow.Do, 2, saga.ReplyDone, saga.Reply{Name: "ask", Attempt: 2, Late: true, State: saga.ReplyDone})
	reply(flow.Do, 2, saga.ReplyDone)
	react(again) // ask 3
	cancel := flow.Input{Action: &flow.Action{Name: flow.ActionCancel, Actor: "ada", Reason: "test"}}
	react(cancel)
	reply(flow.Do, 3, saga.ReplyExpired) // its undo has seen to that
	react(again)                         // ask 4
	reply(flow.Undo, 1, saga.ReplyRefused, saga.Reply{Name: "ask", Undo: true, Attempt: 1, Late: true, State: saga.ReplyRefused})
	react(cancel)
	reply(flow.Undo, 2, saga.ReplyFailed, saga.Reply{Name: "ask", Undo: true, Attempt: 2, State: saga.ReplyFailed})
	reply(flow.Undo, 2, saga.ReplyFailed)
	reply(flow.Undo, 2, saga.ReplyDone, saga.Reply{Name: "ask", Undo: true, Attempt: 2, Late: true, State: saga.ReplyDone})
	reply(flow.Undo, 2, saga.ReplyDone)
	if s := i.Step("ask"); s.State != flow.Undone {
		t.Errorf("it is %s", s.State)
	}
}

func TestTimersThatCannotBeSet(t *testing.T) {
	t.Parallel()
	f := parcelFlow()
	f.Reactions = []saga.Reaction[parcel]{
		saga.React(func(p parcel, _ saga.Event[orderPlaced], fx *saga.Effects) parcel {
			fx.Cancel("remind") // it may be set, for all that the reaction knows
			fx.Cancel("remnid")
			return p
		}), saga.ReactTimer("remind", parcel.remind),
	}
	_, _, fx := started(t, saga.Define(f))
	if n := len(fx.History); n != 2 || fx.History[1].Kind != "ignored" || !strings.Contains(fx.History[1].Text, `cancel timer "remnid": it is not set`) {
		t.Errorf("the history is %+v", fx.History)
	}
}

func TestFlowsAnsweredByHand(t *testing.T) {
	t.Parallel()
	m, i, fx := started(t, parcelDefinition)
	if len(fx.Commands) != 1 || fx.Timers[0].Name != "remind" {
		t.Fatalf("%+v", fx)
	}
	in := flow.Input{Now: noon, Action: &flow.Action{Name: flow.ActionAnswer, Step: "ask", Event: event(t, shipped{}).Event, Actor: "ada", Reason: "seen"}}
	fx, err := m.React(t.Context(), plain{}, i, in)
	if err != nil || i.State != flow.Completed || !fx.CancelAll || len(fx.Closed) != 1 {
		t.Errorf("%v, %s, %+v", err, i.State, fx)
	}
}

func TestWhatAFlowMustNotDo(t *testing.T) {
	t.Parallel()
	for text, react := range map[string]func(fx *saga.Effects){
		"nothing reacts to it":      func(fx *saga.Effects) { fx.After("never", 1) },
		"no such command was sent":  func(fx *saga.Effects) { fx.Undo("never", "", tell{}) },
		`command "Not A Name"`:      func(fx *saga.Effects) { fx.Send("Not A Name", "", tell{}) },
		`command "completed"`:       func(fx *saga.Effects) { fx.Stuck("completed", "") },
		"prepare saga_test.tell of": func(fx *saga.Effects) { fx.Send("tell", "", tell{}) },
	} {
		d := saga.Define(saga.Flow[parcel]{
			Name: "f", Version: 1, Events: shopEvents, Start: saga.StartOn(startParcel),
			Reactions: []saga.Reaction[parcel]{
				saga.React(func(p parcel, _ saga.Event[orderPlaced], fx *saga.Effects) parcel { react(fx); return p }),
			},
		})
		parts, err := d.Parts()
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = parts.Machine.Begin(t.Context(), plain{errors.New("unknown")}, flow.Ref{Saga: "f", Key: "1", Run: 1}, event(t, orderPlaced{}))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q in the error, got %v", text, err)
		}
	}
}

var cancelUnpaid = saga.After("cancel-unpaid", 15*time.Minute, shopEvents,
	saga.When(func(e saga.Event[orderPlaced]) (string, cancelOrder) { return e.Stream.ID, cancelOrder{"not paid"} }),
	saga.Unless(payment))

func unpaid(t *testing.T) *sagatest.Scenario {
	t.Helper()
	return sagatest.For(t, cancelUnpaid).In("order-812").When(orderPlaced{}).ThenNothing()
}

func TestDelayedCommands(t *testing.T) {
	t.Parallel()
	unpaid(t).ThenAwaits("the time to send cancelOrder to 812").
		After(15*time.Minute-1).ThenNothing().ThenRunning().
		After(1).ThenSendsTo("812", cancelOrder{"not paid"}).
		When(paymentTaken{Order: "812"}).ThenNothing().ThenRunning().
		WhenReply("send", saga.ReplyDone).ThenCompleted().
		When(orderPlaced{}).ThenNothing().ThenRunning()
	unpaid(t).When(paymentTaken{Order: "812"}).ThenNothing().ThenCompleted().After(time.Hour).ThenNothing()
	unpaid(t).When(orderPlaced{}).ThenNothing().After(15*time.Minute).ThenSends(cancelOrder{"not paid"}).
		WhenReply("send", saga.ReplyFailed).ThenNothing().ThenAwaits("the next attempt").
		After(time.Minute).ThenSends(cancelOrder{"not paid"}).
		WhenReply("send", saga.ReplyRefused, "it is paid").ThenCompleted()
	unpaid(t).WhenOperator(sagatest.Cancel, "").ThenCompleted().WhenOperatorIsRefused(sagatest.Cancel, "", "it has ended")
	unpaid(t).WhenOperator(sagatest.Retry, "").ThenSends(cancelOrder{"not paid"}).
		WhenOperatorIsRefused(sagatest.Cancel, "", "does not fit").
		WhenOperator(sagatest.Retry, "").ThenSends(cancelOrder{"not paid"}).
		WhenOperator(sagatest.Answer, "send").ThenCompleted()
}

func TestADelayCountsFromTheEvent(t *testing.T) {
	t.Parallel()
	_, i, fx := started(t, cancelUnpaid)
	if timer := fx.Timers[0]; timer.After != 15*time.Minute || !timer.From.Equal(noon.Truncate(time.Microsecond)) {
		t.Errorf("the timer is %+v", timer)
	}
	if i.Key != "812" {
		t.Errorf("the key is %q", i.Key)
	}
}

var spreadUnpaid = saga.After("cancel-unpaid", 15*time.Minute, shopEvents,
	saga.When(func(e saga.Event[orderPlaced]) (string, cancelOrder) { return e.Stream.ID, cancelOrder{"not paid"} }),
	saga.Unless(payment), saga.Spread(10*time.Minute))

func TestDelaysAreSpread(t *testing.T) {
	t.Parallel()
	_, _, fx := started(t, spreadUnpaid)
	if timer := fx.Timers[0]; timer.After != 15*time.Minute || timer.Spread != 10*time.Minute {
		t.Errorf("the timer is %+v", timer)
	}
	sagatest.For(t, spreadUnpaid).In("order-812").When(orderPlaced{}).ThenNothing().
		After(25*time.Minute-1).ThenNothing().After(1).ThenSendsTo("812", cancelOrder{"not paid"})
}

func TestReactors(t *testing.T) {
	t.Parallel()
	d := saga.NewReactor("thanks", shopEvents,
		saga.When(func(e saga.Event[shipped]) (string, tell) { return e.Stream.ID, tell{} }),
		saga.WhenEach(func(e saga.Event[orderPlaced], send func(string, any)) {
			for range e.Payload.Cents {
				send("", invoice{})
			}
		}))
	sagatest.For(t, d).In("order-812").When(shipped{}).ThenSendsTo("812", tell{}).
		When(orderPlaced{"ada", 2}).ThenSends(invoice{}, invoice{}).
		When(orderPlaced{"ada", 0}).ThenNothing()
	parts, err := d.Parts()
	if err != nil {
		t.Fatal(err)
	}
	in := event(t, orderPlaced{"ada", 2})
	commands, err := parts.Reactor.Commands(t.Context(), plain{}, in.Event, in.Payload)
	if err != nil || len(commands) != 2 || commands[1].ID != flow.ReactorCommandID("thanks", in.Event.ID, 1) || commands[0].ID == commands[1].ID {
		t.Errorf("%v, %+v", err, commands)
	}
	if _, err := parts.Reactor.Commands(t.Context(), plain{errors.New("unknown")}, in.Event, in.Payload); err == nil {
		t.Error("a command that the bus does not know is sent")
	}
}
