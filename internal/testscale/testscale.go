// Package testscale sizes the long tests: torture, crash and load tests state
// their full size in the code and multiply it by one factor at run time.
//
//	rounds := testscale.N(10_000)                    // 1,000 in a plain go test
//	run := testscale.Duration(30 * time.Second)      // 3 s
//
// The factor is DAYBOOK_TEST_SCALE, a number above 0; FULL=1 means 1, the full
// size. Default: 0.1. Numbers never fall below 1, durations never below a tenth
// of a second, so that a test always does something. A value that is no such
// number panics: a test that silently ran at another size would prove nothing.
//
// All functions are safe for concurrent use.
package testscale

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"time"
)

const (
	variable     = "DAYBOOK_TEST_SCALE"
	usual        = 0.1
	leastTime    = 100 * time.Millisecond
	fullVariable = "FULL"
)

// Factor is the factor of this process.
func Factor() float64 {
	text := os.Getenv(variable)
	if text == "" {
		if os.Getenv(fullVariable) == "1" {
			return 1
		}
		return usual
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		panic(fmt.Sprintf("testscale: %s is %q; want a number above 0, e.g. 0.1, or 1 for full size", variable, text))
	}
	return f
}

// N is the number of rounds, events or writers for a full size of n: at least 1,
// and n itself when n is below 1.
func N(n int) int {
	if n < 1 {
		return n
	}
	return max(1, int(math.Round(float64(n)*Factor())))
}

// Duration is how long to run for a full length of d: at least a tenth of a
// second, and d itself when d is shorter than that.
func Duration(d time.Duration) time.Duration {
	return max(min(d, leastTime), time.Duration(float64(d)*Factor()))
}
