package saga

import (
	"testing"

	"github.com/daybook-go/daybook/internal/flow"
)

func TestRunsASaga(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	w.start(m)
	w.open("a", "send one", "timer late 1h")
	w.sees("a", 1, "opened")
	one := idOf("script", "a", 1, "one", 1)
	w.post.reply(one, flow.ReplyDone)
	w.sees("a", 1, "opened; reply one done")
	w.answer(one, "send two", "timer soon 1ms")
	w.sees("a", 1, "opened; reply one done; answered one; timer soon")
	w.poke("a", "complete")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas WHERE key = 'a'")
	if n := w.number("SELECT count(*) FROM daybook.timers"); n != 0 {
		t.Errorf("%d timers are left", n)
	}
	if got := w.value("SELECT string_agg(step || ' ' || state, ', ' ORDER BY step) FROM daybook.saga_commands"); got != "one done, two sent" {
		t.Errorf("commands: %s", got)
	}
	if got := w.value("SELECT min(actor) FROM sent"); got != "saga:script" {
		t.Errorf("the actor is %q", got)
	}
}
