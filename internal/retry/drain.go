package retry

import (
	"fmt"
	"math"
	"time"
)

// Estimate says when a backlog will be gone, if all goes on as it does. It is a value.
type Estimate struct {
	// ETA is how long it takes. It is 0 when nothing waits, and when it is never.
	ETA time.Duration
	// Never: as much comes as is handled, or more. Exactly as much is never too: the backlog stays what it is.
	Never bool
	// Short is how many more workers there have to be at least so that the backlog shrinks. 0 when it does, and when no
	// number would be enough because a worker handles nothing.
	Short int
}

// Drain estimates backlog ÷ (workers · each − arrivals). each is how many messages one worker handles in a second, and
// arrivals is how many come in a second, all workers together. A rate that is no number, or below 0, counts as 0.
// Nothing that waits is gone at once, whatever comes.
func Drain(backlog int64, workers int, each, arrivals float64) Estimate {
	if backlog <= 0 {
		return Estimate{}
	}
	workers, each, arrivals = max(workers, 0), rate(each), rate(arrivals)
	if net := float64(workers)*each - arrivals; net > 0 {
		return Estimate{ETA: seconds(float64(backlog) / net)}
	}
	if each == 0 || math.IsInf(arrivals, 0) {
		return Estimate{Never: true}
	}
	enough := math.Floor(arrivals/each) + 1
	switch { // the quotient is rounded, and so are the products
	case enough*each <= arrivals:
		enough++
	case (enough-1)*each > arrivals:
		enough--
	}
	short := enough - float64(workers)
	if short >= math.MaxInt32 {
		return Estimate{Never: true, Short: math.MaxInt32}
	}
	return Estimate{Never: true, Short: max(int(short), 1)}
}

// String is the estimate as people read it: "180 s", "25 min", "30 h", "4 d", rounded up, or
// "never, 2 workers short".
func (e Estimate) String() string {
	switch {
	case e.Never && e.Short == 0:
		return "never, no number of workers is enough"
	case e.Never && e.Short == 1:
		return "never, 1 worker short"
	case e.Never:
		return fmt.Sprintf("never, %d workers short", e.Short)
	}
	for _, unit := range [...]struct {
		below, of time.Duration
		name      string
	}{
		{10 * time.Minute, time.Second, "s"},
		{2 * time.Hour, time.Minute, "min"},
		{48 * time.Hour, time.Hour, "h"},
	} {
		if e.ETA <= unit.below {
			return fmt.Sprintf("%d %s", upTo(e.ETA, unit.of), unit.name)
		}
	}
	return fmt.Sprintf("%d d", upTo(e.ETA, 24*time.Hour))
}

func upTo(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > time.Millisecond { // less comes from dividing
		n++
	}
	if n == 0 && d > 0 {
		n = 1
	}
	return n
}

func rate(r float64) float64 {
	if !(r > 0) {
		return 0
	}
	return r
}

func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
