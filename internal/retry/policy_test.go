package retry_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	if got, want := (retry.Policy{}).WithDefaults(), (retry.Policy{Attempts: 5, Base: time.Second, Cap: time.Minute}); got != want {
		t.Errorf("the zero value is %+v, want %+v", got, want)
	}
	own := retry.Policy{Attempts: 2, Base: time.Minute, Cap: time.Hour}
	if got := own.WithDefaults(); got != own {
		t.Errorf("%+v became %+v", own, got)
	}
}

func TestPolicyWorst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy retry.Policy
		want   time.Duration
	}{
		{retry.Policy{}, 15 * time.Second},
		{retry.Policy{Attempts: 1}, 0},
		{retry.Policy{Attempts: 2}, time.Second},
		{retry.Policy{Attempts: 7}, 63 * time.Second},
		{retry.Policy{Attempts: 8}, 123 * time.Second},
		{retry.Policy{Attempts: 10}, 243 * time.Second},
		{retry.Policy{Attempts: 3, Base: time.Minute}, 2 * time.Minute},
		{retry.Policy{Attempts: 4, Base: 3, Cap: 7}, 3 + 6 + 7},
		{retry.Policy{Attempts: math.MaxInt}, math.MaxInt64},
		{retry.Policy{Attempts: 90, Base: 1, Cap: math.MaxInt64}, math.MaxInt64},
		{retry.Policy{Attempts: math.MaxInt, Base: -1}, 0},
	} {
		if got := c.policy.Worst(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.policy, got, c.want)
		}
	}
}

// The bounds are met by the ends of what random may return; for any count, and for what it may not return.
func TestPolicyDelayBounds(t *testing.T) {
	t.Parallel()
	constant := func(r float64) func() float64 { return func() float64 { return r } }
	almost := math.Nextafter(1, 0)
	bounds := map[int]time.Duration{
		math.MinInt: 0, -1: 0, 0: 0, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 8: time.Minute, 63: time.Minute, 64: time.Minute, 65: time.Minute, 1 << 40: time.Minute, math.MaxInt: time.Minute,
	}
	for failed, bound := range bounds {
		most := max(bound-1, 0)
		for r, want := range map[float64]time.Duration{0: 0, 0.5: bound / 2, almost: most, 1: most, 7: most, math.Inf(1): most, -1: 0, math.NaN(): 0} {
			if got := (retry.Policy{}).Delay(failed, constant(r)); got != want {
				t.Errorf("after %d with %v: %v, want %v", failed, r, got, want)
			}
		}
	}
	huge := retry.Policy{Base: 1, Cap: math.MaxInt64}
	for failed := range 200 {
		if got := huge.Delay(failed, constant(almost)); got < 0 || failed > 0 && failed < 63 && got >= 1<<(failed-1) {
			t.Errorf("after %d: %v", failed, got)
		}
		if got := huge.Delay(failed, constant(almost)); failed > 63 && got < math.MaxInt64-2000 {
			t.Errorf("after %d: %v, far from the greatest", failed, got)
		}
	}
	for _, wrong := range []retry.Policy{{Base: -1}, {Cap: -1}, {Base: math.MinInt64, Cap: math.MinInt64}} {
		if got := wrong.Delay(1<<30, nil); got != 0 {
			t.Errorf("%+v: %v", wrong, got)
		}
	}
}

// Full jitter: a sixteenth of 16,000 pauses in each sixteenth of the bound, give or take six standard deviations (31).
func TestPolicyDelayIsUniform(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1)).Float64
		for failed := 1; failed <= 9; failed++ {
			bound := min(time.Second<<(failed-1), time.Minute)
			var parts [16]int
			for range 16_000 {
				parts[(retry.Policy{}).Delay(failed, random)*16/bound]++
			}
			for i, n := range parts {
				if n < 1000-190 || n > 1000+190 {
					t.Errorf("seed %d, after %d: part %d has %d of 16,000", seed, failed, i, n)
				}
			}
		}
	}
	if a, b := (retry.Policy{}).Delay(4, nil), (retry.Policy{}).Delay(4, nil); a == b {
		t.Errorf("without a source twice %v", a)
	}
}

func TestPolicySpent(t *testing.T) {
	t.Parallel()
	for failed, want := range map[int]bool{0: false, 4: false, 5: true, 6: true} {
		if got := (retry.Policy{}).Spent(failed); got != want {
			t.Errorf("%d: %v", failed, got)
		}
	}
	if !(retry.Policy{Attempts: 1}).Spent(1) {
		t.Error("a single attempt is not the last")
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	for _, good := range []retry.Policy{{}, {Attempts: 1}, {Base: time.Minute}, {Base: 1, Cap: 1}, {Attempts: math.MaxInt}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, c := range []struct {
		policy retry.Policy
		want   []string
	}{
		{retry.Policy{Attempts: -2, Base: -time.Second, Cap: -time.Minute}, []string{
			"Policy.Attempts: -2: must be at least 1, or 0 for 5",
			"Policy.Base: -1s: must be above 0, or 0 for 1s",
			"Policy.Cap: -1m0s: must be above 0, or 0 for 1m0s",
		}},
		{retry.Policy{Base: 2 * time.Minute}, []string{"Policy.Cap: 1m0s is below Policy.Base, 2m0s: set Cap to at least Base, or Base to at most Cap"}},
		{retry.Policy{Cap: time.Millisecond}, []string{"Policy.Cap: 1ms is below Policy.Base, 1s: set Cap to at least Base, or Base to at most Cap"}},
	} {
		if err := c.policy.Validate(); err == nil || err.Error() != strings.Join(c.want, "\n") {
			t.Errorf("%+v: %v", c.policy, err)
		}
	}
}
