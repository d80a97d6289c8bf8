package memory

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

var (
	_ eventstore.OnceAppender = (*Store)(nil)
	_ eventstore.StreamLocker = (*Store)(nil)
)

// outcomes are the ends of commands with a key, forgotten after a time. The store's mutex guards it.
type outcomes struct {
	keep   time.Duration
	secret []byte
	byKey  map[string]*kept
	order  []*kept // as they were stored
}

type kept struct {
	lock    string
	call    uuid.UUID
	request []byte
	outcome eventstore.Outcome
}

// keyLock names the lock of a claim's key, and its outcome. Neither part has a zero byte.
func keyLock(c eventstore.Claim) string { return keyPrefix + c.Scope + "\x00" + c.Key }

// AppendOnce stores events and outcome; see [eventstore.OnceAppender]. The outcome is kept for [Config.KeepKeys].
func (s *Store) AppendOnce(
	ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write,
) (eventstore.Outcome, error) {
	prepared, err := prepareOnce(ctx, claim, outcome, writes)
	if err != nil {
		return eventstore.Outcome{}, err
	}
	var got eventstore.Outcome
	lockErr := s.exclusively(ctx, append(streamLocks(prepared), keyLock(claim), logLock), func() {
		var found bool
		if got, found, err = s.first(claim); found || err != nil {
			return
		}
		if err = s.check(ctx, prepared); err != nil {
			return
		}
		b := s.build(prepared)
		k := s.ending(claim, outcome, prepared, b)
		s.publish(b)
		s.outcomes.add(k)
		got = copyOutcome(k.outcome)
	})
	if lockErr != nil {
		return eventstore.Outcome{}, lockErr
	}
	return got, err
}

func prepareOnce(
	ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes []eventstore.Write,
) ([]eventstore.Write, error) {
	if err := eventstore.ValidateOnce(claim, outcome, writes); err != nil {
		return nil, err
	}
	prepared, _, err := prepare(ctx, writes)
	return prepared, err
}

// FirstOutcome returns the outcome stored under the claim; see [eventstore.OnceAppender].
func (s *Store) FirstOutcome(ctx context.Context, claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	if err := claim.Validate(); err != nil {
		return eventstore.Outcome{}, false, err
	}
	if err := ctx.Err(); err != nil {
		return eventstore.Outcome{}, false, fmt.Errorf("memory: read outcome: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first(claim)
}

// HoldKey holds the key against other callers of this store; see [eventstore.OnceAppender].
func (s *Store) HoldKey(ctx context.Context, claim eventstore.Claim) (func(), error) {
	if err := claim.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: hold key: %w", err)
	}
	name := keyLock(claim)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[name] {
		return nil, &eventstore.InProgressError{Scope: claim.Scope, Key: claim.Key}
	}
	s.running[name] = true
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, name)
	}), nil
}

// first looks for the outcome under a claim. The mutex is held.
func (s *Store) first(claim eventstore.Claim) (eventstore.Outcome, bool, error) {
	s.outcomes.forget(s.now())
	k := s.outcomes.byKey[keyLock(claim)]
	if k == nil {
		return eventstore.Outcome{}, false, nil
	}
	if !hmac.Equal(k.request, s.outcomes.hash(claim)) {
		return eventstore.Outcome{}, false, &eventstore.ReusedKeyError{Scope: claim.Scope, Key: claim.Key}
	}
	o := copyOutcome(k.outcome)
	o.Repeated = claim.Call == uuid.Nil || claim.Call != k.call
	return o, true, nil
}

// ending is how a command ends whose append was accepted. The mutex is held.
func (s *Store) ending(claim eventstore.Claim, o eventstore.Outcome, writes []eventstore.Write, b batch) *kept {
	o.Token, o.RecordedAt, o.At, o.Repeated = b.result.Token, b.result.RecordedAt, s.now(), false
	if len(writes) > 0 {
		o.Streams = nil
	}
	for _, w := range writes {
		o.Streams = append(o.Streams, eventstore.OutcomeStream{Stream: w.Stream, Version: b.result.Versions[w.Stream], Events: len(w.Events)})
	}
	return &kept{lock: keyLock(claim), call: claim.Call, request: s.outcomes.hash(claim), outcome: copyOutcome(o)}
}

func (o *outcomes) hash(claim eventstore.Claim) []byte {
	mac := hmac.New(sha256.New, o.secret)
	mac.Write(claim.Request)
	return mac.Sum(nil)
}

func (o *outcomes) add(k *kept) {
	o.byKey[k.lock] = k
	o.order = append(o.order, k)
}

// forget removes what was stored longer ago than it is kept. An outcome never goes before one that was stored earlier,
// so a clock that jumps makes some stay longer.
func (o *outcomes) forget(now time.Time) {
	for len(o.order) > 0 && now.Sub(o.order[0].outcome.At) > o.keep {
		delete(o.byKey, o.order[0].lock)
		o.order[0] = nil
		o.order = o.order[1:]
	}
}

// copyOutcome copies what a caller could change.
func copyOutcome(o eventstore.Outcome) eventstore.Outcome {
	o.Streams = slices.Clone(o.Streams)
	o.Result = bytes.Clone(o.Result)
	if len(o.Result) == 0 {
		o.Result = nil
	}
	return o
}
