package account_test

import (
	"testing"

	"github.com/govalues/decimal"

	"github.com/daybook-go/daybook/aggregate/aggregatetest"
	"github.com/daybook-go/daybook/examples/ledger/account"
	"github.com/daybook-go/daybook/examples/ledger/journal"
)

var may = journal.Date{Year: 2025, Month: 5, Day: 31}

func euros(amount string) account.Post {
	return account.Post{
		Entry: "e1", Date: may, Description: "Market", Amount: decimal.MustParse(amount), Commodity: "EUR",
	}
}

func posted(amount string) account.Posted { return account.Posted(euros(amount)) }

func TestOpen(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		When(account.Open{NeverBelowZero: true}.Decide).
		Then(account.Opened{NeverBelowZero: true}).
		When(account.Open{NeverBelowZero: true}.Decide).
		Then().
		When(account.Open{}.Decide).
		ThenError(account.ErrOtherTerms)
}

func TestPostNeedsAnOpenAccount(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		When(euros("1.00").Decide).
		ThenError(account.ErrNotOpen)
}

func TestPostKeepsTheDigits(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		Given(account.Opened{}, posted("1.5")).
		When(euros("-2.250").Decide).
		Then(posted("-2.250")).
		ThenState(account.Account{Open: true, Holdings: map[string]account.Holding{
			"EUR": {Balance: decimal.MustParse("-0.750"), Turnover: decimal.MustParse("3.750")},
		}})
}

func TestZeroIsAPosting(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		Given(account.Opened{NeverBelowZero: true}).
		When(euros("0.00").Decide).
		Then(posted("0.00"))
}

func TestNeverBelowZero(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		Given(account.Opened{NeverBelowZero: true}, posted("10.00")).
		When(euros("-10.01").Decide).
		ThenError(account.ErrBelowZero).
		When(euros("-10.00").Decide).
		Then(posted("-10.00")).
		When(euros("-0.01").Decide).
		ThenError(account.ErrBelowZero)
}

func TestNeverBelowZeroHoldsForEachCommodity(t *testing.T) {
	t.Parallel()
	dollars := euros("-1")
	dollars.Commodity = "USD"
	aggregatetest.For(t, account.Type).
		Given(account.Opened{NeverBelowZero: true}, posted("10.00")).
		When(dollars.Decide).
		ThenError(account.ErrBelowZero)
}

func TestChangeTerms(t *testing.T) {
	t.Parallel()
	aggregatetest.For(t, account.Type).
		When(account.ChangeTerms{NeverBelowZero: true}.Decide).
		ThenError(account.ErrNotOpen)
	aggregatetest.For(t, account.Type).
		Given(account.Opened{}, posted("-1.00")).
		When(account.ChangeTerms{NeverBelowZero: true}.Decide).
		ThenError(account.ErrBelowZero).
		When(euros("1.00").Decide).
		Then(posted("1.00")).
		When(account.ChangeTerms{NeverBelowZero: true}.Decide).
		Then(account.TermsChanged{NeverBelowZero: true}).
		When(account.ChangeTerms{NeverBelowZero: true}.Decide).
		Then().
		When(euros("-0.01").Decide).
		ThenError(account.ErrBelowZero).
		When(account.ChangeTerms{}.Decide).
		Then(account.TermsChanged{}).
		When(euros("-0.01").Decide).
		Then(posted("-0.01"))
}

func TestSumsStayExact(t *testing.T) {
	t.Parallel()
	most := "9999999999999999999" // 19 digits
	aggregatetest.For(t, account.Type).
		Given(account.Opened{}, posted(most)).
		When(euros("1").Decide).
		ThenError(account.ErrTooManyDigits).
		// The balance would fit. What was paid in on one day and out on another would not be a sum that fits.
		When(euros("-1").Decide).
		ThenError(account.ErrTooManyDigits).
		When(euros("0").Decide).
		Then(posted("0")).
		When(euros("0.5").Decide).
		ThenError(account.ErrTooManyDigits)
}
