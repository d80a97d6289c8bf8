package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/examples/ledger/reports"
)

// lagMeter measures how long after each write it was published, and how long after it the last of the read models showed
// it. It is an observer of the relay and of the projections, and safe for concurrent use.
type lagMeter struct {
	eventstore.Observer
	now func() time.Time

	mu     sync.Mutex
	writes []write
	relay  *follower
	models map[string]*follower
}

// write is one append: what it wrote in which partitions, and when the writer had its answer.
type write struct {
	marks []eventstore.Mark
	at    time.Time
}

// follower is how far the relay or one read model has come.
type follower struct {
	floor   eventstore.Position         // everything up to here
	further map[int]eventstore.Position // single partitions
	missing []int                       // writes that it has not come to
	lags    []time.Duration             // by write
	moved   bool
}

func newLagMeter(now func() time.Time) *lagMeter {
	m := &lagMeter{Observer: eventstore.NopObserver{}, now: now, relay: newFollower(), models: map[string]*follower{}}
	for _, model := range reports.All() {
		m.models[model.ConsumerRef().Name] = newFollower()
	}
	return m
}

func newFollower() *follower { return &follower{further: map[int]eventstore.Position{}} }

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
	w := write{marks: token.Marks(), at: m.now()}
	m.writes = append(m.writes, w)
	for _, f := range m.followers() { // which may be faster than the answer to the writer
		f.lags = append(f.lags, 0)
		f.missing = append(f.missing, len(m.writes)-1)
		f.advance(m.writes, w.at)
	}
}

func (m *lagMeter) followers() []*follower {
	all := []*follower{m.relay}
	for _, model := range m.models {
		all = append(all, model)
	}
	return all
}

// ObservePublish notes a page that the broker has taken.
func (m *lagMeter) ObservePublish(o eventstore.PublishObservation) {
	m.Observer.ObservePublish(o)
	if o.Err == nil {
		m.reached(m.relay, o.Through, nil)
	}
}

// ObserveBatch notes a batch that a read model has committed.
func (m *lagMeter) ObserveBatch(o eventstore.BatchObservation) {
	m.Observer.ObserveBatch(o)
	if model := m.models[o.Consumer]; model != nil && o.Err == nil {
		m.reached(model, o.Through, o.Marks)
	}
}

func (m *lagMeter) reached(f *follower, floor eventstore.Position, marks []eventstore.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.moved = true
	if floor.After(f.floor) {
		f.floor = floor
	}
	for _, mark := range marks {
		if mark.Position.After(f.further[mark.Partition]) {
			f.further[mark.Partition] = mark.Position
		}
	}
	f.advance(m.writes, m.now())
}

// advance notes the lag of each write that the follower has come to.
func (f *follower) advance(writes []write, now time.Time) {
	f.missing = slices.DeleteFunc(f.missing, func(i int) bool {
		if !f.shows(writes[i].marks) {
			return false
		}
		f.lags[i] = now.Sub(writes[i].at)
		return true
	})
}

func (f *follower) shows(marks []eventstore.Mark) bool {
	for _, mark := range marks {
		if mark.Position.After(f.floor) && mark.Position.After(f.further[mark.Partition]) {
			return false
		}
	}
	return true
}

// published says how far the relay lagged, once all is known to be published.
func (m *lagMeter) published(by time.Time) string { return m.summary(by, []*follower{m.relay}) }

// shown says how far the slowest read model lagged, once they are known to have caught up.
func (m *lagMeter) shown(by time.Time) string {
	var models []*follower
	for _, model := range m.models {
		models = append(models, model)
	}
	return m.summary(by, models)
}

// summary counts the slowest of some followers for each write.
func (m *lagMeter) summary(by time.Time, of []*follower) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lags := make([]time.Duration, len(m.writes))
	for _, f := range of {
		if !f.moved {
			return "not known, because another program did it"
		}
		for _, i := range f.missing { // committed, and not observed yet
			f.lags[i] = by.Sub(m.writes[i].at)
		}
		f.missing = nil
		for i, lag := range f.lags {
			lags[i] = max(lags[i], lag)
		}
	}
	slices.Sort(lags)
	return fmt.Sprintf("%s in the median, %s at most", lags[len(lags)/2].Round(100*time.Microsecond), lags[len(lags)-1].Round(100*time.Microsecond))
}
