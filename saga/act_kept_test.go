package saga

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/flow"
)

// keptFails makes an instance that cannot take the first of what was kept for it.
func (w *scriptWorld) keptFails(key string) {
	w.t.Helper()
	w.open(key)
	w.sees(key, 1, "opened")
	w.planEnds(w.plan(actionPause, "", "", key))
	w.poke(key, "fail")
	w.poke(key, "send two")
	w.becomes("what is kept", "2", "SELECT held::text FROM daybook.sagas WHERE key = $1", key)
	w.planEnds(w.plan(actionResume, "", "", key))
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas WHERE key = $1", key)
}

// Who decides for an instance that cannot take what was kept for it passes that by, in its history, for ever, or has it tried
// again; what was kept behind it is taken.
func TestOperatorsPassByWhatFails(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	for _, c := range []struct{ action, sees string }{
		{actionSkip, "opened; poked"},
		{flow.ActionCancel, "opened; action cancel send three; poked"},
	} {
		w.keptFails(c.action)
		if got := w.planEnds(w.plan(flow.ActionAnswer, "send none", "", c.action)); !strings.Contains(got, "comes first") {
			t.Errorf("the plan: %s", got)
		}
		if got := w.planEnds(w.plan(flow.ActionRetry, "", "", c.action)); !strings.HasPrefix(got, "1 done") {
			t.Errorf("the plan: %s", got)
		}
		step := ""
		if c.action == flow.ActionCancel {
			step = "send three"
		}
		if got := w.planEnds(w.plan(c.action, step, "", c.action)); !strings.HasPrefix(got, "1 done") {
			t.Errorf("the plan: %s", got)
		}
		w.sees(c.action, 1, c.sees)
		if got := w.column(c.action, 1, "stuck || held"); got != "0" {
			t.Errorf("it is %s", got)
		}
		if got := w.value("SELECT text || actor || reason FROM daybook.saga_history WHERE key = $1 AND kind = 'ignored' AND actor <> ''", c.action); got != "script.poked, which was kept for it and could not be taken, is passed byadabecause" {
			t.Errorf("the history says %q", got)
		}
		if got := w.column(c.action, 1, "entries"); got != w.value("SELECT count(*)::text FROM daybook.saga_history WHERE key = $1", c.action) {
			t.Errorf("the row counts %s lines of history", got)
		}
		if got := w.planEnds(w.plan(actionSkip, "", "", c.action)); !strings.Contains(got, "nothing that was kept for it fails") {
			t.Errorf("the plan: %s", got)
		}
	}
	stop()
	// It does not come again.
	w.rewind("script")
	w.start(w.manager(quick(), script(1)))
	w.open("z")
	w.sees("z", 1, "opened")
	if got := w.log(actionSkip, 1); got != "opened; poked" {
		t.Errorf("it has seen %s", got)
	}
}

// What fails of what was kept takes the place of what the instance was stuck for before, which comes back behind it.
func TestWhatWasKeptFailsForOneThatIsStuck(t *testing.T) {
	t.Parallel()
	type state struct{}
	var mended atomic.Bool
	key := KeyOf(func(e Event[poked]) string { return e.Payload.Key })
	ops := func(fx *Effects, all []string) {
		for _, op := range all {
			switch op {
			case "timer":
				fx.After("soon", 0)
			case "send":
				fx.Send("one", "a", state{})
				fx.Stuck("one", "nobody knows")
			case "fail":
				panic("a bug")
			}
		}
	}
	d := Define(Flow[state]{
		Name: "script", Version: 1, Events: scriptEvents, Start: StartOn(func(Event[opened]) state { return state{} }),
		Reactions: []Reaction[state]{
			React(func(s state, e Event[opened], fx *Effects) state { ops(fx, e.Payload.Ops); return s }),
			ReactKey(key, func(s state, e Event[poked], fx *Effects) state { ops(fx, e.Payload.Ops); return s }),
			ReactTimer("soon", func(s state, fx *Effects) state {
				if !mended.Load() {
					panic("a bug")
				}
				fx.Complete()
				return s
			}),
			ReactCancel(func(s state, fx *Effects) state { fx.Compensated(); return s }),
		},
	})
	w := newScriptWorld(t, d)
	w.start(w.manager(quick(), d))
	const reason = "SELECT stuck || ' ' || stuck_step || ' ' || held || ' ' || substr(stuck_text, 1, 25) FROM daybook.sagas WHERE key = $1"
	const fails = "dead_letter  %d what was kept for it fail"
	for _, c := range []struct {
		key, first string
		kept       []string
		before     string // what it is stuck at until then
		behind     string // and behind that
	}{
		{"step", "send", []string{"fail", "none"}, "dead_letter one 0 nobody knows", "dead_letter one 0 nobody knows"},
		{"timer", "timer", []string{"fail", "none"}, "dead_letter  0 timer soon failed 3 times", "dead_letter  0 timer soon failed 3 times"},
		{"at once", "none", []string{"send", "fail", "none"}, "  0 ", "dead_letter one 0 nobody knows"},
		{"cancel", "send", []string{"fail", "none"}, "dead_letter one 0 nobody knows", "  0 "},
	} {
		w.open(c.key, c.first)
		w.becomes("before", c.before, reason, c.key)
		w.planEnds(w.plan(actionPause, "", "", c.key))
		for _, op := range c.kept {
			w.poke(c.key, op)
		}
		w.becomes("what is kept", fmt.Sprint(len(c.kept)), "SELECT held::text FROM daybook.sagas WHERE key = $1", c.key)
		w.planEnds(w.plan(actionResume, "", "", c.key))
		w.becomes("what fails", fmt.Sprintf(fails, 2), reason, c.key)
		e, err := Explain(t.Context(), w.pool, "script", c.key)
		if err != nil || len(e.Problems) == 0 || !strings.Contains(e.Problems[0].Text, "a bug") || !strings.Contains(strings.Join(e.Problems[0].Commands, "; "), "daybook saga skip") {
			t.Errorf("%v, %+v", err, e.Problems)
		}
		action := actionSkip
		if c.key == "cancel" {
			action = flow.ActionCancel
		}
		for _, a := range []string{flow.ActionRetry, action} {
			if got := w.planEnds(w.plan(a, "", "", c.key)); !strings.HasPrefix(got, "1 done") {
				t.Errorf("%s, %s: %s", c.key, a, got)
			}
		}
		w.becomes("behind it", c.behind, reason, c.key)
		if got := w.column(c.key, 1, "entries"); got != w.value("SELECT count(*)::text FROM daybook.saga_history WHERE key = $1", c.key) {
			t.Errorf("the row counts %s lines of history", got)
		}
	}
	mended.Store(true)
	w.planEnds(w.plan(flow.ActionRetry, "", "", "timer"))
	w.becomes("the timer", "completed", "SELECT state FROM daybook.sagas WHERE key = 'timer'")
}

