package aggregate

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/eventstore"
)

// Member is one aggregate in a [Work]; [Repository.In] makes it. Like the Work, it is for one goroutine, and over when
// the run is.
//
// Once a method has failed because of the store, the Work cannot succeed any more: Transact returns that error, or runs
// the work again, whatever run makes of it.
type Member[S, E any] struct {
	m   *memberOf[S, E]
	err error
}

// In returns the aggregate id as a member of w. Asking twice gives the same member. Nothing is read until it is needed.
//
// The member's methods return an error that matches [ErrMisuse] when w belongs to another store than r, when w is over,
// or when another repository has taken part in w with the same aggregate: two of them could not see each other's
// decisions.
func (r *Repository[S, E]) In(w *Work, id string) Member[S, E] {
	stream := r.typ.Stream(id)
	if w.over.Load() {
		return Member[S, E]{err: misuse("%s was asked for after the run of the work was over: use a Work only inside its run", stream)}
	}
	if !same(w.store, r.store) {
		return Member[S, E]{err: w.fail(misuse("%s belongs to a repository on another store than the work: one append cannot span both", stream))}
	}
	if known, found := w.members[stream]; found {
		m, ok := known.(*memberOf[S, E])
		if !ok || m.repository != r {
			return Member[S, E]{err: w.fail(misuse("%s takes part through two repositories: use one repository for it", stream))}
		}
		return Member[S, E]{m: m}
	}
	m := &memberOf[S, E]{repository: r, work: w, id: stream}
	w.members[stream] = m
	w.order = append(w.order, m)
	return Member[S, E]{m: m}
}

// State returns the state of the aggregate with everything that the work has decided for it so far, reading it first
// if need be. The zero state of an aggregate without events is no error; see Version.
//
// The state is a value, but maps and slices in it are those that the next decision sees: they must not be changed.
func (m Member[S, E]) State() (S, error) {
	if err := m.ready(true); err != nil {
		var none S
		return none, err
	}
	m.m.asked = true
	return m.m.state, nil
}

// Version returns the version that the aggregate will have when the work succeeds as it stands, reading the aggregate
// first if need be. 0 means that it does not exist.
func (m Member[S, E]) Version() (eventstore.Version, error) {
	if err := m.ready(true); err != nil {
		return 0, err
	}
	m.m.asked = true
	return m.m.version(), nil
}

// Decide lets the aggregate decide. Its events are stored when the run is over, and later decisions of this work see
// them. An error of decide comes back as it is and leaves the member as it was; run may go on. No events: nothing is
// written to the aggregate.
func (m Member[S, E]) Decide(decide func(S) ([]E, error)) error {
	if err := m.ready(true); err != nil {
		return err
	}
	return m.m.decide(decide)
}

// Create lets an aggregate decide that does not exist yet. It is not read: the claim that it has no events is made in
// the append. If it has, Transact returns an [*ExistsError], without trying again. When the work has read the aggregate
// already and found events, Create itself returns that error, and run may go on.
func (m Member[S, E]) Create(decide func(S) ([]E, error)) error {
	if err := m.ready(false); err != nil {
		return err
	}
	if v := m.m.version(); v > 0 {
		m.m.asked = true
		return &ExistsError{Stream: m.m.id, Version: v}
	}
	m.m.known, m.m.create = true, true
	return m.m.decide(decide)
}

// ready reports why the member cannot be used, and loads it if asked to.
func (m Member[S, E]) ready(load bool) error {
	switch {
	case m.err != nil:
		return m.err
	case m.m == nil:
		return misuse("a Member was used that Repository.In did not make")
	case m.m.work.over.Load():
		return misuse("%s was used after the run of the work was over: use a Member only inside its run", m.m.id)
	case m.m.work.failed != nil:
		return m.m.work.failed
	}
	if load {
		return m.m.load()
	}
	return nil
}

// memberOf is the aggregate behind a [Member]. It holds what is pending for as long as the run, and no longer: a run
// that fails leaves nothing behind that a later command could see.
type memberOf[S, E any] struct {
	repository *Repository[S, E]
	work       *Work
	id         eventstore.StreamID
	known      bool // base and state are set
	create     bool
	asked      bool      // the run has learnt more about the state than that its decisions were right
	base       loaded[S] // as read; its state is given to decisions
	state      S         // with what is pending
	pending    []eventstore.EventData
	// aside is base where nothing can change it, if canMerge.
	aside    keptState[S]
	canMerge bool
}

