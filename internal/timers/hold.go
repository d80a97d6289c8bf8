package timers

import (
	"container/heap"
	"context"
	"time"
)

// entry is a timer in the hands of this process.
type entry struct {
	Timer
	fire  time.Time     // by Runner.now
	until time.Time     // when the lease passes, by Runner.now, and rather too soon
	alone bool          // to be handled without others
	lost  bool          // not this process's any more, and still in the heap
	pause time.Duration // the last one because of the database
}

// queued is a heap, the first to fire on top.
type queued []*entry

func (q queued) Len() int { return len(q) }
func (q queued) Less(i, j int) bool {
	return q[i].fire.Before(q[j].fire) || q[i].fire.Equal(q[j].fire) && q[i].ID < q[j].ID
}
func (q queued) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queued) Push(x any)   { *q = append(*q, x.(*entry)) }
func (q *queued) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

// add holds what was claimed by a statement that was sent at the given time. How long is a difference of two times of the
// database, counted from when its answer came: that the clocks differ does not matter.
func (r *Runner) add(list []Timer, sent time.Time) {
	got := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.become(Running, "") {
		r.log.Info("timers are claimed again")
	}
	r.status.ClaimedAt = time.Now()
	for _, t := range list {
		e := &entry{Timer: t, fire: t.Visible, until: t.LeasedUntil, alone: t.Attempts > 0}
		if r.cfg.Clock == nil {
			e.fire, e.until = got.Add(t.Visible.Sub(t.ClaimedAt)), sent.Add(r.cfg.Lease)
		}
		heap.Push(&r.held, e)
	}
	r.total += len(list)
	if len(list) > 0 {
		tell(r.moved)
	}
}

// handsOut hands timers to the handler when they are due and a worker is free.
func (r *Runner) handsOut(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(r.handOut())
		select {
		case <-ctx.Done():
		case <-r.moved:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// handOut begins as many calls as it can, and returns how long there is nothing to do.
func (r *Runner) handOut() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for !r.stopping && r.freeWorker() {
		group := r.due(now)
		if len(group) == 0 {
			break
		}
		r.call(group)
	}
	if len(r.held) == 0 || !r.freeWorker() {
		return r.cfg.Poll
	}
	return min(max(r.held[0].fire.Sub(now), 0), r.cfg.Poll)
}

func (r *Runner) freeWorker() bool {
	hung := 0
	for c := range r.calls {
		if c.hung {
			hung++
		}
	}
	return len(r.calls)-min(hung, maxHung) < r.cfg.Workers
}

// due takes the next group from the heap. Timers whose leases have passed are left to whoever claims them.
func (r *Runner) due(now time.Time) (group []*entry) {
	for len(r.held) > 0 && len(group) < r.cfg.Group && !r.held[0].fire.After(now) {
		if len(group) > 0 && r.held[0].alone {
			break
		}
		e := heap.Pop(&r.held).(*entry)
		switch {
		case e.lost:
		case !e.until.After(now):
			r.lose(e)
		default:
			group = append(group, e)
			if e.alone {
				return group
			}
		}
	}
	return group
}

// lose notes that a timer is not this process's any more.
func (r *Runner) lose(e *entry) {
	e.lost = true
	r.status.Lost++
	r.drop(1)
}

// drop notes that timers have left the hands of this process.
func (r *Runner) drop(n int) {
	r.total -= n
	if 2*r.total <= 3*r.cfg.Batch { // free is not 0
		tell(r.room)
	}
}

// renews keeps the leases of what is held and handled.
func (r *Runner) renews(ctx context.Context, in *run) {
	wait := r.cfg.Lease / 6
	if r.cfg.Clock != nil {
		wait = min(wait, r.cfg.Poll)
	}
	for pause(ctx, wait); ctx.Err() == nil; pause(ctx, wait) {
		r.renew(in)
	}
}

// renew renews leases of which a third has passed.
func (r *Runner) renew(in *run) {
	asked := r.aged()
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(in.work, r.cfg.Lease/3)
	defer cancel()
	list := make([]Timer, len(asked))
	for i, e := range asked {
		list[i] = e.Timer
	}
	sent := r.now()
	held, err := Renew(ctx, in.db, r.cfg.Schema, r.param(), r.cfg.Lease, list)
	if err != nil {
		r.away(in, err)
		return
	}
	until := make(map[int64]time.Time, len(held)) // by ID
	for _, t := range held {
		until[t.ID] = t.LeasedUntil
		if r.cfg.Clock == nil {
			until[t.ID] = sent.Add(r.cfg.Lease)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	inHeap := make(map[*entry]bool, len(r.held))
	for _, e := range r.held {
		inHeap[e] = true
	}
	for _, e := range asked {
		if end, ok := until[e.ID]; ok {
			e.until = end
		} else if inHeap[e] && !e.lost { // what a call has may be finished meanwhile, and its handler finds out
			r.lose(e)
		}
	}
}

func (r *Runner) aged() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.now().Add(r.cfg.Lease - r.cfg.Lease/3)
	var list []*entry
	note := func(entries []*entry) {
		for _, e := range entries {
			if !e.lost && !e.until.After(old) {
				list = append(list, e)
			}
		}
	}
	note(r.held)
	for c := range r.calls {
		if !c.abandoned {
			note(c.entries)
		}
	}
	return list
}
