package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
	"github.com/daybook-go/daybook/internal/parking"
)

// Health says how the sagas of this manager are doing, as this process knows it; it does not touch the database. Each saga has
// a part for its events, one for its replies, one for its timers and one for what operators decide. Not ready are those
// that wait for something that is away, retry in place, or have stopped. What another process works on is ready in state
// "standby". Definitions that do not return, and still run, are counted in the reason, with the one that has done so for
// longest; see Config.Timeout. Timers that are due and wait are a reason too, which says for what. When they have waited for
// 30 s, or nobody has fired others for so long, they are not ready, in state "overdue". What has set sequences aside is ready
// in state "degraded", and so is a saga that has instances that are stuck: the reason counts them, up to 1,000, as Config.Poll
// lets it see, and [List] has them. Of a saga of which a newer version is installed than any here, events stand by, and the
// reason says so; when nobody has taken them for six times Config.Lease they are not ready, in state "outdated", and the
// reason has the remedy.
func (m *Manager) Health(ctx context.Context) eventstore.Health {
	h := eventstore.Health{Component: "sagas", Ready: m.running.Load(), State: "running"}
	if !h.Ready {
		h.State, h.Reason = "not running", "call Run"
	}
	keepers := m.keepers.Load()
	for n, u := range m.units {
		m.addEvents(&h, u)
		m.add(&h, fmt.Sprintf("saga %s replies", u.name), u.replies.Status())
		if r := m.runners[n]; r != nil {
			part := r.Health(ctx)
			part.Component = fmt.Sprintf("saga %s timers", u.name)
			late := ""
			if keepers != nil {
				late = (*keepers)[n].lateness()
			}
			u.addTimers(&h, part, late)
		}
		if keepers != nil {
			join(&h, (*keepers)[n].health())
		}
	}
	return h
}

// addEvents also says why events are left to programs with a newer version. That is ready, as any standby is, unless nobody
// has taken them for a while.
func (m *Manager) addEvents(h *eventstore.Health, u *unit) {
	component, s := fmt.Sprintf("saga %s events", u.name), u.events.Load().Status()
	if s.State == consumer.Standby {
		why, missing := u.told()
		if !missing.IsZero() {
			join(h, eventstore.Health{Component: component, State: "outdated", Reason: sentences(s.Hung, why), Since: missing})
			return
		}
		if why != "" {
			s.Reason = why
		}
	}
	m.add(h, component, s)
}

// addTimers also says that timers wait, for what, and since when. That is ready for as long as timers may be late. Those that
// wait are claimed again and again, so that they are not among those that nobody has claimed.
func (u *unit) addTimers(h *eventstore.Health, part eventstore.Health, late string) {
	since, cause := u.waitsSince()
	if !part.Ready { // then they wait for something else first
		since = time.Time{}
	}
	waits := "timers that are due since " + since.UTC().Format(time.RFC3339) + " wait: " + cause
	switch {
	case since.IsZero() && late == "":
	case since.IsZero():
		part.Ready, part.State, part.Reason = false, "overdue", late
	case time.Since(since) > overdueAfter:
		part.Ready, part.State, part.Reason, part.Since = false, "overdue", sentences(waits, part.Reason), since
	case late != "": // others
		part.Ready, part.State, part.Reason = false, "overdue", sentences(late, waits)
	default:
		part.Reason = sentences(part.Reason, waits)
	}
	join(h, part)
}

func (m *Manager) add(h *eventstore.Health, component string, s consumer.Status) {
	part := eventstore.Health{Component: component, State: string(s.State), Reason: sentences(s.Hung, s.Reason), Since: s.Since}
	switch s.State {
	case consumer.Running, consumer.Standby, consumer.Paused:
		part.Ready = true
		if aside := s.Parked.Aside(); aside != "" {
			part.State, part.Reason, part.Since = parking.Degraded, sentences(s.Hung, aside), s.Parked.Oldest
		}
	}
	if s.Hung != "" && part.Ready && h.Ready && h.Reason == "" {
		h.Reason = component + ": " + s.Hung
	}
	join(h, part)
}

func sentences(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// join adds a part. The first that is not ready stands for all; the others are in Parts.
func join(h *eventstore.Health, part eventstore.Health) {
	h.Parts = append(h.Parts, part)
	switch {
	case !part.Ready && h.Ready:
		h.Ready, h.State, h.Since = false, part.State, part.Since
		h.Reason = part.Component + " " + part.State + ": " + part.Reason
	case part.State == parking.Degraded && h.State == "running":
		h.State, h.Since, h.Reason = parking.Degraded, part.Since, part.Component+": "+part.Reason
	}
}

// hangs is how long after the end of its context a definition may return before it hangs.
const hangs = time.Second

func (k *keeper) health() eventstore.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := eventstore.Health{Component: fmt.Sprintf("saga %s manager", k.u.name), Ready: k.away == "", State: "running", Since: k.since}
	switch {
	case !h.Ready:
		h.State, h.Reason = string(consumer.Waiting), k.away
	case k.stuck.n > 0:
		h.State, h.Reason = parking.Degraded, k.stuck.String()
		if k.stuck.since != nil {
			h.Since = *k.stuck.since
		}
	}
	if !k.busy.IsZero() && time.Since(k.busy) > k.u.cfg.Timeout+hangs {
		h.Ready, h.State, h.Since = false, "hung", k.busy
		h.Reason = fmt.Sprintf("a definition ignores the end of its context, which came after %v (Config.Timeout), and holds up what was kept and what "+
			"operators decide: let it return, and start the process again", k.u.cfg.Timeout)
	}
	return h
}

func (k *keeper) lateness() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overdue
}

// Stats are totals of one saga since its Manager was made, in this process.
type Stats struct {
	Saga string
	// Started and Ended instances; Reactions to events, replies and timers; inputs Ignored because they changed nothing, came
	// again, or were too late; inputs Held because an instance was paused or its version is not here.
	Started, Ended, Reactions, Ignored, Held int64
	// Sent commands, those sent again included.
	Sent int64
	// Timers that were set, fired, ignored because their instance had ended or they were cancelled or set anew, and given up.
	TimersSet, TimersFired, TimersIgnored, TimersFailed int64
	// Stuck instances: how often one became stuck, or stuck for another reason or at another step. Each is a line in the log,
	// ten a second at most.
	Stuck int64
	// Acted are the items of plans that were carried out, of which Refused changed nothing.
	Acted, Refused int64
	// Cleaned instances, or commands of a reactor, were removed after Config.KeepEnded.
	Cleaned int64
}

// Stats returns the totals of each saga, in the order in which they were passed first.
func (m *Manager) Stats() []Stats {
	all := make([]Stats, len(m.units))
	for n, u := range m.units {
		s := &u.sum
		all[n] = Stats{
			Saga: u.name, Started: s.started.Load(), Ended: s.ended.Load(), Reactions: s.reactions.Load(), Ignored: s.ignored.Load(),
			Held: s.held.Load(), Sent: s.sent.Load(), TimersSet: s.timersSet.Load(), TimersFired: s.timersFired.Load(),
			TimersIgnored: s.timersIgnored.Load(), TimersFailed: s.timersFailed.Load(), Stuck: s.stuck.Load(), Acted: s.acted.Load(), Refused: s.refused.Load(),
			Cleaned: s.cleaned.Load(),
		}
	}
	return all
}