// A timer that was kept and fails is not passed by: nothing else might wake the instance.
func TestTimersAreNotPassedBy(t *testing.T) {
	t.Parallel()
	type state struct{}
	var broken atomic.Bool
	pay := func(version int) Definition {
		return Define(Process[state]{
			Name: "script", Version: version, Events: scriptEvents, Start: StartOn(func(Event[opened]) state { return state{} }),
			Steps: []Step[state]{{
				Name: "pay", Deadline: time.Hour,
				Send:      Send(func(state) (string, state) { return "a", state{} }),
				Succeeded: []Answer[state]{On(func(s state, _ Event[answered]) state { return s })},
				Undo: Send(func(state) (string, state) {
					if broken.Load() {
						panic("a bug")
					}
					return "a", state{}
				}),
			}},
		})
	}
	w := newScriptWorld(t, pay(1))
	stop := w.start(w.manager(quick(), pay(1)))
	w.open("x")
	w.becomes("the deadline", "1", "SELECT count(*)::text FROM daybook.timers")
	stop()
	stop = w.start(w.manager(quick(), pay(2)))
	w.overdue(1)
	w.becomes("what is kept", "timer", "SELECT coalesce(string_agg(kind, ' '), '') FROM daybook.saga_inputs")
	stop()
	broken.Store(true)
	w.start(w.manager(quick(), pay(1), pay(2)))
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
	if got := w.planEnds(w.plan(actionSkip, "", "", "x")); !strings.Contains(got, "what fails is timer pay/deadline") {
		t.Errorf("the plan: %s", got)
	}
	if got := w.column("x", 1, "stuck || held"); got != "dead_letter1" {
		t.Errorf("it is %s", got)
	}
	broken.Store(false)
	w.planEnds(w.plan(flow.ActionRetry, "", "", "x"))
	w.becomes("the instance", "compensating 0", "SELECT state || ' ' || held FROM daybook.sagas")
}

// Cancelling drops the timers that were kept and that it cancels; one that fails and that it does not cancel stays.
func TestCancellingDropsTimersThatWereKept(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.start(w.manager(quick(), script(1)))
	const reason = "SELECT held || ' ' || stuck FROM daybook.sagas WHERE key = $1"
	for _, c := range []struct {
		key     string
		first   bool // the timer is the first
		cancels string
		left    string
	}{
		{"behind", false, "cancel all", "0 "},
		{"behind it", false, "cancel do fail", "0 "},
		{"first", true, "cancel do fail", "0 "},
		{"stays", true, "send three", "1 dead_letter"},
		{"over", true, "complete", "0 "},
	} {
		w.open(c.key)
		w.sees(c.key, 1, "opened")
		w.planEnds(w.plan(actionPause, "", "", c.key))
		w.poke(c.key, "script fail")
		w.poke(c.key, "fail")
		w.becomes("what is kept", "2", "SELECT held::text FROM daybook.sagas WHERE key = $1", c.key)
		w.planEnds(w.plan(actionResume, "", "", c.key))
		w.sees(c.key, 1, "opened; poked")
		w.becomes("what fails, and the timer", "2 dead_letter", reason, c.key)
		if c.first {
			w.planEnds(w.plan(actionSkip, "", "", c.key))
			w.becomes("the timer", "1 dead_letter", reason, c.key)
		}
		if got := w.planEnds(w.plan(flow.ActionCancel, c.cancels, "", c.key)); !strings.HasPrefix(got, "1 done") {
			t.Errorf("the plan: %s", got)
		}
		w.becomes("what is left", c.left, reason, c.key)
		w.sees(c.key, 1, "opened; poked; action cancel "+c.cancels)
		if got := w.number("SELECT count(*) FROM daybook.saga_inputs WHERE key = $1", c.key); fmt.Sprint(got) != c.left[:1] {
			t.Errorf("%s keeps %d inputs", c.key, got)
		}
	}
}
