package payment_test

import (
	"testing"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/checkout/payment"
)

var (
	taken    = payment.Taken{Order: "7", Charge: "c1", Receipt: "r1", Cents: 500}
	refunded = payment.Refunded{Charge: "c1", Cents: 500}
)

func TestSettledOnce(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, payment.Type).
		When(payment.Request{Charge: "c1", Cents: 500}.Decide).Then(payment.Requested{Charge: "c1", Cents: 500}).
		When(payment.Settle(taken).Decide).Then(taken).
		When(payment.Settle(taken).Decide).Then().
		When(payment.Settle{Order: "7", Charge: "c1", Cents: 501}.Decide).ThenError(payment.ErrAmount).
		When(payment.Settle{Order: "7", Charge: "c2", Cents: 500}.Decide).Then(payment.Taken{Order: "7", Charge: "c2", Cents: 500}).
		ThenState(payment.Payment{Charges: map[string]payment.Charge{"c1": {Taken: 500}, "c2": {Taken: 500}}})
}

func TestRefundedOnce(t *testing.T) {
	t.Parallel()
	s := aggregatetest.For(t, payment.Type).Given(taken).
		When(payment.GiveBack(refunded).Decide).Then(refunded).
		When(payment.GiveBack(refunded).Decide).Then()
	if held := s.State().Held(); held != 0 {
		t.Errorf("%d cents are held", held)
	}
}

// The provider may tell late that it took what it has given back since.
func TestRefundedBeforeItIsTold(t *testing.T) {
	t.Parallel()
	s := aggregatetest.For(t, payment.Type).
		When(payment.GiveBack(refunded).Decide).Then(refunded).
		When(payment.Settle(taken).Decide).Then(taken)
	if held := s.State().Held(); held != 0 {
		t.Errorf("%d cents are held", held)
	}
}

func TestNothingToGiveBack(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, payment.Type).
		When(payment.GiveBack{Charge: "c1"}.Decide).Then().
		When(payment.Decline{Charge: "c1", Reason: "no money"}.Decide).Then(payment.Declined{Charge: "c1", Reason: "no money"}).
		When(payment.Postpone{Charge: "c2", Reason: "busy"}.Decide).Then(payment.Postponed{Charge: "c2", Reason: "busy"}).
		When(payment.Abandon{}.Decide).ThenError(payment.ErrVoid).
		ThenState(payment.Payment{})
}
