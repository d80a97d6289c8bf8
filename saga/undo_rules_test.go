package saga_test

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/saga"
	"github.com/daybook-go/daybook/saga/sagatest"
)

// refusing is an order that is being undone: the refund was sent.
func refusing(t *testing.T, d saga.Definition) *sagatest.Scenario {
	t.Helper()
	return delivering(t, d).When(noCarrier{}).ThenSends(refund{"r1"})
}

func TestUndoingIsTriedAgain(t *testing.T) {
	t.Parallel()
	// The one before never begins while this one is not confirmed.
	refusing(t, checkoutDefinition).
		WhenReply("take-payment", saga.ReplyFailed).ThenNothing().ThenAwaits("the next attempt to undo take-payment").
		WhenTimer("take-payment/undo").ThenSends(refund{"r1"}).
		WhenReply("take-payment", saga.ReplyExpired).ThenNothing().
		After(time.Minute).ThenSends(refund{"r1"}).
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
}

func TestUndoingFails(t *testing.T) {
	t.Parallel()
	s := refusing(t, checkoutDefinition)
	for range 4 {
		s.WhenReply("take-payment", saga.ReplyFailed).ThenNothing().After(time.Minute).ThenSends(refund{"r1"})
	}
	s.WhenReply("take-payment", saga.ReplyFailed, "away").ThenStuck("compensation_failed").ThenNothing().
		After(24*time.Hour).ThenNothing().
		WhenOperator(sagatest.Retry, "").ThenSends(refund{"r1"}).
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
	// Refused: at once, and never called compensated.
	refusing(t, checkoutDefinition).WhenReply("take-payment", saga.ReplyRefused, "paid out already").ThenStuck("compensation_failed").
		ThenNothing().WhenOperator(sagatest.Mark, "take-payment").ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
	never := changed(func(p *saga.Process[shop]) { p.UndoRetry = saga.Retry{Forever: true} })
	s = refusing(t, never)
	for range 30 {
		s.WhenReply("take-payment", saga.ReplyFailed).ThenNothing().After(time.Minute).ThenSends(refund{"r1"})
	}
}

// What the receiver says of a refusal is said once.
func TestWordsOfRefusedUndos(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"": "undoing was refused: paid out", "closed": "undoing was refused (closed): paid out"} {
		m, i, _ := started(t, checkoutDefinition)
		react := func(in flow.Input) {
			in.Now = noon
			if _, err := m.React(t.Context(), plain{}, i, in); err != nil {
				t.Fatal(err)
			}
		}
		react(flow.Input{Timer: "reserve-stock/deadline"})
		react(flow.Input{
			Origin: flow.Origin{Step: "reserve-stock", Direction: flow.Undo, Intent: 1},
			Reply:  &flow.Reply{State: flow.ReplyRefused, Code: code, Reason: "paid out"},
		})
		if got := i.Stuck; got.Reason != flow.CompensationFailed || got.Text != want {
			t.Errorf("it is stuck: %q: %q", got.Reason, got.Text)
		}
	}
}

func TestUndoingIsLate(t *testing.T) {
	t.Parallel()
	refusing(t, checkoutDefinition).WhenDeadline("take-payment").ThenStuck("reply_overdue").ThenNothing().
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
	refusing(t, checkoutDefinition).After(time.Hour).ThenStuck("reply_overdue").
		WhenOperator(sagatest.Retry, "take-payment").ThenSends(refund{"r1"}).
		After(time.Hour).ThenStuck("reply_overdue").
		WhenOperator(sagatest.Mark, "").ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
}

