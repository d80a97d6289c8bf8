package retry_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func newBudget(t *testing.T, config retry.BudgetConfig) *retry.Budget {
	t.Helper()
	budget, err := retry.NewBudget(config)
	if err != nil {
		t.Fatal(err)
	}
	return budget
}

// let is how many retries in a row fit.
func let(budget *retry.Budget, now time.Time, asked int) int {
	n := 0
	for range asked {
		if ok, _ := budget.Retry(now); ok {
			n++
		}
	}
	return n
}

func TestBudgetOfAnIdleConsumer(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	if got := let(&budget, start, 150); got != 100 {
		t.Errorf("%d retries at once, want 10 a second over 10 s", got)
	}
	ok, wait := budget.Retry(start)
	if ok || wait <= 0 || wait > 10*time.Second {
		t.Errorf("the next: %v, %v", ok, wait)
	}
	if got := let(&budget, start.Add(9999*time.Millisecond), 150); got != 0 {
		t.Errorf("%d more before 10 s are over", got)
	}
	if got := let(&budget, start.Add(10*time.Second+250*time.Millisecond), 150); got != 100 {
		t.Errorf("%d when they are over", got)
	}
}

func TestBudgetIsAShareOfFirstAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config      retry.BudgetConfig
		first, want int
	}{
		{retry.BudgetConfig{}, 0, 100},
		{retry.BudgetConfig{}, 500, 100},
		{retry.BudgetConfig{}, 505, 101},
		{retry.BudgetConfig{}, 10_000, 2000},
		{retry.BudgetConfig{}, -10_000, 100},
		{retry.BudgetConfig{Share: 2}, 1000, 2000},
		{retry.BudgetConfig{Share: 0.01, Floor: 1}, 2000, 20},
		{retry.BudgetConfig{Share: 0.01, Floor: 1}, 0, 10},
		{retry.BudgetConfig{Share: 1e300, Floor: math.MaxInt}, math.MaxInt, 5000},
	} {
		budget := newBudget(t, c.config)
		budget.First(start, c.first)
		if got := let(budget, start, 5000); got != c.want {
			t.Errorf("%+v, %d first attempts: %d retries, want %d", c.config, c.first, got, c.want)
		}
	}
	budget := newBudget(t, retry.BudgetConfig{})
	budget.First(start, 10_000)
	if got := let(budget, start.Add(10*time.Second), 5000); got != 100 {
		t.Errorf("after 10 s without work: %d retries, want the floor", got)
	}
}

// Whatever comes: when a retry fits, the 10 s that end with it have at most the share of their first attempts, or the
// floor; and a wait that is kept, with nothing else going on, is long enough.
func TestBudgetHoldsOverEveryWindow(t *testing.T) {
	t.Parallel()
	type event struct {
		at           time.Time
		first, retry int
	}
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 2))
		budget := newBudget(t, retry.BudgetConfig{})
		var window []event // of the last 10 s, and what it has in all
		first, retries := 0, 0
		now, putOff, fit := start, 0, 0
		for range 20_000 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(5*time.Millisecond)))
			if random.IntN(3000) == 0 {
				now = now.Add(time.Duration(random.IntN(15)) * time.Second)
			}
			if random.IntN(2) == 0 {
				n := random.IntN(4)
				budget.First(now, n)
				window, first = append(window, event{now, n, 0}), first+n
				continue
			}
			ok, wait := budget.Retry(now)
			if !ok {
				putOff++
				if wait <= 0 || wait > 10*time.Second {
					t.Fatalf("seed %d: put off by %v", seed, wait)
				}
				continue
			}
			fit++
			window, retries = append(window, event{now, 0, 1}), retries+1
			for ; now.Sub(window[0].at) >= 10*time.Second; window = window[1:] {
				first, retries = first-window[0].first, retries-window[0].retry
			}
			if float64(retries) > max(100, 0.2*float64(first)) {
				t.Fatalf("seed %d: %d retries and %d first attempts in 10 s", seed, retries, first)
			}
		}
		if putOff == 0 || fit < 1000 {
			t.Errorf("seed %d: %d fit and %d did not: nothing is shown", seed, fit, putOff)
		}
	}
}

