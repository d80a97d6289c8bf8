package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// complainEvery is the shortest time between two lines about messages that cannot be read.
const complainEvery = time.Minute

// state is what an inbox shows of itself.
type state struct {
	log *slog.Logger

	received, repeated, refused, stored atomic.Int64

	mu            sync.Mutex
	broker        string // why there is no subscription
	subscriptions int
	gaps          []Gap
	lag           time.Duration
	last          time.Time
	complained    time.Time
}

// Stats are totals since the Inbox was made, of this process.
type Stats struct {
	// Received messages, of any kind.
	Received int64
	// Repeated messages had taken effect before, or had their place.
	Repeated int64
	// Refused messages could not be read, which made them letters, or were of an earlier epoch.
	Refused int64
	// Stored messages came too early, and were kept in the database.
	Stored int64
}

// Stats returns the totals.
func (in *Inbox) Stats() Stats {
	s := &in.state
	return Stats{s.received.Load(), s.repeated.Load(), s.refused.Load(), s.stored.Load()}
}

// Lag says how far an inbox is behind, as far as it can know without the publishing store.
type Lag struct {
	// Delay is how long after it was recorded the newest message of the last batch had taken effect. It is measured with the
	// clocks of two machines.
	Delay time.Duration
	// At is when that was; zero before the first. What comes later is not known before it comes.
	At time.Time
	// Subscribed: this process works on the inbox, and the broker has taken its subscription.
	Subscribed bool
	// Gaps are the partitions that wait for something that has been missing for longer than Config.GapAfter.
	Gaps []Gap
}

// Lag returns what this process knows; one that stands by knows nothing.
func (in *Inbox) Lag() Lag {
	in.state.mu.Lock()
	defer in.state.mu.Unlock()
	return Lag{in.state.lag, in.state.last, in.state.subscriptions > 0, slices.Clone(in.state.gaps)}
}

// Health says how the inbox is doing, as this process knows it; it touches neither database nor broker. It is not ready
// when it waits for something that is away, has stopped, or a gap has lasted for longer than Config.GapAfter.
// One that has set something aside is ready in state "degraded", and the reason counts it; a partition key whose message is
// set aside by the publisher's relay counts as one that drains. The reason says too which handlers ignore the end of their
// context and still run.
func (in *Inbox) Health(context.Context) eventstore.Health {
	s := in.worker.Status()
	h := eventstore.Health{
		Component: fmt.Sprintf("inbox %s v%d of %s", in.ref.Name, in.ref.Version, in.cfg.Topic), State: string(s.State), Reason: s.Reason, Since: s.Since,
	}
	switch s.State {
	case consumer.Running, consumer.Standby, consumer.Paused:
		h.Ready = true
	}
	if !in.running.Load() {
		h.Ready, h.State, h.Reason = false, "not running", "call Run"
		return h
	}
	in.state.mu.Lock()
	defer in.state.mu.Unlock()
	if s.State != consumer.Running {
		return h
	}
	switch {
	case in.state.broker != "":
		h.Ready, h.State, h.Reason = false, "waiting", in.state.broker
	case len(in.state.gaps) > 0:
		g := in.state.gaps[0]
		h.Ready, h.State, h.Since = false, "gap", g.Since
		h.Reason = (&GapError{in.ref.Name, in.cfg.Topic, g}).Error()
	case s.Parked.Aside() != "":
		h.State, h.Reason, h.Since = parking.Degraded, s.Parked.Aside(), s.Parked.Oldest
	}
	if s.Hung != "" {
		h.Reason = strings.TrimSuffix(s.Hung+"; "+h.Reason, "; ")
	}
	return h
}

// subscribed notes that a subscription has begun or ended, and why there is none.
func (s *state) subscribed(n int, reason string) {
	s.mu.Lock()
	s.subscriptions += n
	changed := (s.broker == "") != (reason == "")
	s.broker = reason
	s.mu.Unlock()
	switch {
	case changed && reason != "":
		s.log.Warn("inbox waits for the broker", "reason", reason)
	case changed:
		s.log.Info("inbox subscribed")
	}
}

func (s *state) applied(recorded, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag, s.last = max(now.Sub(recorded), 0), now
}

func (s *state) complain(now time.Time, err error) {
	s.mu.Lock()
	quiet := !s.complained.IsZero() && now.Sub(s.complained) < complainEvery
	if !quiet {
		s.complained = now
	}
	s.mu.Unlock()
	if !quiet {
		s.log.Warn("a message cannot be read, and is kept as a letter", "error", err.Error(), "refused", s.refused.Load())
	}
}

// report raises the alarm for gaps that are new, and says which are gone.
func (in *Inbox) report(gaps []Gap) {
	in.state.mu.Lock()
	before := in.state.gaps
	in.state.gaps = gaps
	in.state.mu.Unlock()
	among := func(all []Gap, p int) bool {
		return slices.ContainsFunc(all, func(g Gap) bool { return g.Partition == p })
	}
	for _, g := range gaps {
		if among(before, g.Partition) {
			continue
		}
		err := &GapError{in.ref.Name, in.cfg.Topic, g}
		in.state.log.Error("inbox has a gap", "partition", g.Partition, "error", err.Error())
		in.cfg.Observer.ObserveFailure(eventstore.FailureObservation{
			Consumer: in.ref.Name, Version: in.ref.Version, Topic: in.cfg.Topic, Kind: eventstore.Transient, Parked: true, Err: err,
		})
	}
	for _, g := range before {
		if !among(gaps, g.Partition) {
			in.state.log.Info("inbox has a gap no longer", "partition", g.Partition)
		}
	}
}
