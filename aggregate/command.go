package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// command is one call of Handle or Transact, over all its tries. transact.go has the order of its steps, this file the
// steps.
type command struct {
	store     Store
	operation string // with the aggregate, for errors and keys
	name      string // without, for metrics
	run       func(*Work) error
	config    handleConfig
	retry     Retry
	key       *keyed // nil: without

	work    *Work                       // of the latest run
	met     *eventstore.ConflictError   // what its append met, if that is why it failed
	aside   map[eventstore.StreamID]any // see [Work]
	streams []eventstore.StreamID       // those of the command, as far as known
	lanes   []lane                      // those to take
	entered []lane                      // those taken
	leave   func()

	attempts, merged int
	hurried          bool
}

// stored is what the store made of an append.
type stored struct {
	versions   map[eventstore.StreamID]eventstore.Version
	token      eventstore.Token
	recordedAt time.Time
	// first is the outcome of an earlier call with the same key, which was found instead of appending.
	first *eventstore.Outcome
}

// decide runs the work. It returns what kept it from deciding: an error of run as it is, or that of the store.
func (c *command) decide(ctx context.Context) error {
	c.attempts++
	if c.aside == nil {
		c.aside = map[eventstore.StreamID]any{}
	}
	w := &Work{ctx: ctx, store: c.store, operation: c.operation, members: map[eventstore.StreamID]member{}, aside: c.aside}
	c.work, c.met = w, nil
	defer w.over.Store(true)
	err := c.run(w)
	if w.failed != nil {
		// Whatever run made of it: it decided without knowing what it wanted to know.
		return w.failed
	}
	return err
}

// refuse answers for a run that did not decide. With a key, a refusal that holds for good is stored first.
func (c *command) refuse(ctx context.Context, err error) (Receipt, error) {
	c.learn()
	if c.key == nil {
		return Receipt{}, err
	}
	outcome, lasts := c.key.outcomeOf(err, c.work.refusals())
	if c.work.failed != nil || !lasts {
		return c.before(ctx, err)
	}
	done, failure := certain(ctx, c.retry, func() (stored, error) {
		return c.once(ctx, c.key.store, outcome)
	})
	switch {
	case errors.Is(failure, eventstore.ErrReusedKey):
		return c.reused(ctx, failure)
	case failure != nil:
		// The caller must not take as final what a repeat might not find.
		return Receipt{}, classify(c.operation, fmt.Errorf("store the refusal: %w", failure))
	case done.first != nil:
		return c.repeat(*done.first)
	}
	c.key.ended(outcome)
	c.key.refused = true
	return Receipt{}, err
}

// before answers for a run that ended in an error that is no outcome: the command may have had one all the same.
func (c *command) before(ctx context.Context, err error) (Receipt, error) {
	if c.key.doubtful || c.attempts > 1 {
		return Receipt{}, err // it was looked for
	}
	switch outcome, known, lookErr := c.key.first(ctx); {
	case known:
		return c.repeat(outcome)
	case errors.Is(lookErr, eventstore.ErrReusedKey):
		return Receipt{}, classify(c.operation, lookErr)
	}
	return Receipt{}, err
}

// panicked goes on with the panic of a decision, unless the command had its outcome before: then the decision was made in
// vain, on a state that it may never have been made for.
func (c *command) panicked(ctx context.Context, p any) (Receipt, error) {
	if c.key != nil && !c.key.doubtful && c.attempts <= 1 {
		if outcome, known, err := c.key.first(ctx); err == nil && known {
			return c.repeat(outcome)
		}
	}
	panic(p)
}

// hasToSend reports whether there is anything to store: events, or an outcome.
func (c *command) hasToSend() bool {
	_, events := c.work.writes()
	return events > 0 || c.key != nil
}

// send appends what was decided, once.
func (c *command) send(ctx context.Context, to eventstore.LockedStreams) (stored, error) {
	writes, events := c.work.writes()
	if c.key == nil {
		result, err := to.Append(ctx, writes...)
		return stored{versions: result.Versions, token: result.Token, recordedAt: result.RecordedAt}, err
	}
	outcome := eventstore.Outcome{Kind: eventstore.OutcomeDone, Result: c.work.result}
	if events > 0 {
		return c.once(ctx, to, outcome, writes...)
	}
	for _, w := range writes { // a decision without events claims nothing about them: they are for the record
		outcome.Streams = append(outcome.Streams, eventstore.OutcomeStream{Stream: w.Stream, Version: c.work.members[w.Stream].version()})
	}
	return c.once(ctx, to, outcome)
}

