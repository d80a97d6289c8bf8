package admission

import "time"

const (
	// A measurement counts for 1/16 of the estimate: quick to follow, and one slow request does not turn it.
	smoothing = 1.0 / 16

	leastRetry = 100 * time.Millisecond
	mostRetry  = 30 * time.Second
)

// meter estimates how long a request takes and how fast the queue is worked off. Not safe for concurrent use.
type meter struct {
	service time.Duration // smoothed duration of a request; 0 before the first
	gap     time.Duration // smoothed time between two completions while others waited; 0 before the first
	last    time.Time     // the last completion, if others waited; else zero

	owed   float64 // requests that were sent away and will come back
	owedAt time.Time
}

// ended takes in a completion. took counts if measured says so, and only upwards if partial says that the request was
// cut off.
func (m *meter) ended(now time.Time, took time.Duration, measured, partial, othersWait bool) {
	if measured && (!partial || took > m.service) {
		m.service = smooth(m.service, took)
	}
	if !othersWait {
		m.last = time.Time{}
		return
	}
	if !m.last.IsZero() {
		m.gap = smooth(m.gap, now.Sub(m.last))
	}
	m.last = now
}

func smooth(old, sample time.Duration) time.Duration {
	if old == 0 {
		return sample
	}
	return old + time.Duration(float64(sample-old)*smoothing)
}

// pace is the time between two completions when all places are taken.
func (m *meter) pace(limit int) time.Duration {
	if m.gap > 0 {
		return m.gap
	}
	return m.service / time.Duration(max(limit, 1))
}

// sent counts a request that is sent away and returns when it should come back, before jitter: when those that wait, and
// those that were sent away before it, are done.
func (m *meter) sent(now time.Time, waiting, limit int) time.Duration {
	pace := m.pace(limit)
	m.owed = m.back(now, pace) + 1
	m.owedAt = now
	if pace <= 0 {
		return 2 * leastRetry
	}
	m.owed = min(m.owed, float64(mostRetry)/float64(pace))
	drain := time.Duration((float64(waiting) + m.owed) * float64(pace))
	return min(max(drain, 2*leastRetry), mostRetry*2/3) // so that the jitter spreads at both ends
}

// back is how many of those that were sent away are not done yet, if they come back when they were told to.
func (m *meter) back(now time.Time, pace time.Duration) float64 {
	if pace <= 0 {
		return m.owed
	}
	return max(0, m.owed-float64(now.Sub(m.owedAt))/float64(pace))
}

// jitter spreads a time by a factor between 0.5 and 1.5.
func jitter(d time.Duration, random float64) time.Duration {
	return min(max(time.Duration(float64(d)*(0.5+random)), leastRetry), mostRetry)
}
