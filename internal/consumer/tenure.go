package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
)

// quiet is the shortest time between two moves of the floor that no event of the consumer's own has caused: a lone
// foreign append moves it at once, a stream of them one hundred times a second at most.
const quiet = 10 * time.Millisecond

// tenure is one period of ownership. One goroutine runs it.
type tenure struct {
	w       *Worker
	db      *pgxpool.Pool
	lease   *lease
	held    context.Context // ends when the lease is lost or the worker is asked to end
	work    context.Context // the same, but a batch in hand gets its grace when the worker is asked to end
	settled func()          // called after each commit
	place   place           // where waiters look

	floor   eventstore.Position // committed
	read    eventstore.Position // read up to here
	moved   time.Time           // when the floor was committed
	atEnd   bool                // the last page was not full
	ahead   chan pageResult     // a page being read while the one before it is applied, or nil
	suspect suspect             // an event that failed, if there is one
}

type pageResult struct {
	page eventstore.Page
	err  error
}

// tenure applies events until the lease is lost, the worker is asked to end, or something fails that needs the lease
// to be taken again; the error says which.
func (w *Worker) tenure(ctx context.Context, db *pgxpool.Pool, l *lease, settled func()) error {
	held, lose := context.WithCancelCause(ctx)
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	defer background.Wait()
	defer abandon(errShutdown)
	defer lose(errShutdown)

	background.Go(func() { w.renew(held, db, l, lose) })
	background.Go(func() {
		<-held.Done()
		if ctx.Err() == nil { // lost: nothing that is under way can commit
			abandon(context.Cause(held))
			return
		}
		pause(work, grace)
		abandon(errShutdown)
	})

	t := &tenure{
		w: w, db: db, lease: l, held: held, work: within(work, w.spec.Ref), settled: settled,
		place: place{w.spec.Ref, l.store}, floor: l.floor, read: l.floor,
	}
	w.become(Running, "")
	t.note()
	signals.enter(t.place, Progress{l.floor, w.cfg.Home})
	defer signals.leave(t.place)
	err := t.loop()
	if t.ahead != nil {
		lose(errShutdown)
		<-t.ahead
	}
	if ctx.Err() == nil && held.Err() != nil && !errors.Is(err, errLost) {
		var stop *stopError
		if cause := context.Cause(held); !errors.As(err, &stop) && cause != nil && !errors.Is(cause, errShutdown) {
			return cause
		}
	}
	return err
}

func (t *tenure) loop() error {
	for {
		if err := t.held.Err(); err != nil {
			return err
		}
		page, err := t.next()
		if err != nil {
			return err
		}
		if len(page.Events) == 0 {
			err = t.idle(page)
		} else {
			err = t.apply(page)
		}
		if err != nil {
			return err
		}
	}
}

// next returns the next page, waiting for one at the end of the log. Under load the page after it is read meanwhile.
func (t *tenure) next() (eventstore.Page, error) {
	if t.ahead == nil && t.atEnd {
		if err := t.wait(); err != nil {
			return eventstore.Page{}, err
		}
	}
	var r pageResult
	if t.ahead != nil {
		r = <-t.ahead
		t.ahead = nil
	} else {
		r = t.readPage(t.read)
	}
	if r.err != nil {
		if t.held.Err() == nil && classify(r.err, false) == history {
			return eventstore.Page{}, &stopError{fmt.Errorf("consumer: %s at position %s: %w", t.w.spec.Ref, t.floor, r.err)}
		}
		return eventstore.Page{}, fmt.Errorf("consumer: read the log for %s after position %s: %w", t.w.spec.Ref, t.read, r.err)
	}
	t.atEnd = len(r.page.Events) < t.w.cfg.BatchSize
	t.read = r.page.Through
	if !t.atEnd {
		ahead, from := make(chan pageResult, 1), t.read
		t.ahead = ahead
		go func() { ahead <- t.readPage(from) }() // ends with held; tenure receives it
	}
	return r.page, nil
}

func (t *tenure) readPage(after eventstore.Position) pageResult {
	page, err := t.w.source.ReadPage(t.held, after, t.w.spec.Filter, t.w.cfg.BatchSize)
	if err == nil && page.Through.Before(after) {
		page.Through = after
	}
	return pageResult{page, err}
}