func TestLateAnswers(t *testing.T) {
	t.Parallel()
	late := paymentTaken{"812", "late"}
	// While it is being undone: once more, after the one that is under way.
	paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenSends(refund{}).
		When(late).ThenNothing().
		WhenReply("take-payment", saga.ReplyDone).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		WhenReply("reserve-stock", saga.ReplyDone).ThenCompensated()
	// Between two attempts to undo it.
	paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenSends(refund{}).
		WhenReply("take-payment", saga.ReplyFailed).ThenNothing().
		When(late).ThenNothing().After(time.Minute).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenCompensates("reserve-stock").ThenCompensated()
	// While an earlier one is being undone: one undo at a time.
	paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenSends(refund{}).
		WhenReply("take-payment", saga.ReplyDone).ThenSends(releaseStock{"s1"}).
		When(late).ThenNothing().
		WhenReply("reserve-stock", saga.ReplyDone).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenSends(cancelOrder{"compensated"}).ThenCompensated()
	// While the last command is under way, before and after its reply: it is sent once.
	end := func() *sagatest.Scenario {
		return paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenCompensates("take-payment", "reserve-stock")
	}
	end().When(late).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		WhenReply("compensated", saga.ReplyDone).ThenCompensated()
	end().When(late).ThenSends(refund{"late"}).
		WhenReply("compensated", saga.ReplyDone).ThenNothing().ThenAwaits("take-payment to be undone").
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().ThenCompensated()
	// After the end.
	end().ThenCompensated().When(late).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().ThenCompensated()
	// Of a step that was refused.
	paying(t, checkoutDefinition).When(paymentDeclined{}).ThenSends(releaseStock{"s1"}).
		When(late).ThenNothing().
		WhenReply("reserve-stock", saga.ReplyDone).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenCompensated()
	// A refusal that comes late says nothing new.
	paying(t, checkoutDefinition).WhenDeadline("take-payment").ThenSends(refund{}).
		When(paymentDeclined{}).ThenNothing().
		WhenReply("take-payment", saga.ReplyDone).ThenCompensates("reserve-stock").ThenCompensated().
		When(paymentDeclined{}).ThenNothing().ThenCompensated()
}

func TestLateAnswersOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	d := changed(func(p *saga.Process[shop]) { p.Steps[1].Succeeded = answers{saga.On(shop.paid)} })
	late := paymentTaken{"812", "late"}
	given := func() *sagatest.Scenario {
		return paying(t, d).WhenReply("take-payment", saga.ReplyFailed).ThenSends(refund{})
	}
	// While it is being undone, so as to be tried again.
	given().When(late).ThenNothing().
		WhenReply("take-payment", saga.ReplyDone).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		After(time.Minute).ThenSends(takePayment{"812", 500}).When(paymentTaken{"812", "r2"}).ThenSends(handOver{})
	// In the pause after that.
	given().WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		When(late).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		After(time.Minute).ThenSends(takePayment{"812", 500})
	// While the next attempt is under way, and when it is done: the state stays that of the attempt that counts.
	given().WhenReply("take-payment", saga.ReplyDone).ThenNothing().
		After(time.Minute).ThenSends(takePayment{"812", 500}).
		WhenCausedByAttempt("take-payment", 1, late).ThenSends(refund{"late"}).
		When(paymentTaken{"812", "r2"}).ThenSends(handOver{}).
		WhenCausedByAttempt("take-payment", 1, late).ThenSends(refund{"late"}).
		When(noCarrier{}).ThenSends(refund{"r2"}).
		WhenCausedByAttempt("take-payment", 1, late).ThenSends(refund{"late"}).
		WhenReply("take-payment", saga.ReplyDone).ThenCompensates("reserve-stock").ThenCompensated()
}

