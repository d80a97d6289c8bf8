package saga

import (
	"strings"
	"testing"

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
