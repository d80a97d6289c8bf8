package aggregate

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

// Result is what a command did.
type Result[S any] struct {
	// State is the state after the command. It belongs to the caller, and equals what the next Load would find. On a
	// repeat it is the state after the first call; see StateErr. A repeated refusal has none.
	State S
	// Version is the version after the command. When nothing was written it is the version that was read.
	Version eventstore.Version
	// Written is the number of events that the command wrote, when it was first executed.
	Written int
	// Token is what a reader waits for to see the command's events; see [eventstore.Token]. It is zero when nothing
	// was written: the events that the decision was made on have tokens of their own.
	Token eventstore.Token
	// Repeated: the command's key was known, and this is the outcome of the first call.
	Repeated bool
	// Attempts is how often the decision was made, from 1; 0 when a repeat was recognised before.
	Attempts int
	// Merged is how often the events were put behind others that left the decision right; see [Unaffected].
	Merged int
	// StateErr is why State is missing from a repeat: the stream could not be loaded. The command took effect all the
	// same. Nil otherwise.
	StateErr error
}

type versionOption struct{ want eventstore.ExpectedVersion }

func (o versionOption) applyHandle(c *handleConfig) { c.want = &o.want }

// IfVersion lets Handle decide only if the claim about the aggregate's version holds when it is loaded, and when its
// events are stored; else the answer is a [*VersionError]. It is for callers who have seen a version and mean that
// one, such as a request with If-Match. A repeat of a command with a key is not checked: its version was right when it
// was first executed. For Handle only; with [Transact], which has [Member.Version], it is an error that
// matches [ErrMisuse].
func IfVersion(v eventstore.ExpectedVersion) HandleOption { return versionOption{v} }

// Handle lets the aggregate id decide, and stores its events.
//
// It loads the aggregate, calls decide with the state, and appends the events under the claim that the version is the
// one that was loaded. When another command was faster, or the database was busy, it loads what it has not seen and
// decides again, as often as [Retry] says; but see [Unaffected]. So decide may run more than once, and must depend on
// nothing but the state and the command: time, actor and random numbers are fields of the command.
//
//	result, err := accounts.Handle(ctx, "42", account.Withdraw{Cents: 40}.Decide)
//
// Commands of one repository on one aggregate follow each other in the order in which they came; see [WithoutLanes].
//
// No events are a success: nothing is written, and the version is not checked. An error of decide comes back as it is,
// with the state that it was decided on in the Result; nothing is written. Other errors are those of [Transact]. A
// panic of decide passes through, and nothing is written.
func (r *Repository[S, E]) Handle(ctx context.Context, id string, decide func(S) ([]E, error), opts ...HandleOption) (Result[S], error) {
	stream := r.typ.Stream(id)
	c := command{
		store: r.store, operation: "handle " + stream.String(), name: "handle " + r.typ.category,
		config:  handleConfig{retry: r.retry, observer: r.observer, want: versionOfContext(ctx)},
		streams: []eventstore.StreamID{stream},
	}
	for _, opt := range opts {
		opt.applyHandle(&c.config)
	}
	c.config.refusals = append(c.config.refusals, r.typ.refusals...)
	if r.lanes {
		c.lanes = []lane{{r.store, stream}}
	}
	var m *memberOf[S, E]
	c.run = func(w *Work) error {
		member := r.In(w, id)
		m = member.m
		if want := c.config.want; want != nil {
			have, err := member.Version()
			if err != nil {
				return err
			}
			if !want.Holds(have) {
				return &VersionError{Stream: stream, Want: *want, Have: have}
			}
		}
		return member.Decide(decide)
	}
	receipt, err := c.execute(ctx)
	result := Result[S]{Attempts: receipt.Attempts, Merged: receipt.Merged, Repeated: receipt.Repeated, Token: receipt.Token}
	switch {
	case receipt.Repeated && err == nil:
		result.Written = receipt.events[stream]
		result.Version = receipt.Versions[stream]
		r.stateThen(ctx, stream, &result, receipt)
	case receipt.Repeated:
	case err == nil:
		result.State, result.Version, result.Written = m.state, m.version(), len(m.pending)
	case m != nil && m.work.failed == nil && len(m.pending) == 0:
		// Refused by the domain: what it was decided on is known and can be shown.
		result.State, result.Version = m.state, m.base.version
	}
	return result, err
}

// stateThen loads the state that the first call of a repeated command has led to.
func (r *Repository[S, E]) stateThen(ctx context.Context, stream eventstore.StreamID, result *Result[S], receipt Receipt) {
	version, known := receipt.Versions[stream]
	now, err := r.load(ctx, stream) // most repeats come before anything else, and this way is short
	if err == nil && known && now.version != version {
		now, err = r.loadAt(ctx, stream, version)
	}
	if err != nil {
		result.StateErr = fmt.Errorf("aggregate: load %s: %w", stream, err)
		return
	}
	result.State, result.Version = now.state, now.version
}
