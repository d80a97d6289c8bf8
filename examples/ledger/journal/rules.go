package journal

import (
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/govalues/decimal"
)

// The rules of an entry, by the names a [RuleError] carries. The names are
// stable; programs may compare them.
const (
	// RulePostings: an entry has at least one posting. One is enough when it
	// is zero, as hledger prints an entry that only asserts a balance.
	RulePostings = "has-postings"
	// RuleAccount: an account has a name of at most MaxAccount bytes, without
	// space around it.
	RuleAccount = "account-name"
	// RuleText: description, account and commodity are UTF-8 without control
	// characters.
	RuleText = "plain-text"
	// RuleZeroSum: the postings of an entry in one commodity sum to exactly
	// zero.
	RuleZeroSum = "zero-sum"
	// RuleBothSides: an entry that mixes commodities has at least one posting
	// above zero and at least one below. Its commodities need not sum to zero
	// each: it may exchange one for another, at a price the rows do not carry.
	RuleBothSides = "both-sides"
)

// MaxAccount is the longest name of an account, in bytes.
const MaxAccount = 400

// Check returns a [*RuleError] for the first rule that the entry breaks, or
// nil. It is a pure function. A posting of zero is accepted and counts for no
// rule about amounts.
func Check(e Entry) error {
	if len(e.Postings) == 0 {
		return &RuleError{Rule: RulePostings, Line: e.Line, Field: "postings", Detail: "the entry has no posting", Remedy: "add its postings or remove it"}
	}
	if err := checkText("description", e.Description, e.Line); err != nil {
		return err
	}
	for _, p := range e.Postings {
		if err := checkAccount(p); err != nil {
			return err
		}
		if err := checkText("commodity", p.Commodity, p.Line); err != nil {
			return err
		}
	}
	if e.Mixed() {
		return checkBothSides(e)
	}
	return checkZeroSum(e)
}

// CheckAccount returns a [*RuleError] for a name that no account can have, or nil.
func CheckAccount(name string) error { return checkAccount(Posting{Account: name}) }

func checkAccount(p Posting) error {
	fault := ""
	switch {
	case strings.TrimSpace(p.Account) == "":
		fault = "the account has no name"
	case len(p.Account) > MaxAccount:
		fault = fmt.Sprintf("the account name \"%s\" has %d bytes", show(p.Account), len(p.Account))
	case strings.TrimSpace(p.Account) != p.Account:
		fault = fmt.Sprintf("the account name \"%s\" has space around it", show(p.Account))
	default:
		return checkText("account", p.Account, p.Line)
	}
	return &RuleError{Rule: RuleAccount, Line: p.Line, Field: "account", Value: show(p.Account), Detail: fault,
		Remedy: fmt.Sprintf("give the account a name of 1 to %d bytes, such as assets:bank", MaxAccount)}
}

func checkText(field, s string, line int) error {
	if utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return nil
	}
	return &RuleError{Rule: RuleText, Line: line, Field: field, Value: show(s),
		Detail: fmt.Sprintf("the %s \"%s\" has a control character or is not UTF-8", field, show(s)),
		Remedy: "write it as one line of plain text"}
}

func checkZeroSum(e Entry) error {
	sum, commodity := new(big.Int), ""
	for _, p := range e.Postings {
		if !p.Amount.IsZero() {
			commodity = p.Commodity
		}
		sum.Add(sum, units(p.Amount))
	}
	if sum.Sign() == 0 {
		return nil
	}
	total := strings.TrimSpace(fromUnits(sum) + " " + show(commodity))
	return &RuleError{Rule: RuleZeroSum, Line: e.Line, Field: "postings", Value: total,
		Detail: fmt.Sprintf("the %d postings sum to %s", len(e.Postings), total),
		Remedy: "correct an amount or add the missing posting, so that they sum to zero"}
}

func checkBothSides(e Entry) error {
	above, below := 0, 0
	for _, p := range e.Postings {
		switch p.Amount.Sign() {
		case 1:
			above++
		case -1:
			below++
		}
	}
	if above > 0 && below > 0 {
		return nil
	}
	missing := "below"
	if above == 0 {
		missing = "above"
	}
	return &RuleError{Rule: RuleBothSides, Line: e.Line, Field: "postings",
		Detail: "the entry mixes commodities and no posting is " + missing + " zero",
		Remedy: "add the posting of the other side: what was given for what was received"}
}

// units is the amount as a whole number of 10^-19. Sums of those are exact and
// have no limit on the way, so the order of the postings cannot matter.
func units(d decimal.Decimal) *big.Int {
	n := new(big.Int).SetUint64(d.Coef())
	n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimal.MaxScale-d.Scale())), nil))
	if d.IsNeg() {
		n.Neg(n)
	}
	return n
}

func fromUnits(n *big.Int) string {
	digits := fmt.Sprintf("%0*s", decimal.MaxScale+1, new(big.Int).Abs(n).String())
	whole, fraction := digits[:len(digits)-decimal.MaxScale], strings.TrimRight(digits[len(digits)-decimal.MaxScale:], "0")
	if fraction != "" {
		whole += "." + fraction
	}
	if n.Sign() < 0 {
		return "-" + whole
	}
	return whole
}