// wait blocks at the end of the log, but no longer than a move of the floor may be put off.
func (t *tenure) wait() error {
	ctx := t.held
	if t.read.After(t.floor) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.moved.Add(quiet))
		defer cancel()
	}
	err := t.w.source.Wait(ctx, t.read)
	switch {
	case err == nil:
		return nil
	case t.held.Err() != nil:
		return t.held.Err()
	case ctx.Err() != nil:
		return t.moveFloor(t.read)
	case classify(err, false) == history:
		return &stopError{fmt.Errorf("consumer: %s at position %s: %w", t.w.spec.Ref, t.floor, err)}
	default:
		return fmt.Errorf("consumer: wait for the log for %s: %w", t.w.spec.Ref, err)
	}
}

// idle passes by events of others. Readers wait for the floor also when nothing was of interest.
func (t *tenure) idle(page eventstore.Page) error {
	if !page.Through.After(t.floor) || (t.atEnd && time.Since(t.moved) < quiet) {
		return nil
	}
	return t.moveFloor(page.Through)
}

// apply commits a page in as few transactions as its events allow: one, unless some fail.
func (t *tenure) apply(page eventstore.Page) error {
	rest := page.Events
	n := len(rest) // how many to try at once
	for len(rest) > 0 {
		if err := t.held.Err(); err != nil {
			return err
		}
		if t.suspect.event.Position == rest[0].Position {
			if err := t.suspect.verdict(t.w); err != nil {
				return err
			}
			n = 1
		}
		to := page.Through
		if n < len(rest) {
			to = rest[n-1].Position
		}
		began := time.Now()
		err := t.transact(rest[:n], to)
		t.w.cfg.Observer.ObserveBatch(eventstore.BatchObservation{
			Consumer: t.w.spec.Name, Version: t.w.spec.Version, Events: n, Through: to, Duration: time.Since(began), Err: err,
		})
		var failed *failedError
		switch {
		case err == nil:
			t.committed(to)
			if rest = rest[n:]; t.suspect.event.Position.Compare(to) <= 0 {
				t.suspect = suspect{}
				t.w.become(Running, "")
			}
			n = len(rest)
		case !errors.As(err, &failed):
			return err
		case failed.index < 0 && n > 1: // the database refused the whole; halves find the event
			n /= 2
		default: // what lies before the failing event is good
			at := max(failed.index, 0)
			if err := t.suspected(rest[at], failed.err, at == 0); err != nil {
				return err
			}
			n = max(at, 1)
		}
	}
	return nil
}

// suspect is the first event that is not applied because it failed.
type suspect struct {
	event    eventstore.RecordedEvent // without its payload
	attempts int
	err      error
}

func (s *suspect) failed(w *Worker) *HandlerError {
	return &HandlerError{Consumer: w.spec.Name, Version: w.spec.Version, Event: s.event, Attempts: s.attempts, Err: s.err}
}

// verdict ends the consumer when the event has had its attempts.
func (s *suspect) verdict(w *Worker) error {
	if s.attempts < w.cfg.Attempts {
		return nil
	}
	return &stopError{s.failed(w)}
}

// suspected counts a failed attempt, and waits before the next when the event is the next to be tried.
func (t *tenure) suspected(event eventstore.RecordedEvent, cause error, next bool) error {
	if t.suspect.event.Position != event.Position {
		event.Data = nil
		t.suspect = suspect{event: event}
	}
	t.suspect.attempts++
	t.suspect.err = cause
	t.w.become(Retrying, t.suspect.failed(t.w).Error())
	if !next || t.suspect.attempts >= t.w.cfg.Attempts {
		return nil
	}
	retry := backoff{step: firstPause << min(t.suspect.attempts, 8) / 4}
	if !pause(t.held, retry.next()) {
		return t.held.Err()
	}
	return nil
}

func (t *tenure) committed(to eventstore.Position) {
	t.floor, t.moved = to, time.Now()
	signals.move(t.place, Progress{to, t.w.cfg.Home})
	t.note()
	t.settled()
}

func (t *tenure) note() {
	t.w.mu.Lock()
	t.w.status.Applied = t.floor
	t.w.mu.Unlock()
}
