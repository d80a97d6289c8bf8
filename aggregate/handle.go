package aggregate

import (
	"context"

	"github.com/daybook-go/daybook/eventstore"
)

// Result is what a command did.
type Result[S any] struct {
	// State is the state after the command. It belongs to the caller, and equals what the next Load would find.
	State S
	// Version is the version after the command. When nothing was written it is the version that was read.
	Version eventstore.Version
	// Written is the number of events that the command wrote.
	Written int
	// Token is what a reader waits for to see the command's events; see [eventstore.Token]. It is zero when nothing
	// was written: the events that the decision was made on have tokens of their own.
	Token eventstore.Token
	// Attempts is how often the decision was made, from 1.
	Attempts int
}

// Handle lets the aggregate id decide, and stores its events.
//
// It loads the aggregate, calls decide with the state, and appends the events under the claim that the version is the
// one that was loaded. When another command was faster, or the database was busy, it begins again with loading, as
// often as [Retry] says. So decide may run more than once, and must depend on nothing but the state and the command:
// time, actor and random numbers are fields of the command.
//
//	result, err := accounts.Handle(ctx, "42", account.Withdraw{Cents: 40}.Decide)
//
// No events are a success: nothing is written, and the version is not checked. An error of decide comes back as it is,
// with the state that it was decided on in the Result; nothing is written. Other errors are those of [Transact]. A
// panic of decide passes through, and nothing is written.
func (r *Repository[S, E]) Handle(ctx context.Context, id string, decide func(S) ([]E, error), opts ...HandleOption) (Result[S], error) {
	config := handleConfig{retry: r.retry}
	for _, opt := range opts {
		opt.applyHandle(&config)
	}
	var m *memberOf[S, E]
	run := func(w *Work) error {
		member := r.In(w, id)
		m = member.m
		return member.Decide(decide)
	}
	receipt, err := transact(ctx, r.store, run, config, "handle "+r.typ.Stream(id).String())
	result := Result[S]{Attempts: receipt.Attempts}
	if err == nil {
		result.Version, result.Token, result.Written = m.version(), receipt.Token, len(m.pending)
		result.State = m.state
		return result, nil
	}
	if m != nil && m.work.failed == nil && len(m.pending) == 0 {
		// Refused by the domain: what it was decided on is known and can be shown.
		result.State, result.Version = m.state, m.base.version
	}
	return result, err
}
