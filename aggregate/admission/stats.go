package admission

import "time"

// Shed counts the requests that were sent away, by reason, since the gate was made.
type Shed struct {
	QueueFull, Displaced, OverShare, WaitedTooLong, Stale uint64
}

// Total is how many were sent away.
func (s Shed) Total() uint64 {
	return s.QueueFull + s.Displaced + s.OverShare + s.WaitedTooLong + s.Stale
}

func (s *Shed) add(reason Reason) {
	switch reason {
	case QueueFull:
		s.QueueFull++
	case Displaced:
		s.Displaced++
	case OverShare:
		s.OverShare++
	case WaitedTooLong:
		s.WaitedTooLong++
	case Stale:
		s.Stale++
	}
}

// Stats is what a gate looked like at one moment.
type Stats struct {
	// Critical, Normal and Bulk are how many of the class wait; Tenants is how many tenants have waiters, one in two
	// classes counted twice.
	Critical, Normal, Bulk, Tenants int
	// Running is how many were let in and are not done, operators not counted; they are in Operators. Limit is how many
	// may. Running is above it for a while when the limit has come down.
	Running, Operators, Limit int
	// Admitted and Cancelled are how many were let in, and how many left by themselves before that, since the gate was
	// made.
	Admitted, Cancelled uint64
	Shed                Shed
	// ServiceTime is the estimate of how long a request takes once it is in, Pace that of the time between two
	// completions when all places are taken. 0 before the first measurement.
	ServiceTime, Pace time.Duration
}

// Waiting is how many wait.
func (s Stats) Waiting() int { return s.Critical + s.Normal + s.Bulk }

// Stats returns what the gate looks like now. It is cheap: one lock, no allocation.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.limit.limit()
	s := Stats{
		Critical: g.queues[Critical.rank()].count, Normal: g.queues[Normal.rank()].count, Bulk: g.queues[Bulk.rank()].count,
		Running: g.running, Operators: g.operators, Limit: limit,
		Admitted: g.count.admitted, Cancelled: g.count.cancelled, Shed: g.count.shed,
		ServiceTime: g.meter.service, Pace: g.meter.pace(limit),
	}
	for rank := range g.queues {
		s.Tenants += len(g.queues[rank].tenants)
	}
	return s
}
