package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// R-ST01: what begins after the end is another run, with a state and a history of its own, also when the process was
// restarted, and when an event that begins it is on its way while it ends.
func TestStartedAgainAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x", "send one")
	w.sees("x", 1, "opened")
	stop()
	w.start(w.manager(quick(), script(1)))
	// One batch perhaps: noted by the run that is under way, the end, and the next run.
	w.append("x", uuid.Nil, opened{[]string{"send never", "complete"}}, opened{[]string{"send one"}})
	w.sees("x", 2, "opened")
	if got := w.log("x", 1); got != "opened; opened" {
		t.Errorf("the first run has seen %q", got)
	}
	for run, want := range map[int]string{1: "completed", 2: "running"} {
		if got := w.column("x", run, "state"); got != want {
			t.Errorf("run %d is %s", run, got)
		}
	}
	for run := 1; run <= 2; run++ {
		if n := w.number("SELECT count(*) FROM daybook.saga_commands WHERE key = 'x' AND run = $1 AND command = $2::text::uuid", run,
			idOf("script", "x", run, "one", 1).String()); n != 1 {
			t.Errorf("run %d has sent %d commands under its own id", run, n)
		}
		if n := w.number("SELECT count(*) FROM daybook.saga_history WHERE key = 'x' AND run = $1", run); n == 0 {
			t.Errorf("run %d has no history", run)
		}
	}
}

// R-ST13: events that begin an instance and come at once make one, which has seen them all, on any number of nodes.
func TestStartedAtOnce(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	for range 3 {
		w.start(w.manager(quick(), script(1)))
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { w.open("x", "send one") })
	}
	all.Wait()
	w.becomes("the events that it has seen", "10", "SELECT count(DISTINCT event)::text FROM daybook.saga_history WHERE key = 'x'")
	if n := w.number("SELECT count(*) FROM daybook.sagas"); n != 1 {
		t.Errorf("there are %d instances", n)
	}
}

// R-ST14: an instance whose reaction panics waits for people, with the reason, and the others go on.
func TestOneThatPanics(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	w.start(m)
	for n := 1; n <= 10; n++ {
		w.open(fmt.Sprint("i", n))
	}
	for n := 1; n <= 10; n++ {
		op := "send one"
		if n == 3 {
			op = "panic"
		}
		w.append("poke-"+fmt.Sprint(n), uuid.Nil, poked{fmt.Sprint("i", n), []string{op}})
	}
	for n := 1; n <= 10; n++ {
		if n != 3 {
			w.sees(fmt.Sprint("i", n), 1, "opened; poked")
		}
	}
	w.becomes("the letter", "parked 3", "SELECT coalesce((SELECT state || ' ' || attempts FROM daybook.letters), '')")
	if got := w.value("SELECT errors::text FROM daybook.letters"); !strings.Contains(got, "panicked: as the script says") {
		t.Errorf("the reason is %q", got)
	}
	if got := w.log("i3", 1); got != "opened" {
		t.Errorf("it has seen %q", got)
	}
	livetest.Eventually(t, "degraded health", func() bool {
		h := m.Health(t.Context())
		return h.Ready && h.State == "degraded"
	})
}

// R-ST12: commands leave when everything is stored, so that a reply that comes at once finds its instance.
func TestRepliesAtOnce(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	cfg := quick()
	cfg.Wake = func() { w.replyAll(context.Background()) } // in the goroutine that has committed
	w.start(w.manager(cfg, script(1)))
	const n = 100
	for i := range n {
		w.open(fmt.Sprint("i", i), "send one")
	}
	w.becomes("the replies", fmt.Sprint(n), "SELECT count(*)::text FROM daybook.sagas WHERE encode(data, 'escape') LIKE '%opened%reply one done%'")
}

// replyAll says of every command that was not replied to that it is done.
func (w *scriptWorld) replyAll(ctx context.Context) {
	rows, err := w.pool.Query(ctx, "DELETE FROM sent RETURNING id")
	if err != nil {
		w.t.Error(err)
		return
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Error(err)
	}
	for _, id := range ids {
		w.post.reply(uuid.MustParse(id), flow.ReplyDone)
	}
}

// again is a reactor: a command for each event that is opened.
type again struct{}

func (again) Name() string                                   { return "again" }
func (again) Version() int                                   { return 1 }
func (again) Validate() error                                { return nil }
func (again) Diagram() string                                { return "" }
func (r again) Parts() (flow.Parts, error)                   { return flow.Parts{Reactor: r}, nil }
func (again) Types() []string                                { return []string{"script.opened"} }
func (again) Decode(e eventstore.RecordedEvent) (any, error) { return scriptEvents.Decode(e) }
func (again) Commands(ctx context.Context, prep flow.Preparer, e *eventstore.RecordedEvent, _ any) ([]flow.Command, error) {
	c, err := prep.Prepare(ctx, e.Stream.ID, "react")
	c.ID, c.Step, c.Direction, c.Intent = flow.ReactorCommandID("again", e.ID, 0), "react", flow.Do, 1
	return []flow.Command{c}, err
}

