package journal

import (
	"errors"
	"fmt"
	"strings"

	"github.com/govalues/decimal"
)

var (
	errNotPlain = errors.New("journal: parse amount: not a plain number")
	errDigits   = fmt.Errorf("journal: parse amount: more than %d digits", decimal.MaxPrec)
)

// ParseAmount reads digits with at most one point between them and an optional
// minus sign. It refuses exponents, separators of thousands, a plus sign,
// spaces, and what does not fit into 19 digits; it never rounds. Digits behind
// the point are kept, except zeros for which there is no room.
func ParseAmount(s string) (decimal.Decimal, error) {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if !allDigits(whole) || point && !allDigits(fraction) {
		return decimal.Decimal{}, errNotPlain
	}
	if d, err := decimal.ParseExact(s, len(fraction)); err == nil {
		return d, nil
	}
	// The library rounds what is too long unless it is told the scale, so the
	// scale asked for is always the number of digits that carry a value.
	fraction = strings.TrimRight(fraction, "0")
	text := whole
	if fraction != "" {
		text += "." + fraction
	}
	if strings.HasPrefix(s, "-") {
		text = "-" + text
	}
	d, err := decimal.ParseExact(text, len(fraction))
	if err != nil {
		return decimal.Decimal{}, errDigits
	}
	return d, nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// CanonicalAmount is the one text of a value: 5, 5.0 and 5.00 are all "5", and
// zero has no sign.
func CanonicalAmount(d decimal.Decimal) string {
	return d.Trim(0).String()
}

// Add is the exact sum, with as many digits behind the point as the longer
// summand has where there is room. Where the sum does not fit into 19 digits it
// is an error: decimal.Decimal.Add would round there and say nothing.
func Add(a, b decimal.Decimal) (decimal.Decimal, error) {
	sum, err := a.AddExact(b, max(a.Scale(), b.Scale()))
	if err == nil {
		return sum, nil
	}
	a, b = a.Trim(0), b.Trim(0)
	sum, err = a.AddExact(b, max(a.Scale(), b.Scale()))
	if err != nil {
		return decimal.Decimal{}, fmt.Errorf("journal: add %s and %s: the sum has more than %d digits", a, b, decimal.MaxPrec)
	}
	return sum, nil
}
