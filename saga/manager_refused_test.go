package saga

import (
	"strings"
	"testing"

	"github.com/daybook-go/daybook/internal/flow"
)

// What became of a command, and cannot be written down, is a letter, and the next ends are taken.
func TestRepliesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.start(w.manager(quick(), script(1)))
	for _, key := range []string{"x", "y"} {
		w.open(key, "send pay")
		w.sees(key, 1, "opened")
	}
	w.exec("ALTER TABLE daybook.saga_commands ADD CONSTRAINT poison CHECK (key <> 'x' OR state = 'sent')")
	w.post.reply(idOf("script", "x", 1, "pay", 1), flow.ReplyDone)
	w.post.reply(idOf("script", "y", 1, "pay", 1), flow.ReplyDone)
	w.sees("y", 1, "opened; reply pay done")
	w.becomes("the letter", "saga-script-replies parked", "SELECT coalesce((SELECT consumer || ' ' || state FROM daybook.letters), '')")
	if got := w.log("x", 1); got != "opened" {
		t.Errorf("it has seen %q", got)
	}
}

// A command that is to be sent again, and is not there any more, is a fault of that instance alone.
func TestCommandsThatAreGone(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.start(w.manager(quick(), script(1)))
	w.open("x", "send one")
	w.sees("x", 1, "opened")
	w.exec("DELETE FROM daybook.saga_commands")
	w.poke("x", "script again one")
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
	if got := w.column("x", 1, "stuck_text"); !strings.Contains(got, "timer do again one failed 3 times") || !strings.Contains(got, "is not stored") {
		t.Errorf("the reason is %q", got)
	}
}

// An instance that cannot take what was kept for it, whatever the reason, holds up neither others nor what operators decide.
func TestWhatIsKeptHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.exec(`CREATE FUNCTION say_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'P0001'; END $$`)
	w.exec("CREATE TRIGGER no BEFORE INSERT ON sent FOR EACH ROW WHEN (NEW.step = 'odd') EXECUTE FUNCTION say_no()")
	w.start(w.manager(quick(), script(1)))
	keys := strings.Split("abcd", "")
	for _, key := range keys {
		w.open(key)
		w.sees(key, 1, "opened")
	}
	w.planEnds(w.plan("pause", "", "", keys...))
	for _, key := range keys {
		op := "send odd"
		if key == "c" {
			op = "send even"
		}
		w.poke(key, op)
	}
	w.becomes("what is kept", "4", "SELECT sum(held)::text FROM daybook.sagas")
	if got := w.planEnds(w.plan("resume", "", "", keys...)); !strings.HasPrefix(got, "4 done") {
		t.Errorf("the plan: %s", got)
	}
	w.sees("c", 1, "opened; poked")
	if got := w.planEnds(w.plan("pause", "", "", "a")); !strings.HasPrefix(got, "1 done") {
		t.Errorf("the plan: %s", got)
	}
	w.exec("DROP TRIGGER no ON sent")
	w.sees("b", 1, "opened; poked")
}
