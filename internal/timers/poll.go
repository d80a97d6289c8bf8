package timers

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// wakes is the least time between claims that wake-ups bring about.
	wakes = 10 * time.Millisecond
	// When a claim that leaves nothing out took longer than dear, most claims look at what became visible recently, and
	// those that leave nothing out take at most a costShare-th of the time.
	dear      = 50 * time.Millisecond
	costShare = 20
	recently  = 10 * time.Second
)

// claims claims what is due as long as there is room, at once after a full batch, else when it is time.
func (r *Runner) claims(ctx context.Context, in *run) {
	var begin from
	var whole time.Time    // when a claim last left nothing out
	var cost time.Duration // what that took
	var pauses backoff
	for ctx.Err() == nil {
		limit := r.free()
		if limit == 0 {
			select {
			case <-ctx.Done():
			case <-r.room:
			}
			continue
		}
		begun := time.Now()
		if begin == (from{}) || begun.Sub(whole) >= max(r.cfg.Poll, costShare*cost) {
			begin, whole = from{}, begun // also what came into what was left out
		}
		list, err := r.claim(in, limit, begin)
		if err != nil {
			r.away(in, err)
			begin = from{}
			pause(ctx, pauses.next())
			continue
		}
		pauses.reset()
		if whole == begun {
			cost = time.Since(begun)
		}
		if begin = (from{}); len(list) == limit {
			begin.behind = &list[len(list)-1]
			continue
		}
		if cost > dear {
			recent := recently + r.cfg.Poll
			begin.recent = &recent
		}
		wait := r.cfg.Poll - r.cfg.Poll/10 + rand.N(r.cfg.Poll/10+1)
		r.awaitWake(ctx, begun, wait-time.Since(begun))
	}
}

func (r *Runner) awaitWake(ctx context.Context, begun time.Time, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.woken:
		if soon := wakes - time.Since(begun); soon > 0 {
			pause(ctx, soon)
		}
	}
}

// free is how many may be claimed, 0 while most of the room is taken: small claims would cost as much as large ones.
func (r *Runner) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := min(2*r.cfg.Batch-r.total, r.cfg.Batch)
	if 2*free < r.cfg.Batch {
		return 0
	}
	return free
}

func (r *Runner) claim(in *run, limit int, begin from) ([]Timer, error) {
	ctx, cancel := context.WithTimeout(in.work, r.cfg.Lease)
	defer cancel()
	sent := r.now()
	list, err := claim(ctx, in.db, ClaimRequest{
		Schema: r.cfg.Schema, Queue: r.cfg.Queue, Owner: r.cfg.Owner, Now: r.param(), Ahead: r.cfg.Ahead, Limit: limit, Lease: r.cfg.Lease,
	}, begin)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		r.cfg.Probe(ProbeClaimed)
	}
	r.add(list, sent)
	return list, nil
}

// backoff doubles from 50 ms to 5 s, each pause between half and all of it. The zero value is ready.
type backoff struct{ step time.Duration }

func (b *backoff) next() time.Duration {
	b.step = min(max(2*b.step, 50*time.Millisecond), 5*time.Second)
	return b.step/2 + rand.N(b.step/2+1)
}

func (b *backoff) reset() { b.step = 0 }

// pause ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
