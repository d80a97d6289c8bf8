package retry_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

const (
	tick  = 10 * time.Millisecond // in which a worker of 100/s handles one message
	calm  = 300.0                 // arriving in a second
	surge = 1500.0                // in each of the ten seconds from second 10 on
	from  = 10 * time.Second
	to    = 20 * time.Second
)

// burst is what a queue showed: seconds are counted from 0, and the surge fills those from 10 to 19.
type burst struct {
	peak    int           // greatest depth at the end of a tick
	longest time.Duration // of any message in the queue
	empty   int           // the first second, from the end of the surge on, in which the queue was empty
	// estimate is what Drain said at the end of the surge.
	estimate retry.Estimate
}

// flood runs the workers until the queue is empty, for ten minutes at most. arrive says how many come in a tick, given
// how many do on average.
func flood(t *testing.T, workers int, arrive func(mean float64) int) burst {
	t.Helper()
	var b burst
	var waiting []time.Duration // when each came
	for at := time.Duration(0); at < 10*time.Minute; at += tick {
		if at == to {
			b.estimate = retry.Drain(int64(len(waiting)), workers, 100, calm)
		}
		mean := calm
		if at >= from && at < to {
			mean = surge
		}
		for range arrive(mean * tick.Seconds()) {
			waiting = append(waiting, at)
		}
		for range min(workers, len(waiting)) {
			b.longest = max(b.longest, at-waiting[0])
			waiting = waiting[1:]
		}
		b.peak = max(b.peak, len(waiting))
		if at >= to && len(waiting) == 0 {
			b.empty = int(at / time.Second)
			return b
		}
	}
	t.Fatalf("%d workers: never empty", workers)
	return b
}

// Steady arrivals: the depth is exact, and so are the seconds. The estimate counts from the end of the surge, so that the
// queue is empty at the end of the second before 20 + ETA.
func TestBurst(t *testing.T) {
	t.Parallel()
	steady := func(mean float64) int { return int(math.Round(mean)) }
	for _, c := range []struct{ workers, peak, longest, empty, eta int }{
		{4, 11_000, 28, 129, 110},
		{8, 7000, 9, 33, 14},
		{16, 0, 0, 20, 0},
	} {
		got := flood(t, c.workers, steady)
		if got.peak != c.peak || int(math.Round(got.longest.Seconds())) != c.longest || got.empty != c.empty {
			t.Errorf("%d workers: %+v, want a depth of %d, %d s, empty in second %d", c.workers, got, c.peak, c.longest, c.empty)
		}
		if want := time.Duration(c.eta) * time.Second; got.estimate.Never || got.estimate.ETA != want {
			t.Errorf("%d workers: %+v, want %v", c.workers, got.estimate, want)
		}
	}
	if e := retry.Drain(11_000, 3, 100, calm); !e.Never || e.Short != 1 {
		t.Errorf("3 workers: %+v", e)
	}
}

// Random arrivals, independent of each other. The 15,000 of the surge have a standard deviation of 122 and the 3,000
// before it are handled as they come, so depths are within six times that, 740, of the known ones, with 60 for what is
// in the queue when the surge begins; waits within 740 divided by what the workers handle, rounded up. The end of
// four workers has the deviation of what comes in 120 s, 219, divided by the 100/s by which the queue shrinks: 2.2 s, six
// times is 13; eight workers have 139 and 500/s: 0.3 s, 2. Sixteen have a load of 15 in 16, and a queue longer than 200
// has less than a millionth of probability; 200 take 1,600/s an eighth of a second to handle.
func TestBurstOfRandomArrivals(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 5))
		poisson := func(mean float64) int {
			n := 0
			for p := random.Float64(); p > math.Exp(-mean); p *= random.Float64() {
				n++
			}
			return n
		}
		for _, c := range []struct {
			workers, peak, depth int
			longest, wait        float64
			empty, end           int
		}{
			{4, 11_000, 800, 27.5, 2, 129, 14},
			{8, 7000, 800, 8.75, 1, 33, 3},
			{16, 0, 200, 0, 0.13, 20, 1},
		} {
			got := flood(t, c.workers, poisson)
			if far(float64(got.peak), float64(c.peak), float64(c.depth)) || far(got.longest.Seconds(), c.longest, c.wait) ||
				far(float64(got.empty), float64(c.empty), float64(c.end)) {
				t.Errorf("seed %d, %d workers: %+v, want a depth of %d ± %d, %v ± %v s, empty in second %d ± %d",
					seed, c.workers, got, c.peak, c.depth, c.longest, c.wait, c.empty, c.end)
			}
			if promised := to.Seconds() + got.estimate.ETA.Seconds(); far(promised, float64(got.empty)+1, float64(c.end)+1) {
				t.Errorf("seed %d, %d workers: empty in second %d, promised for %.0f", seed, c.workers, got.empty, promised)
			}
		}
	}
}

func far(got, want, tolerance float64) bool { return !(math.Abs(got-want) <= tolerance) }
