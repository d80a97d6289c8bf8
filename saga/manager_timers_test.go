package saga

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// heldClaim is a configuration whose first claim of timers is held up: claimed is closed when it has come, and it is handed out
// when going is.
func heldClaim() (cfg Config, claimed, going chan struct{}) {
	claimed, going = make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg = quick()
	cfg.Lease = 10 * time.Second // what is claimed is handed out also when it was held up for long
	cfg.Probe = func(place string) {
		if place == "claimed" {
			once.Do(func() {
				close(claimed)
				<-going
			})
		}
	}
	return cfg, claimed, going
}

// R-ST02: a timer that was claimed when its instance ended is counted, and no error.
func TestTimerOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	cfg, claimed, ended := heldClaim()
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

// A timer after which the database refuses what is to be written is tried as often, and then its instance is stuck, and says
// so; what a definition refuses is no different.
func TestTimersThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.exec("ALTER TABLE sent ADD CONSTRAINT no_poison CHECK (step <> 'poison')")
	m := w.manager(quick(), script(1))
	w.start(m)
	w.open("x", "script send poison", "timer other 1ms")
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
	w.sees("x", 1, "opened; timer other")
	want := "timer do send poison failed 3 times: "
	why, err := Explain(t.Context(), w.pool, "script", "x")
	if err != nil {
		t.Fatal(err)
	}
	if !why.Stuck || why.Reason != flow.DeadLetter || !strings.Contains(why.Text, want) || !strings.Contains(why.Text, "no_poison") {
		t.Errorf("it is explained as %v, %q: %q", why.Stuck, why.Reason, why.Text)
	}
	if got := w.value("SELECT string_agg(text, '') FROM daybook.saga_history WHERE kind = 'stuck'"); !strings.Contains(got, want) {
		t.Errorf("the history says %q", got)
	}
	if n := m.Stats()[0].TimersFailed; n != 1 {
		t.Errorf("%d timers were given up", n)
	}
	w.exec("ALTER TABLE sent DROP CONSTRAINT no_poison")
	w.plan(flow.ActionRetry, "nothing", "", "x")
	w.becomes("sent", "1", "SELECT count(*)::text FROM sent")
	w.becomes("stuck", "", "SELECT stuck FROM daybook.sagas")
}

// What the database alone is to blame for uses up no attempt of a timer, however long it lasts.
func TestTimersOutlastTheDatabase(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"57014", "40001", "53300", "58030", "08006"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1))
			w.exec("CREATE SEQUENCE tries")
			w.exec(`CREATE FUNCTION is_away() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'away' USING ERRCODE = '` + code + `'; END $$`)
			w.exec("CREATE TRIGGER away BEFORE INSERT ON sent FOR EACH ROW EXECUTE FUNCTION is_away()")
			cfg := quick()
			cfg.Attempts = 2
			w.start(w.manager(cfg, script(1)))
			w.open("x", "script send one")
			livetest.Eventually(t, "it was tried more often than it may fail", func() bool { return w.number("SELECT last_value FROM tries") > 2 })
			if got := w.value("SELECT sum(attempts)::text FROM daybook.timers") + w.column("x", 1, "stuck"); got != "0" {
				t.Errorf("attempts and reason: %s", got)
			}
			w.exec("DROP TRIGGER away ON sent")
			w.becomes("sent", "1", "SELECT count(*)::text FROM sent")
		})
	}
}

// R-ST05: to cancel what is not set is harmless, also twice, and while it fires.
func TestCancelledTimers(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	cfg, reached, cancelled := heldClaim()
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
