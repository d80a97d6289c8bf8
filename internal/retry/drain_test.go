package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/retry"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		backlog        int64
		workers        int
		each, arrivals float64
		want           retry.Estimate
		says           string
	}{
		{36_000, 12, 100, 1000, retry.Estimate{ETA: 180 * time.Second}, "180 s"},
		{36_000, 15, 100, 1000, retry.Estimate{ETA: 72 * time.Second}, "72 s"},
		{36_000, 10, 100, 1000, retry.Estimate{Never: true, Short: 1}, "never, 1 worker short"}, // exactly equal
		{36_000, 9, 100, 1000, retry.Estimate{Never: true, Short: 2}, "never, 2 workers short"},
		{36_000, 0, 100, 1000, retry.Estimate{Never: true, Short: 11}, "never, 11 workers short"},
		{36_000, -3, 100, 1000, retry.Estimate{Never: true, Short: 11}, "never, 11 workers short"},
		{36_000, 11, 100, 1000, retry.Estimate{ETA: 360 * time.Second}, "360 s"},
		{36_000, 10, 100, 1000.5, retry.Estimate{Never: true, Short: 1}, "never, 1 worker short"},
		{36_000, 10, 100, 1100, retry.Estimate{Never: true, Short: 2}, "never, 2 workers short"},
		{36_000, 12, 100, 0, retry.Estimate{ETA: 30 * time.Second}, "30 s"},
		{36_000, 0, 100, 0, retry.Estimate{Never: true, Short: 1}, "never, 1 worker short"},
		{0, 0, 0, 1000, retry.Estimate{}, "0 s"},
		{-5, 10, 100, 1000, retry.Estimate{}, "0 s"},
		{1, 1, 10, 0, retry.Estimate{ETA: 100 * time.Millisecond}, "1 s"},
		{1, 1, 1e12, 0, retry.Estimate{}, "0 s"},
		{1000, 1, 0, 10, retry.Estimate{Never: true}, "never, no number of workers is enough"},
		{1000, 1, nan, 10, retry.Estimate{Never: true}, "never, no number of workers is enough"},
		{1000, 1, 100, nan, retry.Estimate{ETA: 10 * time.Second}, "10 s"},
		{1000, 1, 100, -5, retry.Estimate{ETA: 10 * time.Second}, "10 s"},
		{1000, 1, 1e-12, 1e12, retry.Estimate{Never: true, Short: math.MaxInt32}, "never, 2147483647 workers short"},
		{1000, 1, 100, inf, retry.Estimate{Never: true}, "never, no number of workers is enough"},
		{math.MaxInt64, 1, 1e-9, 0, retry.Estimate{ETA: math.MaxInt64}, "106752 d"},
		{60_100, 1, 100, 0, retry.Estimate{ETA: 601 * time.Second}, "11 min"},
		{720_000, 1, 100, 0, retry.Estimate{ETA: 2 * time.Hour}, "120 min"},
		{720_001, 1, 100, 0, retry.Estimate{ETA: 2*time.Hour + 10*time.Millisecond}, "3 h"},
		{100 * 86400 * 3, 1, 100, 0, retry.Estimate{ETA: 72 * time.Hour}, "3 d"},
	} {
		got := retry.Drain(c.backlog, c.workers, c.each, c.arrivals)
		if got != c.want || got.String() != c.says {
			t.Errorf("%d behind, %d workers of %v/s, %v/s arriving: %+v %q, want %+v %q",
				c.backlog, c.workers, c.each, c.arrivals, got, got, c.want, c.says)
		}
	}
}

// So many more do, and one fewer does not, also for rates that no float has exactly.
func TestDrainShortIsTheLeast(t *testing.T) {
	t.Parallel()
	for _, each := range []float64{0.1, 0.3, 1.0 / 3, 7, 99.9, 1e6} {
		for _, arrivals := range []float64{0, 0.3, 0.9, 1, 2.1, 100, 999.9, 12345.678} {
			for workers := range 5 {
				e := retry.Drain(1000, workers, each, arrivals)
				if !e.Never {
					continue
				}
				if retry.Drain(1000, workers+e.Short, each, arrivals).Never {
					t.Errorf("%d workers of %v for %v: %d more do not do", workers, each, arrivals, e.Short)
				}
				if !retry.Drain(1000, workers+e.Short-1, each, arrivals).Never {
					t.Errorf("%d workers of %v for %v: fewer than %d do", workers, each, arrivals, e.Short)
				}
			}
		}
	}
}
