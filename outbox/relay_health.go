package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// Health says how the relay is doing, as this process knows it; it touches neither database nor broker. It is the worst of
// its segments, whose own healths are the parts. It is not ready while it waits for something that is away, such as a
// broker that does not take a message or a publisher that has not returned for five seconds, when it has stopped, and when
// a segment of the store has had no owner for longer than a lease. A relay that waits while other processes publish is
// ready in state "standby"; one that has set aside what the broker refused is ready in state "degraded", and the reason
// counts it. How long messages wait is what [Relay.Lag] tells, and the health of the store.
func (r *Relay) Health(context.Context) eventstore.Health {
	h := eventstore.Health{Component: "relay"}
	if !r.running.Load() {
		h.State, h.Reason = "not running", "call Run"
		return h
	}
	parts := make([]eventstore.Health, len(r.segments))
	var aside parking.Counts
	for i, s := range r.segments {
		parts[i] = s.health()
		if parts[i].State == parking.Degraded {
			aside = aside.Plus(s.worker.Status().Parked)
		}
	}
	h = worst(parts)
	if h.Ready && aside.Aside() != "" {
		h.State, h.Reason, h.Since = parking.Degraded, aside.Aside(), aside.Oldest
	}
	h.Component, h.Parts = "relay", parts
	if h.Ready && h.State != string(consumer.Paused) {
		for _, m := range r.member.Missing() {
			if time.Since(m.Since) > r.member.Lease()+time.Second {
				h.Ready, h.State, h.Since = false, string(consumer.Waiting), m.Since
				h.Reason = fmt.Sprintf("no relay has published segment %d since %s, although one lives that should: look at `daybook status` and at the log of that process",
					m.Segment, m.Since.UTC().Format(time.RFC3339))
				break
			}
		}
	}
	return h
}

// worst is the health that matters most: of those that are not ready one that has stopped, or the oldest; then one that
// works.
func worst(parts []eventstore.Health) eventstore.Health {
	rank := func(h eventstore.Health) int {
		switch {
		case !h.Ready && h.State == string(consumer.Stopped):
			return 0
		case !h.Ready:
			return 1
		case h.State == string(consumer.Running), h.State == parking.Degraded:
			return 2
		case h.State == string(consumer.Paused):
			return 3
		}
		return 4
	}
	return slices.MinFunc(parts, func(a, b eventstore.Health) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since))
	})
}

func (s *segment) health() eventstore.Health {
	h := eventstore.Health{Component: fmt.Sprintf("relay segment %d", s.number)}
	status := s.worker.Status()
	h.State, h.Reason, h.Since = string(status.State), status.Reason, status.Since
	switch status.State {
	case consumer.Standby, consumer.Paused:
		h.Ready = true
	case consumer.Running:
		if c, late := s.watch.late(); late {
			h.State, h.Reason, h.Since = string(consumer.Waiting), c.text(), c.began
			return h
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.trouble != nil {
			h.State, h.Reason, h.Since = string(consumer.Waiting), s.trouble.Error(), s.since
			return h
		}
		h.Ready = true
		if aside := status.Parked.Aside(); aside != "" {
			h.State, h.Reason, h.Since = parking.Degraded, aside, status.Parked.Oldest
		}
	}
	return h
}

// troubled notes what the broker did not take, with a line in the log when that begins.
func (r *segment) troubled(err *PublishError) {
	r.mu.Lock()
	first := r.trouble == nil
	r.trouble = err
	if first {
		r.since = time.Now()
	}
	r.mu.Unlock()
	if first {
		log := r.log
		if stack := consumer.StackOf(err); stack != "" {
			log = log.With("stack", stack)
		}
		log.Warn("relay waits for the broker", "reason", consumer.ReasonOf(err))
	}
}

func (r *segment) recovered() {
	r.mu.Lock()
	was, since := r.trouble, r.since
	r.trouble = nil
	r.mu.Unlock()
	if was != nil {
		r.log.Info("relay no longer waits for the broker", "attempts", was.Attempt, "waited", time.Since(since))
	}
}

// watch notices a publisher that does not return, with a line in the log when that begins and when it is over. Nothing can
// be done about it from here. Its methods may be called on nil, which does not watch.
type watch struct {
	limit time.Duration // of one call

	mu    sync.Mutex
	log   *slog.Logger
	lanes *lanes      // whose calls they are
	timer *time.Timer // of the round; nil before the first one
	round bool        // one is under way
	said  call        // in the log, of this round
}

// watches makes lanes tell of what they do.
func (r *segment) watches(l *lanes) {
	w := r.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes, l.watch = l, w
}

// late returns a call that has lasted too long.
func (w *watch) late() (call, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes == nil {
		return call{}, false
	}
	c, some := w.lanes.oldest()
	return c, some && time.Since(c.began) >= w.limit
}

// begin and end are called around each round of the lanes.
func (w *watch) begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.look)
	} else {
		w.timer.Reset(w.limit)
	}
}

func (w *watch) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round = false
	w.timer.Stop()
	if was := w.said; !was.began.IsZero() {
		w.said = call{}
		w.log.Info("relay no longer waits for the publisher", "topic", was.topic, "position", was.position, "waited", time.Since(was.began))
	}
}

// look is called by the timer while a round lasts, until there is something to say.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.round {
		return
	}
	c, some := w.lanes.oldest()
	rest := w.limit
	if some {
		rest -= time.Since(c.began)
	}
	if rest > 0 {
		w.timer.Reset(rest)
		return
	}
	w.said = c
	w.log.Warn("relay waits for the publisher", "reason", c.text())
}

func (c call) text() string {
	return fmt.Sprintf("publishing position %s on topic %q has not returned for %v: give the publisher a time-out",
		c.position, c.topic, time.Since(c.began).Round(time.Millisecond))
}
