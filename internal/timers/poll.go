package timers

import (
	"context"
	"math/rand/v2"
	"time"
)

// wakes is the least time between claims that wake-ups bring about.
const wakes = 10 * time.Millisecond

// claims claims what is due as long as there is room, at once after a full batch, else when it is time.
func (r *Runner) claims(ctx context.Context, in *run) {
	var behind *Timer // the last one of a full batch
	var whole time.Time
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
		if behind == nil || begun.Sub(whole) >= r.cfg.Poll { // also what came before the cursor meanwhile
			behind, whole = nil, begun
		}
		list, err := r.claim(in, limit, behind)
		if err != nil {
			r.away(in, err)
			behind = nil
			pause(ctx, pauses.next())
			continue
		}
		pauses.reset()
		if behind = nil; len(list) == limit {
			behind = &list[len(list)-1]
			continue
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

func (r *Runner) claim(in *run, limit int, behind *Timer) ([]Timer, error) {
	ctx, cancel := context.WithTimeout(in.work, r.cfg.Lease)
	defer cancel()
	sent := r.now()
	list, err := claim(ctx, in.db, ClaimRequest{
		Schema: r.cfg.Schema, Queue: r.cfg.Queue, Owner: r.cfg.Owner, Now: r.param(), Ahead: r.cfg.Ahead, Limit: limit, Lease: r.cfg.Lease,
	}, behind)
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