// three is a process with a group of three before its last step.
func three() saga.Definition {
	return changed(func(p *saga.Process[shop]) {
		member := func(name string) saga.Step[shop] {
			return saga.Step[shop]{
				Name: name, Send: saga.Send(shop.tell), Undo: saga.Send(shop.refund), Succeeded: answers{saga.On(same[told])},
				Refused: answers{saga.On(same[noCarrier])}, Failed: answers{saga.On(same[paymentBusy])},
				Retry: saga.Retry{Attempts: 2}, Deadline: time.Minute,
			}
		}
		p.Steps = steps{p.Steps[0], {Name: "all", Together: steps{member("a"), member("b"), member("c")}}, p.Steps[2]}
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	given := func() *sagatest.Scenario {
		return ordered(t, three()).When(stockReserved{"s1"}).ThenSends(tell{}, tell{}, tell{}).
			WhenCausedBy("b", told{}).ThenNothing()
	}
	given().WhenCausedBy("c", told{}).ThenNothing().WhenCausedBy("a", told{}).ThenSends(handOver{}).
		WhenReply("hand-over", saga.ReplyRefused).ThenCompensates("a", "c", "b", "reserve-stock").ThenCompensated()
	// One is refused: what waits is undone as by a deadline, then what was done, then what was before.
	given().WhenCausedBy("a", noCarrier{}).ThenCompensates("c", "b", "reserve-stock").ThenCompensated()
	given().WhenCausedBy("a", noCarrier{}).ThenSends(refund{}).WhenOperatorIsRefused(sagatest.Mark, "all", "name one of c").
		WhenOperator(sagatest.Mark, "").ThenCompensates("b", "reserve-stock").ThenCompensated()
	// The one whose deadline has passed comes first.
	given().WhenDeadline("a").ThenCompensates("a", "c", "b", "reserve-stock").ThenCompensated()
	// What waits may still be answered, and is undone in its turn, or not when it was not done.
	given().WhenDeadline("a").ThenSends(refund{}).WhenCausedBy("c", told{}).ThenNothing().
		WhenReply("a", saga.ReplyDone).ThenCompensates("c", "b", "reserve-stock").ThenCompensated()
	for _, no := range []any{noCarrier{}, paymentBusy{}} {
		given().WhenDeadline("a").ThenSends(refund{}).WhenCausedBy("c", no).ThenNothing().
			WhenReply("a", saga.ReplyDone).ThenCompensates("b", "reserve-stock").ThenCompensated()
	}
	given().WhenDeadline("a").ThenSends(refund{}).WhenReply("c", saga.ReplyFailed).ThenNothing().
		WhenReply("a", saga.ReplyDone).ThenCompensates("c", "b", "reserve-stock").ThenCompensated()
	// What is about to be tried again is not done.
	given().WhenCausedBy("c", paymentBusy{}).ThenNothing().WhenCausedBy("a", noCarrier{}).
		ThenCompensates("b", "reserve-stock").ThenCompensated()
	// What is being undone so as to be tried again is undone first, and not tried again.
	given().WhenReply("c", saga.ReplyFailed).ThenSends(refund{}).WhenCausedBy("a", noCarrier{}).ThenNothing().
		WhenReply("c", saga.ReplyDone).ThenCompensates("b", "reserve-stock").ThenCompensated()
}

func TestNothingToUndo(t *testing.T) {
	t.Parallel()
	d := changed(func(p *saga.Process[shop]) {
		p.Steps[1].Undo, p.Steps[1].NothingToUndo, p.Steps[1].Deadline = saga.Command[shop]{}, "only asks", 0
	})
	delivering(t, d).When(noCarrier{}).ThenCompensates("reserve-stock").ThenCompensated()
	paying(t, d).WhenOperator(sagatest.Cancel, "").ThenCompensates("reserve-stock").ThenCompensated().
		When(paymentTaken{"812", "late"}).ThenNothing().ThenCompensated()
}

func TestOperators(t *testing.T) {
	t.Parallel()
	// The stored bytes under the same id.
	paying(t, checkoutDefinition).WhenOperator(sagatest.Retry, "").ThenSends(takePayment{"812", 500}).
		When(paymentBusy{}).ThenNothing().WhenOperator(sagatest.Retry, "take-payment").ThenSends(takePayment{"812", 500}).
		WhenOperator(sagatest.Answer, "take-payment").ThenSends(handOver{})
}