func (c *command) once(ctx context.Context, to onceAppender, outcome eventstore.Outcome, writes ...eventstore.Write) (stored, error) {
	outcome, err := to.AppendOnce(ctx, c.key.claim, outcome, writes...)
	if err != nil {
		return stored{}, err
	}
	if outcome.Repeated {
		return stored{first: &outcome}, nil
	}
	return stored{versions: outcome.Versions(), token: outcome.Token, recordedAt: outcome.RecordedAt}, nil
}

type onceAppender interface {
	AppendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write) (eventstore.Outcome, error)
}

// plainly appends to the store without a lock.
func (c *command) plainly() eventstore.LockedStreams {
	p := unlocked{Appender: c.store}
	if c.key != nil {
		p.onceAppender = c.key.store
	}
	return p
}

type unlocked struct {
	eventstore.Appender
	onceAppender
}

// committed answers for what was stored.
func (c *command) committed(ctx context.Context, done stored) (Receipt, error) {
	if done.first != nil {
		return c.repeat(*done.first)
	}
	receipt := Receipt{
		Token: done.token, RecordedAt: done.recordedAt, Versions: c.work.versions(), Result: c.work.result,
		events: map[eventstore.StreamID]int{},
	}
	for stream, version := range done.versions {
		receipt.Versions[stream] = version
	}
	if c.key != nil {
		c.key.ended(eventstore.Outcome{})
	}
	writes, _ := c.work.writes()
	for _, w := range writes {
		receipt.events[w.Stream] = len(w.Events)
	}
	c.work.committed(ctx)
	return receipt, nil
}

// repeat answers with the first outcome.
func (c *command) repeat(outcome eventstore.Outcome) (Receipt, error) {
	receipt := Receipt{
		Token: outcome.Token, RecordedAt: outcome.RecordedAt, Versions: outcome.Versions(), Result: outcome.Result, Repeated: true,
		events: map[eventstore.StreamID]int{},
	}
	for _, s := range outcome.Streams {
		receipt.events[s.Stream] = s.Events
	}
	return receipt, c.key.answer(outcome)
}

// reused answers when the key turned out to be that of another request, or of this one, which has expired meanwhile.
func (c *command) reused(ctx context.Context, err error) (Receipt, error) {
	first, expired, err := c.key.expired(ctx, err)
	if !expired {
		return Receipt{}, classify(c.operation, err)
	}
	return c.repeat(first)
}

// failed answers for an append that failed, and remembers what is needed to go on from there.
func (c *command) failed(ctx context.Context, err error) (Receipt, error) {
	c.met = nil
	if c.work == nil { // it never came to a run
		return Receipt{}, classify(c.operation, err)
	}
	c.learn()
	if errors.Is(err, eventstore.ErrReusedKey) {
		return c.reused(ctx, err)
	}
	var conflict *eventstore.ConflictError
	if !errors.As(err, &conflict) {
		return Receipt{}, classify(c.operation, err)
	}
	if m := c.work.members[conflict.Stream]; m != nil && m.created() && conflict.Actual > 0 {
		return c.refuse(ctx, &ExistsError{Stream: conflict.Stream, Version: conflict.Actual})
	}
	c.met = conflict
	return Receipt{}, classify(c.operation, err)
}

// learn takes from a run which streams and lanes the command needs. Those of Handle are known before.
func (c *command) learn() {
	lanes, streams := c.work.place()
	if len(streams) > 0 {
		c.lanes, c.streams = lanes, streams
	}
}

// stands reports whether what the latest run decided is right behind what its append met, and has put it there.
func (c *command) stands(ctx context.Context) bool {
	return c.met != nil && c.work.behind(ctx, c.met.Stream)
}

// hurries reports whether the next try needs no wait: the first that will probably not decide again.
func (c *command) hurries() bool {
	if c.hurried || c.met == nil || !c.work.mergeable(c.met.Stream) {
		return false
	}
	c.hurried = true
	return true
}

func (c *command) observe(took time.Duration, receipt Receipt, err error) {
	if c.config.observer == nil {
		return
	}
	events := 0
	if err == nil && !receipt.Repeated {
		for _, n := range receipt.events {
			events += n
		}
	}
	c.config.observer.ObserveCommand(eventstore.CommandObservation{
		Name: c.name, Attempts: c.attempts, Merged: c.merged, Repeated: receipt.Repeated, Events: events, Duration: took, Err: err,
	})
}
