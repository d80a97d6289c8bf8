package sagatest_test

import (
	"testing"

	"github.com/daybook-go/daybook/saga/sagatest"
)

// A talk whose second half was asked for is given up: both halves are undone, the last one first.
func ExampleFor() {
	_ = func(t *testing.T) { // func TestGivenUp
		sagatest.For(t, definition).
			Given(asked{}).
			When(given{"hello"}).ThenSends(ask{"hello"}).
			WhenOperator(sagatest.Cancel, "").ThenCompensates("second", "first").
			ThenCompensated()
	}
}
