package consumer

import (
	"errors"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// quiet is the shortest time between two moves of the progress that no event of the consumer's own has caused: a lone
// foreign append moves it at once, a stream of them one hundred times a second at most.
const quiet = 10 * time.Millisecond

// application is the work of a consumer that applies events.
type application struct {
	*Tenure
	feed    Feed
	reached Progress // applied, and what was passed by since
	suspect suspect  // an event that failed, if there is one
}

func applyEvents(t *Tenure) error {
	if err := t.w.follow(t.held, t.db, t.lease); err != nil {
		return err
	}
	start, err := BeginAt(t.held, t.w.source, t.db, t.w.spec.Ref)
	if err != nil {
		return t.lookedAt(err)
	}
	if t.applied.IsZero() && !start.IsZero() {
		if err := t.move(ProgressAt(start)); err != nil {
			return err
		}
	}
	feed, err := t.open()
	if err != nil {
		return t.lookedAt(err)
	}
	defer feed.Close()
	a := &application{Tenure: t, feed: feed, reached: t.applied}
	for {
		if err := t.held.Err(); err != nil {
			return err
		}
		batch, err := feed.Next(t.held, a.due())
		if err != nil {
			return t.lookedAt(err)
		}
		if len(batch.Events) == 0 {
			err = a.idle(batch)
		} else {
			err = a.apply(batch)
		}
		if err != nil {
			return err
		}
	}
}

func (t *Tenure) open() (Feed, error) {
	f := Follower{Ref: t.w.spec.Ref, Filter: t.w.spec.Filter, Applied: t.applied, Limit: t.w.cfg.BatchSize}
	if stream, ok := t.w.source.(Stream); ok {
		return stream.Follow(t.held, f)
	}
	return FollowLog(t.held, t.w.source, f), nil
}

// due is when a move of the progress may not be put off any longer.
func (a *application) due() time.Time {
	if a.applied.Covers(a.reached) {
		return time.Time{}
	}
	return a.moved.Add(quiet)
}

// idle passes by events of others. Readers wait for the progress also when nothing was of interest.
func (a *application) idle(batch Batch) error {
	a.reached = batch.target(a.reached, a.lease.partitions, 0)
	if a.applied.Covers(a.reached) || (!batch.More && time.Since(a.moved) < quiet) {
		return nil
	}
	return a.move(a.reached)
}

// apply commits a batch in as few transactions as its events allow: one, unless some fail.
func (a *application) apply(batch Batch) error {
	n := len(batch.Events) // how many to try at once
	for len(batch.Events) > 0 {
		if err := a.held.Err(); err != nil {
			return err
		}
		if a.suspect.is(batch.Events[0]) {
			if err := a.suspect.verdict(a.w); err != nil {
				return err
			}
			n = 1
		}
		to := batch.target(a.reached, a.lease.partitions, n)
		began := time.Now()
		err := a.transact(batch.Events[:n], to)
		a.w.cfg.Observer.ObserveBatch(eventstore.BatchObservation{
			Consumer: a.w.spec.Name, Version: a.w.spec.Version, Events: n, Through: to.Floor(), Marks: batch.reached(n),
			Duration: time.Since(began), Err: err,
		})
		var failed *failedError
		switch {
		case err == nil:
			a.committed(to)
			a.reached = to
			if a.suspect.among(batch.Events[:n]) {
				a.suspect = suspect{}
				a.w.become(Running, "")
			}
			batch = batch.rest(n)
			n = len(batch.Events)
		case !errors.As(err, &failed):
			return err
		case failed.index < 0 && n > 1: // the database refused the whole; halves find the event
			n /= 2
		default: // what lies before the failing event is good
			at := max(failed.index, 0)
			if err := a.suspected(batch.Events[at], failed.err, at == 0); err != nil {
				return err
			}
			n = max(at, 1)
		}
	}
	return nil
}

// reached are the marks of the first n events, for observers of a stream.
func (b Batch) reached(n int) []eventstore.Mark {
	switch {
	case !b.Floor.IsZero():
		return nil
	case n == len(b.Events):
		return b.Marks
	}
	return marksOf(b.Events[:n])
}

// suspect is the first event that is not applied because it failed.
type suspect struct {
	event    eventstore.RecordedEvent // without its payload
	attempts int
	err      error
}

func (s *suspect) is(e eventstore.RecordedEvent) bool {
	return s.attempts > 0 && s.event.Position == e.Position
}

func (s *suspect) among(events []eventstore.RecordedEvent) bool {
	for _, e := range events {
		if s.is(e) {
			return true
		}
	}
	return false
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
func (a *application) suspected(event eventstore.RecordedEvent, cause error, next bool) error {
	if !a.suspect.is(event) {
		event.Data = nil
		a.suspect = suspect{event: event}
	}
	a.suspect.attempts++
	a.suspect.err = cause
	a.w.become(Retrying, a.suspect.failed(a.w).Error())
	if !next || a.suspect.attempts >= a.w.cfg.Attempts {
		return nil
	}
	retry := backoff{step: firstPause << min(a.suspect.attempts, 8) / 4}
	if !pause(a.held, retry.next()) {
		return a.held.Err()
	}
	return nil
}
