package main

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

// quietTime is how long nobody must have been sent away until that is over.
const quietTime = 10 * time.Second

// door notes when the gate begins to send requests away and when that is over, with one line each, however many come. It
// is the gate's observer, and safe for concurrent use.
type door struct {
	eventstore.Observer
	log *slog.Logger

	mu     sync.Mutex
	since  time.Time // of the first that was sent away; zero when nobody is
	last   time.Time
	many   int
	over   *time.Timer // looks whether it is; nil when nobody is sent away
	closed bool
}

// newDoor passes on to another observer too, if there is one.
func newDoor(log *slog.Logger, other eventstore.Observer) *door {
	if other == nil {
		other = eventstore.NopObserver{}
	}
	return &door{Observer: other, log: log}
}

// ObserveAdmission notes a request that was sent away.
func (d *door) ObserveAdmission(o eventstore.AdmissionObservation) {
	d.Observer.ObserveAdmission(o)
	var away *admission.OverloadedError
	if !errors.As(o.Err, &away) || !d.count() {
		return
	}
	d.log.Warn("requests are sent away, as more come than can be done", "reason", string(away.Reason), "class", o.Class,
		"waiting", o.Queue, "atOnce", o.Limit)
}

// count reports whether it is the first one.
func (d *door) count() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.last = time.Now()
	d.many++
	if d.over != nil {
		return false
	}
	d.since = d.last
	d.over = time.AfterFunc(quietTime, d.look)
	return true
}

// look ends the state when it has been quiet for long enough, and else comes again.
func (d *door) look() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	if left := quietTime - time.Since(d.last); left > 0 {
		d.over.Reset(left)
		d.mu.Unlock()
		return
	}
	many, lasted := d.many, d.last.Sub(d.since)
	d.many, d.over, d.since = 0, nil, time.Time{}
	d.mu.Unlock()
	d.log.Info("requests are let in again", "sentAway", many, "within", lasted.Round(time.Millisecond))
}

// close ends it; what is noted later is passed on and nothing more.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.over != nil {
		d.over.Stop()
	}
}
