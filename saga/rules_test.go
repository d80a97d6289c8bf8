package saga_test

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

// ordered is a scenario of an order that was placed.
func ordered(t *testing.T, d saga.Definition) *sagatest.Scenario {
	t.Helper()
	return sagatest.For(t, d).In("order-812").Given(orderPlaced{"ada", 500})
}

// paying is one of which the stock is reserved and the payment was asked for.
func paying(t *testing.T, d saga.Definition) *sagatest.Scenario {
	t.Helper()
	return ordered(t, d).Given(stockReserved{"s1"})
}

// delivering is one that waits for the carrier.
func delivering(t *testing.T, d saga.Definition) *sagatest.Scenario {
	t.Helper()
	return paying(t, d).Given(paymentTaken{"812", "r1"})
}

func TestEverythingIsDone(t *testing.T) {
	t.Parallel()
	ordered(t, checkoutDefinition).
		ThenAwaits("an answer to reserve-stock (reserveStock to 812)").
		When(stockReserved{"s1"}).ThenSends(takePayment{"812", 500}).
		When(paymentTaken{"812", "r1"}).ThenSendsTo("812", handOver{}).
		When(shipped{}).ThenSends(invoice{}, tell{}).
		When(told{}).ThenNothing().
		When(invoiced{}).ThenSends(confirm{}).ThenRunning().
		ThenCompleted().
		ThenState(shop{Order: "812", Account: "ada", Shelf: "s1", Receipt: "r1", Cents: 500, Starts: 1})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ordered(t, checkoutDefinition).When(stockRejected{}).ThenSends(cancelOrder{"compensated"}).ThenCompensated()
	paying(t, checkoutDefinition).When(paymentDeclined{}).ThenCompensates("reserve-stock").ThenCompensated()
	delivering(t, checkoutDefinition).When(noCarrier{}).ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	for _, state := range []saga.ReplyState{saga.ReplyRefused, saga.ReplyExpired} {
		delivering(t, checkoutDefinition).WhenReply("hand-over", state, "closed on sundays").
			ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	}
	// Behind the pivot nothing goes back.
	delivering(t, checkoutDefinition).Given(shipped{}, told{}).
		WhenReply("invoice", saga.ReplyRefused, "no address").ThenStuck("dead_letter").ThenNothing().
		When(invoiced{}).ThenSends(confirm{}).ThenCompleted()
}

func TestRepliesThatSayNothingNew(t *testing.T) {
	t.Parallel()
	paying(t, checkoutDefinition).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().ThenRunning().
		When(paymentTaken{"812", "r1"}).ThenSends(handOver{}).
		WhenReply("take-payment", saga.ReplyRefused).ThenNothing().ThenRunning().
		WhenCausedBy("take-payment", paymentDeclined{}).ThenNothing().ThenRunning().
		When(paymentTaken{"812", "r2"}).ThenNothing().
		ThenState(shop{Order: "812", Account: "ada", Shelf: "s1", Receipt: "r1", Cents: 500, Starts: 1}).
		When(orderPlaced{"bob", 1}).ThenNothing().ThenRunning()
}