// load reads the aggregate, or what an earlier run of the command has not seen of it.
func (m *memberOf[S, E]) load() error {
	if m.known {
		return nil
	}
	r, w := m.repository, m.work
	var base loaded[S]
	var err error
	if seen, ok := w.aside[m.id].(keptState[S]); ok {
		base, err = r.loadFrom(w.ctx, m.id, seen)
	} else {
		base, err = r.load(w.ctx, m.id)
	}
	if err != nil {
		return w.fail(classify(w.operation, err))
	}
	m.setBase(base)
	return nil
}

// setBase goes on from what was read, and sets it aside before a decision has it in its hands.
func (m *memberOf[S, E]) setBase(base loaded[S]) {
	m.aside, m.canMerge = m.repository.aside(base)
	if m.canMerge {
		m.work.aside[m.id] = m.aside
	} else {
		delete(m.work.aside, m.id)
		m.canMerge = base.version == 0 // the state of no events needs no keeping
	}
	m.base, m.state, m.known = base, base.state, true
}

func (m *memberOf[S, E]) decide(decide func(S) ([]E, error)) error {
	events, err := decide(m.state)
	if err != nil || len(events) == 0 {
		m.asked = true // who goes on now does so because of the state
		return err
	}
	typ := m.repository.typ
	stored := make([]eventstore.EventData, len(events))
	back := make([]E, len(events))
	for i, event := range events {
		stored[i], back[i], err = typ.stored(m.id, m.version()+eventstore.Version(i)+1, event)
		if err != nil {
			// Not an answer of the domain: run cannot sensibly go on without an event that it decided.
			return m.work.fail(&storeError{m.work.operation, fmt.Errorf("event %d of %s: %w", i+1, m.id, err)})
		}
	}
	m.state = typ.Fold(m.state, back...)
	m.pending = append(m.pending, stored...)
	return nil
}

func (m *memberOf[S, E]) stream() eventstore.StreamID { return m.id }

func (m *memberOf[S, E]) version() eventstore.Version {
	return m.base.version + eventstore.Version(len(m.pending))
}

func (m *memberOf[S, E]) created() bool { return m.create }

func (m *memberOf[S, E]) lane() (lane, bool) {
	return lane{m.repository.store, m.id}, m.repository.lanes
}

func (m *memberOf[S, E]) refusals() []Refusal { return m.repository.typ.refusals }

func (m *memberOf[S, E]) forget() { m.repository.forget(m.id) }

func (m *memberOf[S, E]) write() (eventstore.Write, bool) {
	write := eventstore.To(m.id, eventstore.Exactly(m.base.version), m.pending...)
	if key := m.repository.typ.partitionKey; key != nil {
		write.PartitionKey = key(m.id.ID)
	}
	return write, m.known
}

func (m *memberOf[S, E]) committed(ctx context.Context) {
	if len(m.pending) > 0 {
		// In this order: a snapshot, which is stored beside us, is noted with the state that is remembered.
		m.repository.put(m.id, m.base, m.pending, m.state)
		m.repository.takeSnapshot(ctx, m.id, m.base, m.pending, m.stored)
	}
}

// stored is the state that the stored events lead to. That of the member has been in the hands of decisions, which may
// have changed a map of it, and a snapshot must not keep that.
func (m *memberOf[S, E]) stored() (state S, err error) {
	r := m.repository
	switch {
	case r.vault != nil && r.vault.plain, !m.canMerge && m.base.version > 0:
		return m.state, nil
	case m.base.version > 0:
		if state, err = m.aside.state.open(); err != nil {
			return state, err
		}
	}
	for i := range m.pending {
		event, err := r.typ.decode(eventstore.RecordedEvent{EventData: m.pending[i], Stream: m.id, Version: m.base.version + eventstore.Version(i) + 1})
		if err != nil {
			return state, err
		}
		state = r.typ.evolve(state, event)
	}
	return state, nil
}