// What many are told to wait is spread at the pace of the budget, not one moment for all.
func TestBudgetSpreadsWaits(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	let(&budget, start, 100)
	last := time.Duration(0)
	for i := range 500 {
		ok, wait := budget.Retry(start)
		if ok || wait <= 0 || wait > 10*time.Second {
			t.Fatalf("%d: %v, %v", i, ok, wait)
		}
		if wait < 10*time.Second && wait-last < 100*time.Millisecond {
			t.Fatalf("%d: %v, and %v before: less than a tenth of a second", i, wait, last)
		}
		last = wait
	}
	if ok, _ := budget.Retry(start.Add(10*time.Second + 250*time.Millisecond)); !ok {
		t.Error("those that wait keep out one that fits")
	}
}

func TestBudgetWaitIsLongEnough(t *testing.T) {
	t.Parallel()
	for _, used := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second, 9 * time.Second} {
		var budget retry.Budget
		let(&budget, start, 60)
		let(&budget, start.Add(used), 40)
		now := start.Add(9500 * time.Millisecond)
		ok, wait := budget.Retry(now)
		if ok {
			t.Fatalf("used at %v: fits", used)
		}
		if ok, _ := budget.Retry(now.Add(wait)); !ok || wait > 750*time.Millisecond {
			t.Errorf("used at %v: after %v: %v", used, wait, ok)
		}
	}
}

// The wait takes into account that the first attempts grow old too.
func TestBudgetWaitsForWhatIsLeftOfTheShare(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	budget.First(start, 10_000)
	let(&budget, start, 1000)
	let(&budget, start.Add(5*time.Second), 1000)
	now := start.Add(9 * time.Second)
	ok, wait := budget.Retry(now)
	if again, _ := budget.Retry(now.Add(wait)); ok || !again || wait < 6*time.Second || wait > 6500*time.Millisecond {
		t.Errorf("%v, and after %v %v: want 5 s + 10 s, when what was retried after 5 s is forgotten", ok, wait, again)
	}
}

func TestBudgetClocksThatJump(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{
		"an hour back": -time.Hour, "ten years back": -87_600 * time.Hour, "two seconds back": -2 * time.Second,
	} {
		var budget retry.Budget
		if got := let(&budget, start, 100); got != 100 {
			t.Fatal(got)
		}
		back := start.Add(jump)
		if got := let(&budget, back, 10); got != 0 {
			t.Errorf("%s: %d more", name, got)
		}
		if got := let(&budget, back.Add(10*time.Second), 10); got != 0 {
			t.Errorf("%s: %d more within 10 s of the jump", name, got)
		}
		if got := let(&budget, back.Add(10*time.Second+250*time.Millisecond), 150); got != 100 {
			t.Errorf("%s: %d after 10 s; the budget never fills again", name, got)
		}
	}
	// Goroutines that come in another order than they read the clock do not make the time run faster.
	var budget retry.Budget
	let(&budget, start, 100)
	for i := range 5000 {
		at := start.Add(time.Duration(i) * time.Millisecond)
		if ok, _ := budget.Retry(at); ok {
			t.Fatalf("fits after %v", at.Sub(start))
		}
		budget.First(at.Add(-500*time.Millisecond), 0)
	}
	var ahead retry.Budget
	let(&ahead, start, 100)
	if got := let(&ahead, start.Add(time.Duration(math.MaxInt64)), 150); got != 100 {
		t.Errorf("%d after a jump of 292 years", got)
	}
}

func TestBudgetOfManyWorkers(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	var group sync.WaitGroup
	counts := make([]int, 8)
	for w := range counts {
		group.Go(func() {
			for range 100 {
				budget.First(start, 1)
				if ok, _ := budget.Retry(start); ok {
					counts[w]++
				}
			}
		})
	}
	group.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if sum += let(&budget, start, 500); sum != 160 {
		t.Errorf("%d retries, want a fifth of 800", sum)
	}
}

func TestBudgetConfig(t *testing.T) {
	t.Parallel()
	if got, want := (retry.BudgetConfig{}).WithDefaults(), (retry.BudgetConfig{Share: 0.2, Floor: 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want := "BudgetConfig.Share: -1: must be a number above 0, or 0 for 0.2\nBudgetConfig.Floor: -3: must be at least 1, or 0 for 10"
	if budget, err := retry.NewBudget(retry.BudgetConfig{Share: -1, Floor: -3}); budget != nil || err == nil || err.Error() != want {
		t.Errorf("%v, %v", budget, err)
	}
	for _, share := range []float64{math.NaN(), math.Inf(1)} {
		if err := (retry.BudgetConfig{Share: share}).Validate(); err == nil || !strings.Contains(err.Error(), "BudgetConfig.Share") {
			t.Errorf("%v: %v", share, err)
		}
	}
}