func TestSuccessByReply(t *testing.T) {
	t.Parallel()
	d := changed(func(p *saga.Process[shop]) { p.Steps[0].Succeeded, p.Steps[0].Refused = nil, nil })
	ordered(t, d).WhenReply("reserve-stock", saga.ReplyDone).ThenSends(takePayment{"812", 500}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenNothing()
	// Somebody was hasty: it was under way. It is undone, also after the end, and once.
	ordered(t, d).WhenOperator(sagatest.Refuse, "reserve-stock").ThenSends(cancelOrder{"compensated"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenSends(releaseStock{}).
		WhenReply("compensated", saga.ReplyDone).ThenNothing()
	ordered(t, d).WhenOperator(sagatest.Refuse, "reserve-stock").ThenCompensated().
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensates("reserve-stock").ThenCompensated()
}

func TestRetries(t *testing.T) {
	t.Parallel()
	s := paying(t, checkoutDefinition).
		When(paymentBusy{}).ThenNothing().ThenAwaits("the next attempt of take-payment").
		WhenTimer("take-payment/retry").ThenSends(takePayment{"812", 500}).
		When(paymentBusy{}).ThenNothing().
		After(time.Minute).ThenSends(takePayment{"812", 500})
	s.When(paymentBusy{}).ThenCompensates("reserve-stock").ThenCompensated()
	// A step that is tried again may still be answered.
	paying(t, checkoutDefinition).When(paymentBusy{}).ThenNothing().When(paymentTaken{"812", "r1"}).ThenSends(handOver{}).
		After(time.Hour).ThenNothing()
	// Its deadline counts from the beginning, and makes the outcome unknown.
	s = paying(t, checkoutDefinition).After(15*time.Minute - 1).ThenNothing().When(paymentBusy{}).ThenNothing()
	s.WhenDeadline("take-payment").ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	// For ever.
	s = delivering(t, checkoutDefinition).Given(shipped{}, told{})
	for range 20 {
		s.When(invoiceFailed{}).ThenNothing().After(time.Minute).ThenSends(invoice{})
	}
	s.When(invoiced{}).ThenCompleted()
}

func TestGivenUpByTheDispatcher(t *testing.T) {
	t.Parallel()
	// Outside nobody knows: it is undone before it is tried again.
	paying(t, checkoutDefinition).
		WhenReply("take-payment", saga.ReplyFailed, "timeout").ThenSends(refund{}).ThenRunning().ThenAwaits("take-payment to be undone").
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		After(time.Minute).ThenSends(takePayment{"812", 500}).
		When(paymentTaken{"812", "r2"}).ThenSends(handOver{}).ThenRunning()
	// Without attempts left it compensates, and undoes the step itself first.
	ordered(t, checkoutDefinition).WhenReply("reserve-stock", saga.ReplyFailed).ThenCompensates("reserve-stock").ThenCompensated()
	// With nothing to undo it is as if it had failed.
	d := changed(func(p *saga.Process[shop]) {
		p.Steps[1].Undo, p.Steps[1].NothingToUndo, p.Steps[1].Deadline = saga.Command[shop]{}, "only asks", 0
	})
	paying(t, d).WhenReply("take-payment", saga.ReplyFailed).ThenNothing().After(time.Minute).ThenSends(takePayment{"812", 500})
	// The pivot has no way back: people decide.
	delivering(t, checkoutDefinition).WhenReply("hand-over", saga.ReplyFailed, "timeout").ThenStuck("dead_letter").ThenNothing().
		WhenOperator(sagatest.Retry, "hand-over").ThenSends(handOver{}).ThenRunning()
	delivering(t, checkoutDefinition).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
		WhenOperator(sagatest.Refuse, "hand-over").ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	// An answer that comes after all decides for them, and is noted.
	delivering(t, checkoutDefinition).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
		When(noCarrier{}).ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	delivering(t, checkoutDefinition).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
		When(shipped{}).ThenSends(invoice{}, tell{}).ThenRunning()
	again := changed(func(p *saga.Process[shop]) {
		p.Steps[2].Failed, p.Steps[2].Retry = answers{saga.On(same[invoiceFailed])}, saga.Retry{Attempts: 2}
	})
	delivering(t, again).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
		When(invoiceFailed{}).ThenNothing().ThenRunning().ThenAwaits("the next attempt of hand-over").
		After(time.Minute).ThenSends(handOver{}).WhenReply("hand-over", saga.ReplyFailed).ThenStuck("dead_letter").
		When(invoiceFailed{}).ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	// Behind the pivot, for ever.
	delivering(t, checkoutDefinition).Given(shipped{}, told{}).WhenReply("invoice", saga.ReplyFailed).ThenNothing().
		After(time.Minute).ThenSends(invoice{})
	once := changed(func(p *saga.Process[shop]) { p.Steps[3].Together[0].Retry = saga.Retry{} })
	delivering(t, once).Given(shipped{}, told{}).WhenReply("invoice", saga.ReplyFailed, "no").ThenStuck("dead_letter").
		WhenOperator(sagatest.Retry, "invoice").ThenSends(invoice{}).ThenRunning().When(invoiced{}).ThenCompleted()
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	ordered(t, checkoutDefinition).WhenDeadline("reserve-stock").ThenCompensates("reserve-stock").ThenCompensated()
	paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	// One that comes while its step is being undone, so as to be tried again, ends the attempts.
	paying(t, checkoutDefinition).WhenReply("take-payment", saga.ReplyFailed).ThenSends(refund{}).
		WhenDeadline("take-payment").ThenNothing().
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
	// Behind the pivot the step is undone, and tried again as far as it may be.
	d := changed(func(p *saga.Process[shop]) {
		s := &p.Steps[3].Together[0]
		s.Deadline, s.Undo, s.Retry = time.Minute, saga.Send(shop.refund), saga.Retry{Attempts: 2}
	})
	delivering(t, d).Given(shipped{}, told{}).
		WhenDeadline("invoice").ThenSends(refund{"r1"}).ThenRunning().
		WhenReply("invoice", saga.ReplyDone).ThenNothing().
		After(time.Second).ThenSends(invoice{}).
		WhenDeadline("invoice").ThenSends(refund{"r1"}).
		WhenReply("invoice", saga.ReplyDone).ThenStuck("reply_overdue").
		WhenOperator(sagatest.Answer, "invoice").ThenSends(confirm{}).ThenCompleted()
}

func TestTimersThatCameTooLate(t *testing.T) {
	t.Parallel()
	// Nothing that is left of a step fires after it.
	delivering(t, checkoutDefinition).After(24 * time.Hour).ThenNothing().ThenRunning()
	ordered(t, checkoutDefinition).When(stockRejected{}).ThenCompensated().After(24 * time.Hour).ThenNothing().ThenCompensated()
}

func TestSkipped(t *testing.T) {
	t.Parallel()
	free := changed(func(p *saga.Process[shop]) {
		p.Steps[1].If = func(s shop) bool { return s.Cents > 0 }
		p.Steps[3].If = func(s shop) bool { return s.Account == "ada" }
		p.Steps[3].Together[0].If = func(s shop) bool { return s.Cents > 0 }
	})
	sagatest.For(t, free).Given(orderPlaced{"ada", 0}).
		When(stockReserved{"s1"}).ThenSends(handOver{}).
		When(shipped{}).ThenSends(tell{}).When(told{}).ThenSends(confirm{}).ThenCompleted()
	sagatest.For(t, free).Given(orderPlaced{"bob", 0}, stockReserved{"s1"}).
		When(shipped{}).ThenSends(confirm{}).ThenCompleted()
	sagatest.For(t, free).Given(orderPlaced{"bob", 0}, stockReserved{"s1"}).
		When(noCarrier{}).ThenCompensates("reserve-stock").ThenCompensated()
}

func TestAnswersBeforeTheirStep(t *testing.T) {
	t.Parallel()
	ordered(t, checkoutDefinition).
		WhenKeyed(paymentTaken{"812", "r1"}).ThenNothing().
		WhenKeyed(paymentTaken{"812", "r2"}).ThenNothing().
		When(stockReserved{"s1"}).ThenSends(handOver{}).
		ThenState(shop{Order: "812", Account: "ada", Shelf: "s1", Receipt: "r1", Cents: 500, Starts: 1}).
		When(noCarrier{}).ThenCompensates("take-payment", "reserve-stock").ThenCompensated()
	// It is undone also when the saga never comes so far, before and after it turned around.
	ordered(t, checkoutDefinition).WhenKeyed(paymentTaken{"812", "r1"}).ThenNothing().
		When(stockRejected{}).ThenSends(refund{"r1"}).WhenReply("take-payment", saga.ReplyDone).ThenCompensated()
	ordered(t, checkoutDefinition).When(stockRejected{}).ThenSends(cancelOrder{"compensated"}).
		WhenKeyed(paymentTaken{"812", "r1"}).ThenCompensates("take-payment").ThenCompensated().
		WhenKeyed(paymentTaken{"812", "r1"}).ThenSends(refund{"r1"}).WhenReply("take-payment", saga.ReplyDone).ThenCompensated()
	// A step that is left out has no answer.
	free := changed(func(p *saga.Process[shop]) { p.Steps[1].If = func(s shop) bool { return false } })
	ordered(t, free).WhenKeyed(paymentTaken{"812", "r1"}).ThenNothing().When(stockReserved{"s1"}).ThenSends(handOver{}).
		ThenState(shop{Order: "812", Account: "ada", Shelf: "s1", Cents: 500, Starts: 1})
}

func TestRunsOfAKey(t *testing.T) {
	t.Parallel()
	d := changed(func(p *saga.Process[shop]) {
		again := saga.KeyOf(func(e saga.Event[orderAgain]) string { return e.Payload.Order })
		p.Start = saga.StartOnAny(p.Start, saga.StartOnKey(func(e saga.Event[orderAgain]) shop { return shop{Order: e.Payload.Order} }, again))
	})
	ordered(t, d).When(orderAgain{"812"}).ThenNothing().When(stockRejected{}).ThenCompensated().
		When(orderAgain{"812"}).ThenSends(reserveStock{}).ThenState(shop{Order: "812"})
}

func TestLastCommand(t *testing.T) {
	t.Parallel()
	toEnd := func() *sagatest.Scenario {
		return delivering(t, checkoutDefinition).Given(shipped{}, told{}, invoiced{})
	}
	toEnd().WhenReply("completed", saga.ReplyFailed).ThenNothing().After(time.Minute).ThenSends(confirm{}).
		WhenReply("completed", saga.ReplyExpired).ThenNothing().WhenOperator(sagatest.Retry, "").ThenSends(confirm{}).
		WhenReply("completed", saga.ReplyDone).ThenCompleted()
	toEnd().WhenReply("completed", saga.ReplyRefused, "no").ThenStuck("dead_letter").ThenAwaits("somebody to decide").
		WhenOperator(sagatest.Retry, "completed").ThenSends(confirm{}).ThenRunning().WhenReply("completed", saga.ReplyRefused).
		WhenOperator(sagatest.Answer, "completed").ThenCompleted()
	toEnd().WhenOperator(sagatest.Retry, "").ThenSends(confirm{}).ThenCompleted()
	none := changed(func(p *saga.Process[shop]) { p.Completed, p.Compensated = saga.Command[shop]{}, saga.Command[shop]{} })
	delivering(t, none).Given(shipped{}, told{}).When(invoiced{}).ThenNothing().ThenCompleted()
	ordered(t, none).When(stockRejected{}).ThenNothing().ThenCompensated()
}
