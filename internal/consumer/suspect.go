package consumer

import (
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// suspect is the first event that is not applied because it failed, of a consumer that stops.
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
	told := parking.Failure{Message: event, Err: cause, Due: time.Now()}
	if !a.suspect.is(event) {
		event.Data = nil
		a.suspect = suspect{event: event}
	}
	a.suspect.attempts++
	a.suspect.err = cause
	a.tellFailure(told, a.suspect.attempts)
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
