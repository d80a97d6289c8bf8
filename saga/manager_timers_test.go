package saga

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// R-ST02: a timer that was claimed when its instance ended is counted, and no error.
func TestTimerOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	claimed, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := quick()
	cfg.Lease = 10 * time.Second // what is claimed is handed out also when the probe has held it for long
	cfg.Probe = func(place string) {
		if place == "claimed" {
			once.Do(func() {
				close(claimed)
				<-ended
			})
		}
	}
	m := w.manager(cfg, script(1))
	w.start(m)
	w.open("x", "timer late 1ms")
	<-claimed
	w.poke("x", "complete")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas")
	close(ended)
	livetest.Eventually(t, "the timer is counted", func() bool { return m.Stats()[0].TimersIgnored == 1 })
	if got := w.log("x", 1); got != "opened; poked" {
		t.Errorf("it has seen %q", got)
	}
	if s := m.Stats()[0]; s.TimersFired != 0 || s.TimersFailed != 0 {
		t.Errorf("fired %d, failed %d", s.TimersFired, s.TimersFailed)
	}
	if got := w.column("x", 1, "stuck"); got != "" {
		t.Errorf("it is stuck: %s", got)
	}
}

// R-ST04: timers of one moment and one instance all take effect; one whose reaction fails is tried with pauses, and then the
// instance is stuck until an operator retries.
func TestTimersOfOneMoment(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	w.start(m)
	w.open("x", "timer a 1ms", "timer b 1ms", "script fail", "timer c 1ms", "timer d 1ms", "timer e 1ms")
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
	livetest.Eventually(t, "the others have fired", func() bool {
		got := w.log("x", 1)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if strings.Count(got, "timer "+name) != 1 {
				return false
			}
		}
		return strings.Count(got, "timer") == 5
	}, func() string { return w.log("x", 1) })
	if got := w.column("x", 1, "stuck_text"); !strings.Contains(got, "timer do fail failed 3 times") || !strings.Contains(got, "as the script says") {
		t.Errorf("the reason is %q", got)
	}
	if got := w.value("SELECT string_agg(kind || ' ' || text, ', ') FROM daybook.saga_history WHERE kind = 'stuck'"); !strings.Contains(got, "failed 3 times") {
		t.Errorf("the history says %q", got)
	}
	if m.Stats()[0].TimersFailed != 1 {
		t.Errorf("%d timers were given up", m.Stats()[0].TimersFailed)
	}
	w.plan(flow.ActionRetry, "nothing", "", "x")
	w.becomes("failed again", "2", "SELECT count(*)::text FROM daybook.saga_history WHERE kind = 'stuck'")
	// A program that is mended.
	w.exec("UPDATE daybook.timers SET name = replace(name, 'do fail', 'do complete')")
	w.plan(flow.ActionRetry, "nothing", "", "x")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas")
}

// R-ST05: to cancel what is not set is harmless, also twice, and while it fires.
func TestCancelledTimers(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	reached, cancelled := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := quick()
	cfg.Lease = 10 * time.Second // what is claimed is handed out also when the probe has held it for long
	cfg.Probe = func(place string) {
		if place == "claimed" {
			once.Do(func() {
				close(reached)
				<-cancelled
			})
		}
	}
	m := w.manager(cfg, script(1))
	w.start(m)
	w.open("x", "cancel never", "cancel never", "timer firing 1ms", "timer other 1h")
	<-reached
	w.poke("x", "cancel firing", "cancel never")
	w.sees("x", 1, "opened; poked")
	w.poke("x", "cancel firing", "cancel other", "timer set 1ms", "cancel set")
	w.sees("x", 1, "opened; poked; poked")
	close(cancelled)
	livetest.Eventually(t, "the timer is counted", func() bool { return m.Stats()[0].TimersIgnored == 1 })
	if got, n := w.log("x", 1), w.number("SELECT count(*) FROM daybook.timers"); got != "opened; poked; poked" || n != 0 {
		t.Errorf("it has seen %q, %d timers are left", got, n)
	}
}

// R-ST06: a timer that is set again fires once, at the last time that was committed.
func TestTimerSetAgain(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	w.start(m)
	w.open("x", "timer reminder 20ms", "timer reminder 1h")
	w.sees("x", 1, "opened")
	w.poke("x", "timer reminder 2h", "timer reminder 1h")
	w.sees("x", 1, "opened; poked")
	w.append("failing", [16]byte{}, poked{"x", []string{"timer reminder 1ms", "fail"}}) // rolled back
	w.becomes("the letter", "parked", "SELECT coalesce((SELECT state FROM daybook.letters), '')")
	if n := w.number("SELECT count(*) FROM daybook.timers WHERE due_at > clock_timestamp() + interval '50 minutes'"); n != 1 {
		t.Errorf("%d timers wait for the last time", n)
	}
	w.poke("x", "timer reminder 1ms")
	w.sees("x", 1, "opened; poked; poked; timer reminder")
	livetest.Eventually(t, "the timer is counted", func() bool { return m.Stats()[0].TimersFired > 0 }) // behind the commit
	if fired := m.Stats()[0].TimersFired; fired != 1 {
		t.Errorf("it fired %d times", fired)
	}
}

// A clock that is given says when timers are due, and what is written down.
func TestTimersByAClock(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	clock := &steppedClock{at: noon}
	cfg := quick()
	cfg.Clock = clock.now
	w.start(w.manager(cfg, script(1)))
	w.open("x", "timer soon 10m", "timer late 20m")
	w.sees("x", 1, "opened")
	if got := w.column("x", 1, "started_at = '2026-01-02 12:00:00Z' AND changed_at = started_at"); got != "true" {
		t.Error("the row has times of another clock")
	}
	clock.step(noon.Add(599e9))
	clock.looked(t)
	if got := w.log("x", 1); got != "opened" {
		t.Errorf("too soon: %s", got)
	}
	clock.step(noon.Add(601e9))
	w.sees("x", 1, "opened; timer soon")
	clock.step(noon.Add(1201e9))
	w.sees("x", 1, "opened; timer soon; timer late")
}
