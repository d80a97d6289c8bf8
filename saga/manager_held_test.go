package saga

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// An instance keeps the version that it began with. Where that is missing, what comes for it is kept, and taken in order when
// a program has it again.
func TestVersionThatIsMissing(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x", "send one", "timer soon 300ms")
	w.sees("x", 1, "opened")
	stop()
	// The version that is here does not even read the answers to the one that is not.
	stop = w.start(w.manager(quick(), &scripted{name: "script", version: 2, deaf: true}))
	one := idOf("script", "x", 1, "one", 1)
	w.answer(one, "send two")
	w.becomes("stuck", "handler_missing", "SELECT stuck FROM daybook.sagas")
	w.poke("x", "send three")
	w.becomes("what is kept", "event, event", "SELECT coalesce(string_agg(kind, ', ' ORDER BY input), '') FROM daybook.saga_inputs WHERE kind = 'event'")
	w.becomes("the timer is kept", "1", "SELECT count(*)::text FROM daybook.saga_inputs WHERE kind = 'timer'")
	if got := w.column("x", 1, "stuck_text"); !strings.Contains(got, "version 1") {
		t.Errorf("the reason is %q", got)
	}
	w.open("y", "send one") // begins with the newest
	w.sees("y", 1, "opened")
	stop()
	w.start(w.manager(quick(), script(1), script(2)))
	livetest.Eventually(t, "all is taken", func() bool {
		got := w.log("x", 1)
		return strings.Contains(got, "timer soon") && strings.Contains(got, "answered one; ") && strings.Contains(got, "poked") &&
			strings.Index(got, "answered one") < strings.Index(got, "poked")
	}, func() string { return w.log("x", 1) })
	for _, of := range []string{"x 1 ", "y 2 "} {
		if got := w.column(of[:1], 1, "key || ' ' || version || ' ' || stuck"); got != of {
			t.Errorf("an instance is %q, want %q", got, of)
		}
	}
	w.becomes("the commands", "one three two", "SELECT string_agg(step, ' ' ORDER BY step) FROM daybook.saga_commands WHERE key = 'x'")
	if n := w.number("SELECT count(*) FROM daybook.saga_inputs"); n != 0 {
		t.Errorf("%d inputs are left", n)
	}
}

// What was kept and makes the definition fail does not get lost: the instance is stuck, and goes on when a program is mended.
func TestWhatWasKeptFails(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	broken := &atomic.Bool{}
	m := w.manager(quick(), &scripted{name: "script", version: 1, broken: broken})
	w.start(m)
	w.open("x")
	w.sees("x", 1, "opened")
	w.planEnds(w.plan("pause", "", "", "x"))
	w.poke("x", "send one")
	w.poke("x", "send two")
	w.becomes("what is kept", "2", "SELECT held::text FROM daybook.sagas")
	broken.Store(true)
	w.planEnds(w.plan("resume", "", "", "x"))
	w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
	if got := w.column("x", 1, "stuck_text"); !strings.Contains(got, "as the script says") {
		t.Errorf("the reason is %q", got)
	}
	if got := w.planEnds(w.plan(flow.ActionCancel, "", "", "x")); !strings.Contains(got, "refused") || !strings.Contains(got, "as the script says") {
		t.Errorf("the plan: %s", got)
	}
	broken.Store(false)
	w.sees("x", 1, "opened; poked; poked")
	w.becomes("the commands", "one two", "SELECT string_agg(step, ' ' ORDER BY step) FROM daybook.saga_commands")
}

// Inputs keep all that they had on the way.
func TestFormOfWhatIsKept(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	w.open("x", "send one")
	var got *stimulus
	page, err := w.store.Log().ReadPage(t.Context(), w.position(0), script(1).filter(), 1)
	if err != nil || len(page.Events) != 1 {
		t.Fatal(err, len(page.Events))
	}
	e := page.Events[0]
	e.Metadata.Headers, e.Metadata.Tenant = map[string]string{"a": "b"}, "acme"
	s := stimulus{cause: "c", Input: flow.Input{Event: &e, ByKey: true, Origin: flow.Origin{ID: idOf("script", "x", 1, "one", 1), Step: "one", Direction: flow.Undo, Intent: 3}}}
	h, err := hold(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := unhold(script(1), h.body)
	if err != nil {
		t.Fatal(err)
	}
	got = &back
	if got.Payload.(opened).Ops[0] != "send one" || got.Origin != s.Origin || !got.ByKey || got.cause != "c" {
		t.Errorf("it is %+v", got)
	}
	e.RecordedAt = e.RecordedAt.UTC()
	mustEqual(t, *got.Event, e)
	r := &flow.Reply{Command: s.Origin.ID, State: flow.ReplyFailed, Code: "timeout", Reason: "why", At: noon}
	h, err = hold(nil, stimulus{Input: flow.Input{Reply: r}})
	if err != nil {
		t.Fatal(err)
	}
	if back, err = unhold(script(1), h.body); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, *back.Reply, *r)
}
