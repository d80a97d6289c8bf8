package timers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// State is what a runner does.
type State string

// The states of a runner.
const (
	Stopped State = "not running"
	Running State = "running"
	Waiting State = "waiting" // for the database; Reason says why
)

// Status is what a runner does, as this process knows it.
type Status struct {
	State  State
	Reason string
	Since  time.Time
	// Held are claimed and not yet due, or wait for a worker; Handling are in calls of the handler.
	Held, Handling int
	// Hung are the calls that ignore the ends of their contexts, the oldest first.
	Hung []Hung
	// Since the runner was made: timers whose handler returned nil, attempts at single timers that failed, and timers that
	// others took before this process handled them.
	Fired, Failed, Lost int64
	// ClaimedAt is when the database last answered a claim, by the process's clock.
	ClaimedAt time.Time
}

// Hung is a call of the handler that ignores the end of its context.
type Hung struct {
	Timers []string // their names
	Since  time.Time
}

// become reports whether the state changed.
func (s *Status) become(state State, reason string) bool {
	changed := s.State != state && s.State != ""
	if s.State != state {
		s.Since = time.Now()
	}
	first := s.State == Stopped || s.State == ""
	s.State, s.Reason = state, reason
	return changed && !first
}

// Status returns what the runner does. It touches no database.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.State == "" {
		s.State, s.Reason = Stopped, "call Run"
	}
	for _, e := range r.held {
		if !e.lost {
			s.Held++
		}
	}
	for c := range r.calls {
		s.Handling += len(c.entries)
		if c.hung {
			s.Hung = append(s.Hung, Hung{c.names(), c.began})
		}
	}
	slices.SortFunc(s.Hung, func(a, b Hung) int { return a.Since.Compare(b.Since) })
	return s
}

// Health says how the runner does, as this process knows it; it touches no database. It is not ready while it waits for the
// database, and when so many handlers hang that nothing else can run. One that hangs is a reason, no more. Whether timers
// are overdue all the same, because too few run or none, [Overdue] says.
func (r *Runner) Health(context.Context) eventstore.Health {
	s := r.Status()
	h := eventstore.Health{Component: "timers " + r.cfg.Queue, Ready: s.State == Running, State: string(s.State), Reason: s.Reason, Since: s.Since}
	if n := len(s.Hung); n > 0 {
		h.Reason = fmt.Sprintf("%d handlers ignore the end of their contexts, the first since %s, of %s: find out what they wait for, or restart the process",
			n, s.Hung[0].Since.UTC().Format(time.RFC3339), shortly(s.Hung[0].Timers))
		h.Ready = h.Ready && n < r.cfg.Workers+maxHung
	}
	return h
}

// ShutdownError says that handlers have not returned. Their timers were given back, so that they cannot finish them.
type ShutdownError struct{ Timers []string }

// Error names the first few timers.
func (e *ShutdownError) Error() string {
	return fmt.Sprintf("timers: run: handlers have not returned in time, of %s", shortly(e.Timers))
}

// shortly names the first few.
func shortly(names []string) string {
	const few = 5
	text := make([]string, 0, few)
	for _, name := range names[:min(few, len(names))] {
		text = append(text, fmt.Sprintf("%q", name))
	}
	if len(names) > few {
		text = append(text, fmt.Sprintf("and %d more", len(names)-few))
	}
	return strings.Join(text, ", ")
}

// lines lets one line a second through. It is safe for concurrent use.
type lines struct{ next atomic.Int64 }

func (l *lines) allows(now time.Time) bool {
	next := l.next.Load()
	return now.UnixNano() >= next && l.next.CompareAndSwap(next, now.Add(time.Second).UnixNano())
}
