package retrytest_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/retry/retrytest"
)

func TestFateDependsOnItsArgumentsAlone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		poison := 0
		for m := range 1000 {
			if retrytest.Poison(seed, m) {
				poison++
			}
			for attempt := 1; attempt <= 6; attempt++ {
				first, again := retrytest.Fate(seed, m, attempt), retrytest.Fate(seed, m, attempt)
				if (first == nil) != (again == nil) || first != nil && first.Error() != again.Error() {
					t.Fatalf("seed %d, message %d, attempt %d: %v, then %v", seed, m, attempt, first, again)
				}
				if errors.Is(first, retrytest.ErrPoison) != retrytest.Poison(seed, m) {
					t.Fatalf("seed %d, message %d, attempt %d: %v", seed, m, attempt, first)
				}
			}
		}
		if poison != 20 {
			t.Errorf("seed %d: %d of 1,000 are poison", seed, poison)
		}
	}
}

// Chance is split into 16 parts along each argument. A part has 6,250 ± 77 of 100,000; six times that is allowed.
func TestChanceIsUniform(t *testing.T) {
	t.Parallel()
	for name, chance := range map[string]func(int) float64{
		"seed":    func(i int) float64 { return retrytest.Chance(uint64(i), 3, 1) },
		"message": func(i int) float64 { return retrytest.Chance(7, i, 1) },
		"attempt": func(i int) float64 { return retrytest.Chance(7, 3, i) },
		"pairs":   func(i int) float64 { return math.Mod(retrytest.Chance(7, i, 1)+retrytest.Chance(7, i, 2), 1) },
		"seeds":   func(i int) float64 { return math.Mod(retrytest.Chance(7, i, 1)+retrytest.Chance(8, i, 1), 1) },
	} {
		var parts [16]int
		for i := range 100_000 {
			r := chance(i)
			if !(r >= 0 && r < 1) {
				t.Fatalf("%s: %v", name, r)
			}
			parts[int(r*16)]++
		}
		for i, n := range parts {
			if n < 6250-460 || n > 6250+460 {
				t.Errorf("%s: part %d has %d of 100,000", name, i, n)
			}
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	if got := retrytest.Classify(errors.Join(retrytest.ErrPoison)); got != eventstore.Permanent {
		t.Errorf("poison is %v", got)
	}
	if got := retrytest.Classify(retrytest.ErrUnlucky); got != eventstore.Transient {
		t.Errorf("unlucky is %v", got)
	}
}

// A tally that is filled as a fair run fills it is accepted; one wrong thing, and it says what.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	fill := func(limit int, delay func(failed int, random float64) time.Duration) *retrytest.Tally {
		tally := new(retrytest.Tally)
		for m := range 1000 {
			attempts, delivered := retrytest.Outcome(4, m, limit, false)
			var extra time.Duration
			for failed := 1; failed < attempts; failed++ {
				extra += delay(failed, retrytest.Chance(5, m, failed))
			}
			if delivered {
				tally.Delivered(m, attempts, extra)
			} else {
				tally.Parked(m, attempts, extra)
			}
		}
		return tally
	}
	right := func(failed int, random float64) time.Duration {
		return retry.Policy{}.Delay(failed, func() float64 { return random })
	}
	fair := fill(5, right)
	if err := fair.Check(retry.Policy{}, false, 0); err != nil {
		t.Errorf("a fair run: %v", err)
	}
	fair.Parked(3, 1, 0)
	for _, wrong := range []struct {
		name, says string
		tally      *retrytest.Tally
		classified bool
	}{
		{"nothing", "no message", new(retrytest.Tally), false},
		{"ended twice", "message 3 ended twice", fair, false},
		{"no jitter", "mean extra delay in seconds of what ended at attempt 2: 1.0000", fill(5, func(failed int, _ float64) time.Duration { return time.Second << (failed - 1) }), false},
		{"no pause", "mean extra delay in seconds of what ended at attempt 2: 0.0000", fill(5, func(int, float64) time.Duration { return 0 }), false},
		{"no growth", "ended at attempt 3", fill(5, func(_ int, random float64) time.Duration { return right(1, random) }), false},
		{"too long", "longest extra delay: 25s", fill(5, func(int, float64) time.Duration { return 25 * time.Second / 4 }), false},
		{"before it began", "before they began", fill(5, func(int, float64) time.Duration { return -time.Second }), false},
		{"one attempt", "succeeded at attempt 2: 0.0000", fill(1, right), false},
		{"100 attempts", "attempts per message", fill(100, right), false},
		{"not classified", "parked at the first attempt: 0.0000", fill(5, right), true},
		{"given up early", "another number of attempts than 5", fill(4, right), false},
	} {
		if err := wrong.tally.Check(retry.Policy{}, wrong.classified, 0); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: %v, want %q", wrong.name, err, wrong.says)
		}
	}
}
