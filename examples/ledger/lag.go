package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

// lagMeter measures how long after each write the last of the read models showed it. It is an observer of the runner
// and safe for concurrent use.
type lagMeter struct {
	eventstore.Observer
	now func() time.Time

	mu     sync.Mutex
	writes []write
	models map[string]*follower
}

// write is one append: when the writer had its answer, and how far behind the slowest read model was.
type write struct {
	position eventstore.Position
	at       time.Time
	lag      time.Duration
}

// follower is how far one read model has come.
type follower struct {
	through eventstore.Position
	seen    int // writes before this one are shown
	moved   bool
}

func newLagMeter(now func() time.Time) *lagMeter {
	m := &lagMeter{Observer: eventstore.NopObserver{}, now: now, models: map[string]*follower{}}
	for _, model := range reports.All() {
		m.models[model.ConsumerRef().Name] = &follower{}
	}
	return m
}

// watching passes on to another observer too, if there is one.
func (m *lagMeter) watching(other eventstore.Observer) eventstore.Observer {
	if other != nil {
		m.Observer = other
	}
	return m
}

// wrote notes an append that was just confirmed.
func (m *lagMeter) wrote(token eventstore.Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := write{at: m.now()}
	for _, mark := range token.Marks() {
		if mark.Position.After(w.position) {
			w.position = mark.Position
		}
	}
	m.writes = append(m.writes, w)
	for _, model := range m.models { // a read model may be faster than the answer to the writer
		m.advance(model, w.at)
	}
}

// ObserveBatch notes a batch that a read model has committed.
func (m *lagMeter) ObserveBatch(o eventstore.BatchObservation) {
	m.Observer.ObserveBatch(o)
	m.mu.Lock()
	defer m.mu.Unlock()
	if model := m.models[o.Consumer]; model != nil && o.Err == nil {
		model.through, model.moved = o.Through, true
		m.advance(model, m.now())
	}
}

func (m *lagMeter) advance(model *follower, now time.Time) {
	for ; model.seen < len(m.writes) && !m.writes[model.seen].position.After(model.through); model.seen++ {
		w := &m.writes[model.seen]
		w.lag = max(w.lag, now.Sub(w.at))
	}
}

// summary says how far the read models lagged, once they are known to have caught up.
func (m *lagMeter) summary(caughtUp time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, model := range m.models {
		if !model.moved {
			return "kept by another program, so the lag is not known"
		}
		// Committed, and not observed yet.
		for ; model.seen < len(m.writes); model.seen++ {
			w := &m.writes[model.seen]
			w.lag = max(w.lag, caughtUp.Sub(w.at))
		}
	}
	lags := make([]time.Duration, len(m.writes))
	for i, w := range m.writes {
		lags[i] = w.lag
	}
	slices.Sort(lags)
	return fmt.Sprintf("lagged %s in the median and %s at most", lags[len(lags)/2].Round(100*time.Microsecond), lags[len(lags)-1].Round(100*time.Microsecond))
}
