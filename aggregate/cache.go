package aggregate

import (
	"context"

	"github.com/daybook-go/daybook/eventstore"
)

// keptState is a state set aside, with what is needed to go on from it.
type keptState[S any] struct {
	state kept[S]
	trail
}

// aside returns what was loaded in a form that nobody can change, to go on from later with loadFrom. It must be called
// before a decision is given the state. False: states of this type cannot be kept, or this one not; then load again.
func (r *Repository[S, E]) aside(l loaded[S]) (keptState[S], bool) {
	if l.kept != nil {
		return *l.kept, true
	}
	if r.vault == nil || l.version == 0 {
		return keptState[S]{}, false
	}
	state, err := r.vault.keep(l.state)
	return keptState[S]{state: state, trail: l.trail}, err == nil
}

// loadFrom reads the stream from the version of a state that was set aside, and folds what came after it. If the event
// at that version is not the remembered one, or the state cannot be opened, everything is loaded anew.
func (r *Repository[S, E]) loadFrom(ctx context.Context, stream eventstore.StreamID, from keptState[S]) (loaded[S], error) {
	state, stands, err := r.goOn(ctx, stream, from)
	if err != nil || stands {
		return state, err
	}
	r.forget(stream)
	return r.load(ctx, stream)
}

// goOn is loadFrom without another way out: stands is false when the state is not one of the stream's.
func (r *Repository[S, E]) goOn(ctx context.Context, stream eventstore.StreamID, from keptState[S]) (state loaded[S], stands bool, err error) {
	if from.version == 0 {
		return state, false, nil
	}
	opened, err := from.state.open()
	if err != nil {
		return state, false, nil
	}
	state = loaded[S]{state: opened, trail: from.trail}
	for recorded, err := range r.store.ReadStream(ctx, stream, eventstore.Range{From: from.version}) {
		switch {
		case err != nil:
			return loaded[S]{}, false, err
		case stands:
			if err := r.foldOne(&state, stream, recorded); err != nil {
				return loaded[S]{}, false, err
			}
		case recorded.Version != from.version || recorded.ID != from.last:
			return loaded[S]{}, false, nil
		default:
			stands = true
		}
	}
	if stands && state.version == from.version {
		state.kept = &from
	}
	return state, stands, nil
}

// put remembers the state that a command has committed. Without WithCache it does nothing.
func (r *Repository[S, E]) put(eventstore.StreamID, loaded[S], []eventstore.EventData, S) {}

// forget drops what is remembered of a stream, as after any error of a command on it. Without WithCache it does nothing.
func (r *Repository[S, E]) forget(eventstore.StreamID) {}