// R-ST18: whatever happens to the places in the log, nothing is sent again, and nothing happens again.
func TestEventsThatComeAgain(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1), again{})
	stop := w.start(w.manager(quick(), script(1), again{}))
	w.open("a", "send one")
	w.sees("a", 1, "opened")
	w.open("a") // noted by the run that is under way, and begins none later
	w.sees("a", 1, "opened; opened")
	w.answer(idOf("script", "a", 1, "one", 1), "send two", "complete")
	w.sees("a", 1, "opened; opened; answered one")
	w.open("a", "send one")
	w.sees("a", 2, "opened")
	w.poke("a", "send three")
	w.sees("a", 2, "opened; poked")
	w.becomes("what the reactor sent", "3", "SELECT count(*)::text FROM sent WHERE saga = 'again'")
	for _, loss := range []string{
		"UPDATE daybook.segments SET floor = 0; DELETE FROM daybook.checkpoints",
		"DELETE FROM daybook.segments; DELETE FROM daybook.consumers",
	} {
		stop()
		before := w.sent()
		w.exec(loss)
		if err := Install(t.Context(), w.pool, script(1), again{}); err != nil {
			t.Fatal(err)
		}
		stop = w.start(w.manager(quick(), script(1), again{}))
		w.open("b"+fmt.Sprint(len(loss)), "send one")
		w.sees("b"+fmt.Sprint(len(loss)), 1, "opened")
		w.becomes("what the reactor sent", fmt.Sprint(w.number("SELECT count(*) FROM daybook.events WHERE type = 'script.opened'")),
			"SELECT count(*)::text FROM sent WHERE saga = 'again'")
		after := w.sent()
		if !slices.Equal(before, after[:len(before)]) || len(after) != len(before)+2 {
			t.Errorf("sent before:\n%v\nand after:\n%v", before, after)
		}
		if got := w.log("a", 1) + " | " + w.log("a", 2); got != "opened; opened; answered one | opened; poked" {
			t.Errorf("the instances have seen %s", got)
		}
	}
}

// An instance that is compensated after its end goes on beside the run that has begun meanwhile.
func TestReopenedBesideTheNextRun(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.start(w.manager(quick(), script(1)))
	w.open("x", "send one", "complete")
	w.open("x", "send two")
	w.sees("x", 2, "opened")
	w.answer(idOf("script", "x", 1, "one", 1), "reopen", "send undo")
	w.sees("x", 1, "opened; answered one")
	if got := w.column("x", 1, "state || ' ' || reopened || ' ' || (ended_at IS NULL)"); got != "compensating true true" {
		t.Errorf("the first run is %s", got)
	}
	w.poke("x", "complete") // finds the last run
	w.sees("x", 2, "opened; poked")
	w.answer(idOf("script", "x", 1, "undo", 1), "complete")
	w.becomes("the end of the first run", "completed true", "SELECT state || ' ' || (ended_at IS NOT NULL) FROM daybook.sagas WHERE key = 'x' AND run = 1")
}

// What an event does not change leaves a line; what comes after the end leaves none.
func TestMetadataOfCommands(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.start(w.manager(quick(), script(1)))
	w.open("x", "send one")
	w.sees("x", 1, "opened")
	opening := w.value("SELECT id::text FROM daybook.events WHERE type = 'script.opened'")
	w.becomes("the cause", opening, "SELECT cause FROM sent WHERE step = 'one'")
	one := idOf("script", "x", 1, "one", 1)
	w.poke("x", "script again one")
	w.becomes("the command that was sent again", "2", "SELECT count(*)::text FROM sent WHERE id = $1", one.String())
	if got := w.value("SELECT string_agg(DISTINCT encode(data, 'escape'), ' ') FROM sent WHERE id = $1", one.String()); got != `"one"` {
		t.Errorf("its bytes are %s", got)
	}
	w.poke("x", "close one")
	w.becomes("closed", "true", "SELECT closed::text FROM daybook.saga_commands WHERE command = $1::text::uuid", one.String())
	w.poke("x", "complete")
	w.becomes("the end", "completed", "SELECT state FROM daybook.sagas")
	entries := w.number("SELECT entries FROM daybook.sagas")
	if n := w.number("SELECT count(*) FROM daybook.saga_history"); n != entries {
		t.Errorf("%d lines of history, the row says %d", n, entries)
	}
}
