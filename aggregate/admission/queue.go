package admission

import (
	"container/list"
	"time"
)

// waiter is a request that waits. What the decision says is written under the lock of the gate before decided is
// closed, and read after.
type waiter struct {
	class    Class
	tenant   string
	since    time.Time
	until    time.Time // since and the longest wait of the class
	deadline time.Time // of the caller; zero: none
	decided  chan struct{}
	verdict  verdict

	turn *turn         // nil once it has left the queue
	at   *list.Element // in turn.waiting
}

// queue holds the waiters of one class: tenants take turns, each first come, first served. Not safe for concurrent use.
type queue struct {
	count   int
	turns   list.List // of *turn, whose is next in front
	tenants map[string]*turn
}

// turn is a tenant that has waiters; one without is forgotten.
type turn struct {
	tenant  string
	at      *list.Element
	waiting list.List // of *waiter
}

func (q *queue) push(w *waiter) {
	t := q.tenants[w.tenant]
	if t == nil {
		t = &turn{tenant: w.tenant}
		t.at = q.turns.PushBack(t)
		if q.tenants == nil {
			q.tenants = make(map[string]*turn)
		}
		q.tenants[w.tenant] = t
	}
	w.turn, w.at = t, t.waiting.PushBack(w)
	q.count++
}

// next is the waiter whose turn it is, nil when nobody waits; it stays in the queue.
func (q *queue) next() *waiter {
	front := q.turns.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*turn).waiting.Front().Value.(*waiter)
}

// served takes out the waiter whose turn it was, and its tenant goes behind the others.
func (q *queue) served(w *waiter) {
	q.turns.MoveToBack(w.turn.at)
	q.remove(w)
}

func (q *queue) remove(w *waiter) {
	t := w.turn
	t.waiting.Remove(w.at)
	if t.waiting.Len() == 0 {
		q.turns.Remove(t.at)
		delete(q.tenants, t.tenant)
	}
	w.turn, w.at = nil, nil
	q.count--
}

// longest is the tenant with the most waiters, among equals the one whose turn comes last; nil when nobody waits.
func (q *queue) longest() *turn {
	var found *turn
	for e := q.turns.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*turn); found == nil || t.waiting.Len() >= found.waiting.Len() {
			found = t
		}
	}
	return found
}

// newest is the waiter of the tenant that came last.
func (t *turn) newest() *waiter { return t.waiting.Back().Value.(*waiter) }

// of is how many waiters a tenant has.
func (q *queue) of(tenant string) int {
	if t := q.tenants[tenant]; t != nil {
		return t.waiting.Len()
	}
	return 0
}
