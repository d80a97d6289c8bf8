package aggregate_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/daybook-go/daybook/eventstore"
)

// outcomes is the part of the stub that knows how commands with a key ended. Its appends go through the stub's, so that
// a test can make them fail.
type outcomes struct {
	mu     sync.Mutex
	stored map[[2]string]remembered
	// instead, if not nil, stands in for an append with an outcome; next carries it out.
	instead func(next onceFunc, claim eventstore.Claim, outcome eventstore.Outcome) (eventstore.Outcome, error)
	claims  []eventstore.Claim // of all appends
	looks   int
	held    map[[2]string]bool
	holds   int
}

type onceFunc func() (eventstore.Outcome, error)

type remembered struct {
	claim   eventstore.Claim
	outcome eventstore.Outcome
}

func (s *stub) AppendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write) (eventstore.Outcome, error) {
	if err := eventstore.ValidateOnce(claim, outcome, writes); err != nil {
		return eventstore.Outcome{}, err
	}
	s.once.mu.Lock()
	s.once.claims = append(s.once.claims, claim)
	s.once.mu.Unlock()
	next := func() (eventstore.Outcome, error) {
		s.once.mu.Lock()
		defer s.once.mu.Unlock()
		if first, found, err := s.once.find(claim); found || err != nil {
			return first, err
		}
		if len(writes) > 0 {
			result, err := s.Append(ctx, writes...)
			if err != nil {
				return eventstore.Outcome{}, err
			}
			outcome.Token, outcome.RecordedAt = result.Token, result.RecordedAt
			for _, w := range writes {
				outcome.Streams = append(outcome.Streams, eventstore.OutcomeStream{Stream: w.Stream, Version: result.Versions[w.Stream], Events: len(w.Events)})
			}
		}
		outcome.Result = slices.Clone(outcome.Result)
		if s.once.stored == nil {
			s.once.stored = map[[2]string]remembered{}
		}
		s.once.stored[[2]string{claim.Scope, claim.Key}] = remembered{claim, outcome}
		return outcome, nil
	}
	if s.once.instead != nil {
		return s.once.instead(next, claim, outcome)
	}
	return next()
}

func (s *stub) FirstOutcome(_ context.Context, claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	s.once.mu.Lock()
	defer s.once.mu.Unlock()
	s.once.looks++
	return s.once.find(claim)
}

func (o *outcomes) find(claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	known, found := o.stored[[2]string{claim.Scope, claim.Key}]
	if !found {
		return eventstore.Outcome{}, false, nil
	}
	if string(known.claim.Request) != string(claim.Request) {
		return eventstore.Outcome{}, false, &eventstore.ReusedKeyError{Scope: claim.Scope, Key: claim.Key}
	}
	known.outcome.Repeated = known.claim.Call != claim.Call
	return known.outcome, true, nil
}

func (s *stub) HoldKey(_ context.Context, claim eventstore.Claim) (func(), error) {
	s.once.mu.Lock()
	defer s.once.mu.Unlock()
	place := [2]string{claim.Scope, claim.Key}
	if s.once.held[place] {
		return nil, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	if s.once.held == nil {
		s.once.held = map[[2]string]bool{}
	}
	s.once.held[place] = true
	s.once.holds++
	return func() {
		s.once.mu.Lock()
		defer s.once.mu.Unlock()
		delete(s.once.held, place)
	}, nil
}

// WithStreamsLocked locks nothing; it says what would be locked.
func (s *stub) WithStreamsLocked(ctx context.Context, claim *eventstore.Claim, streams []eventstore.StreamID, f func(context.Context, eventstore.LockedStreams) error) error {
	s.mu.Lock()
	s.locked = append(s.locked, streams)
	s.mu.Unlock()
	if s.lock != nil {
		return s.lock(func() error { return f(ctx, s) })
	}
	return f(ctx, s)
}

// swapped reads and writes another stream than it is asked for.
type swapped struct {
	*stub
	now eventstore.StreamID
}

func (s *swapped) ReadStream(ctx context.Context, id eventstore.StreamID, r eventstore.Range) iter.Seq2[eventstore.RecordedEvent, error] {
	if s.now != (eventstore.StreamID{}) {
		id = s.now
	}
	return s.stub.ReadStream(ctx, id, r)
}

func (s *swapped) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.AppendResult, error) {
	if s.now == (eventstore.StreamID{}) {
		return s.stub.Append(ctx, writes...)
	}
	asked := writes[0].Stream
	writes[0].Stream = s.now
	result, err := s.stub.Append(ctx, writes...)
	var conflict *eventstore.ConflictError
	if errors.As(err, &conflict) {
		return result, &eventstore.ConflictError{Stream: asked, Expected: conflict.Expected, Actual: conflict.Actual}
	}
	return result, err
}
