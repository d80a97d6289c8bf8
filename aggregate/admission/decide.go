package admission

import "time"

// What is in this file runs under the lock of the gate.

// dispatch lets waiters in while there is room, and drops those that waited in vain. Afterwards either nobody waits or
// no place is free; whoever frees one calls it.
func (g *Gate) dispatch(now time.Time) {
	for rank := range g.queues {
		q := &g.queues[rank]
		for w := q.next(); w != nil; w = q.next() {
			if reason := g.vain(now, w); reason != "" {
				g.remove(w)
				g.settle(w, now, g.sendAway(now, reason))
				continue
			}
			permit, ok := g.limit.take()
			if !ok {
				return
			}
			q.served(w)
			g.waiting--
			g.settle(w, now, g.letIn(now, permit))
		}
	}
}

// makeRoom takes a place in the full queue for a request: from a lower class, else from a tenant of its own class that
// would still have as many waiting as its own afterwards. Else it returns why the request must go.
func (g *Gate) makeRoom(now time.Time, r Request) Reason {
	for rank := len(g.queues) - 1; rank > r.Class.rank(); rank-- {
		if t := g.queues[rank].longest(); t != nil {
			g.evict(now, t.newest(), Displaced)
			return ""
		}
	}
	own := &g.queues[r.Class.rank()]
	mine := own.of(r.Tenant)
	if t := own.longest(); t != nil && t.waiting.Len() >= mine+2 {
		g.evict(now, t.newest(), OverShare)
		return ""
	}
	if mine*len(own.tenants) > own.count {
		return OverShare
	}
	return QueueFull
}

func (g *Gate) evict(now time.Time, w *waiter, reason Reason) {
	g.remove(w)
	g.settle(w, now, g.sendAway(now, reason))
}

// remove takes a waiter out of the queue; its verdict must follow.
func (g *Gate) remove(w *waiter) {
	g.queues[w.class.rank()].remove(w)
	g.waiting--
}

// settle gives a waiter its verdict.
func (g *Gate) settle(w *waiter, now time.Time, v verdict) {
	v.waited = now.Sub(w.since)
	w.verdict = v
	close(w.decided)
}

// stale: the deadline has passed, or comes before the request could be done. While nothing runs the estimate is not
// asked: it could be wrong for ever if nothing was let in any more.
func (g *Gate) stale(now, deadline time.Time) bool {
	if deadline.IsZero() {
		return false
	}
	if g.running == 0 {
		return !now.Before(deadline)
	}
	return now.Add(g.meter.service).After(deadline)
}

// vain says why a waiter need not wait on.
func (g *Gate) vain(now time.Time, w *waiter) Reason {
	switch {
	case g.stale(now, w.deadline):
		return Stale
	case !now.Before(w.until):
		return WaitedTooLong
	}
	return ""
}

func (g *Gate) letIn(now time.Time, permit permit) verdict {
	g.running++
	g.count.admitted++
	return g.decided(verdict{pass: &Pass{gate: g, permit: permit, start: now}})
}

func (g *Gate) sendAway(now time.Time, reason Reason) verdict {
	g.count.shed.add(reason)
	return g.decided(verdict{reason: reason, retry: g.meter.sent(now, g.waiting, g.limit.limit())})
}

func (g *Gate) decided(v verdict) verdict {
	v.queue, v.limit = g.waiting, g.limit.limit()
	return v
}
