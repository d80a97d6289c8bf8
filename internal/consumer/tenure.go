package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/parking"
)

// Tenure is one period of ownership. One goroutine runs it.
type Tenure struct {
	w       *Worker
	db      *pgxpool.Pool
	lease   *lease
	held    context.Context // ends when the lease is lost, the segment falls to another, or the worker is asked to end
	work    context.Context // the same, but a batch in hand gets its grace unless the lease is lost
	settled func()          // called after each commit
	place   place           // where waiters look

	applied Progress  // committed
	moved   time.Time // when that was
	plans   plans
	aside   map[int]struct{} // the partitions of which something is set aside, for waiters
}

// tenure runs the worker's loop until the lease is lost, the worker is asked to end, or something fails that needs the
// lease to be taken again; the error says which.
func (w *Worker) tenure(ctx context.Context, db *pgxpool.Pool, l *lease, settled func()) error {
	held, lose := context.WithCancelCause(ctx)
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer abandon(errShutdown)
	defer lose(errShutdown)

	background.Go(func() {
		w.renew(work, db, l, func(err error) { // nothing that is under way can commit
			lose(err)
			abandon(err)
		})
	})
	background.Go(func() {
		defer abandon(errShutdown)
		if w.untilMoved(held) {
			lose(errMoved)
			select {
			case <-work.Done():
			case <-ctx.Done():
			case <-time.After(max(w.cfg.Lease, grace)):
				return
			}
		}
		pause(work, grace)
	})

	t := &Tenure{
		w: w, db: db, lease: l, held: held, work: within(work, w.spec.Ref), settled: settled,
		place: place{w.spec.Ref, w.spec.Segment, l.store}, applied: l.applied,
		plans: plans{some: true},
	}
	w.become(Running, "")
	t.note()
	t.tellParked()
	defer t.forget()
	defer w.cfg.Lines.flush(w.log)
	t.aside = l.parked.Partitions()
	signals.enter(t.place, t.reachedNow())
	defer signals.leave(t.place)
	err := w.loop(t)
	if ctx.Err() == nil && held.Err() != nil && !errors.Is(err, errLost) {
		var stop *stopError
		if cause := context.Cause(held); !errors.As(err, &stop) && cause != nil && !errors.Is(cause, errShutdown) {
			return cause
		}
	}
	return err
}

func (t *Tenure) committed(to Progress) {
	t.applied, t.moved = to, time.Now()
	signals.move(t.place, t.reachedNow())
	t.note()
	t.settled()
}

func (t *Tenure) reachedNow() Reached {
	return Reached{Applied: t.applied, Home: t.w.cfg.Home, Aside: t.aside}
}

func (t *Tenure) note() {
	t.w.mu.Lock()
	t.w.status.Applied = t.applied.Floor()
	t.w.mu.Unlock()
}

// lookedAt turns an error of the source into what the worker does about it.
func (t *Tenure) lookedAt(err error) error {
	var stop *stopError
	if errors.As(err, &stop) {
		return err
	}
	if t.held.Err() == nil && classify(err, false) == history {
		return &stopError{fmt.Errorf("consumer: %s at position %s: %w", t.w.spec.Ref, t.applied.Floor(), err)}
	}
	return fmt.Errorf("consumer: read for %s after position %s: %w", t.w.spec.Ref, t.applied.Floor(), err)
}

// forget: another owner may set aside or release from now on.
func (t *Tenure) forget() {
	t.w.mu.Lock()
	t.w.status.Parked = parking.Counts{}
	t.w.mu.Unlock()
}
