package saga

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// choosy is a post that does not take commands whose step is "unfit", and addresses those whose step is "nul" to what the
// database does not take.
type choosy struct{ *post }

func (c choosy) Prepare(ctx context.Context, to string, payload any) (flow.Command, error) {
	if payload == "nul" {
		to = "a\x00b"
	}
	return c.post.Prepare(ctx, to, payload)
}

func (c choosy) Enqueue(ctx context.Context, tx pgx.Tx, saga string, meta []eventstore.Metadata, commands []flow.Command) error {
	for _, command := range commands {
		if command.Step == "unfit" {
			return &eventstore.InvalidError{Field: "target", Value: "unfit", Reason: "is too long", Remedy: "use a shorter one"}
		}
	}
	return c.post.Enqueue(ctx, tx, saga, meta, commands)
}

// What an operator decides and cannot be written changes nothing, and holds up no other plan.
func TestPlanThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m, err := NewManager(w.pool, w.store.Log(), choosy{w.post}, quick(), script(1))
	if err != nil {
		t.Fatal(err)
	}
	w.start(m)
	w.open("a", "send one")
	w.sees("a", 1, "opened")
	before := w.column("a", 1, "revision || ' ' || entries")
	for _, unfit := range []string{"unfit", "nul"} {
		got := w.planEnds(w.plan(flow.ActionCancel, "close one, send "+unfit, "", "a"))
		if !strings.HasPrefix(got, "0 done, 1 refused: a refused what follows cannot be written: ") {
			t.Errorf("the plan: %s", got)
		}
	}
	if got := w.log("a", 1); got != "opened" {
		t.Errorf("a has seen %s", got)
	}
	if got := w.column("a", 1, "revision || ' ' || entries"); got != before {
		t.Errorf("the row was at %s, and is at %s", before, got)
	}
	if got := w.value("SELECT string_agg(step || ' ' || closed, ', ') FROM daybook.saga_commands"); got != "one false" {
		t.Errorf("the commands: %s", got)
	}
	if got := w.planEnds(w.plan(flow.ActionRetry, "send two", "", "a")); !strings.HasPrefix(got, "1 done") {
		t.Errorf("the plan behind: %s", got)
	}
}

// rewind sets the place in the log back to the begin.
func (w *scriptWorld) rewind(saga string) {
	w.t.Helper()
	w.exec("UPDATE daybook.segments SET floor = 0 WHERE consumer = $1", consumerName(saga))
	w.exec("DELETE FROM daybook.checkpoints WHERE consumer = $1", consumerName(saga))
}

// What named the key in the time of an earlier run is not for the next one, when it comes again.
func TestRewindGivesTheNextRunNothing(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x")
	w.poke("x", "send one", "complete")
	w.poke("x") // leaves no trace: it has ended
	w.becomes("the first run", "completed", "SELECT state FROM daybook.sagas WHERE run = 1")
	w.open("x")
	w.sees("x", 2, "opened")
	stop()
	w.rewind("script")
	w.start(w.manager(quick(), script(1)))
	w.poke("x", "send two")
	w.sees("x", 2, "opened; poked")
	if got := w.value("SELECT string_agg(step, ' ' ORDER BY step) FROM daybook.saga_commands"); got != "one two" {
		t.Errorf("the commands: %s", got)
	}
}

// narrow is a scripted machine that does not know what pokes are.
type narrow struct{ *scripted }

func (m narrow) Parts() (flow.Parts, error) { return flow.Parts{Machine: m}, nil }
func (m narrow) Types() []string            { return []string{"script.answered", "script.opened"} }
func (m narrow) Decode(e eventstore.RecordedEvent) (any, error) {
	if e.Type == "script.poked" {
		return nil, fmt.Errorf("unknown type %s", e.Type)
	}
	return m.scripted.Decode(e)
}

// What only another version reads was kept for an instance by a program that had that version alone: it passes it by.
func TestKeptOfATypeThatIsNotRead(t *testing.T) {
	t.Parallel()
	one := narrow{script(1)}
	w := newScriptWorld(t, one)
	stop := w.start(w.manager(quick(), one))
	w.open("x", "send one")
	w.sees("x", 1, "opened")
	stop()
	stop = w.start(w.manager(quick(), script(2)))
	w.poke("x", "send none")
	w.answer(idOf("script", "x", 1, "one", 1), "send two")
	w.becomes("what is kept", "2", "SELECT held::text FROM daybook.sagas")
	stop()
	w.start(w.manager(quick(), one))
	w.sees("x", 1, "opened; answered one")
	if got := w.value("SELECT text FROM daybook.saga_history WHERE kind = 'ignored' AND event IS NOT NULL ORDER BY entry LIMIT 1"); got != "script.poked, which version 1 does not read, was kept for it" {
		t.Errorf("the history says %q", got)
	}
	if got := w.column("x", 1, "stuck || held"); got != "0" {
		t.Errorf("it is %s", got)
	}
	if got := w.column("x", 1, "entries"); got != w.value("SELECT count(*)::text FROM daybook.saga_history") {
		t.Errorf("the row counts %s lines of history", got)
	}
	if got := w.planEnds(w.plan(flow.ActionCancel, "send three", "", "x")); !strings.HasPrefix(got, "1 done") {
		t.Errorf("the plan: %s", got)
	}
}

// Instances that cannot take what was kept for them hold up no others, however many they are, and say what the matter is.
func TestThoseThatFailHideNoOthers(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("bad")
	w.open("z")
	w.sees("z", 1, "opened")
	stop()
	stop = w.start(w.manager(quick(), script(2)))
	w.poke("bad", "fail")
	w.poke("z", "send one")
	w.poke("z", "send two")
	w.becomes("what is kept", "3", "SELECT sum(held)::text FROM daybook.sagas")
	stop()
	w.exec(`INSERT INTO daybook.sagas SELECT (jsonb_populate_record(s, jsonb_build_object('key', 'bad' || g))).* FROM daybook.sagas s, generate_series(1, $1::int) g WHERE s.key = 'bad'`, takeAtOnce)
	w.exec(`INSERT INTO daybook.saga_inputs (saga, key, run, kind, body, arrived_at) SELECT saga, 'bad' || g, run, kind, body, arrived_at FROM daybook.saga_inputs, generate_series(1, $1::int) g WHERE key = 'bad'`, takeAtOnce)
	w.start(w.manager(quick(), script(1)))
	w.sees("z", 1, "opened; poked; poked")
	w.becomes("what the others are", "dead_letter", "SELECT stuck FROM daybook.sagas WHERE key = 'bad'")
	if got := w.column("bad", 1, "stuck_text"); !strings.HasPrefix(got, keptFailed) || !strings.Contains(got, "as the script says") {
		t.Errorf("the reason is %q", got)
	}
}

// A timer that was kept does not fire when what was kept before it has cancelled it or set it anew, also when that is too much
// for one transaction.
func TestKeptTimerThatWasCancelled(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	clock := &steppedClock{at: noon}
	cfg := quick()
	cfg.Clock = clock.now
	stop := w.start(w.manager(cfg, script(1)))
	keys := []string{"cancelled", "anew", "all", "long"}
	for _, key := range keys {
		w.open(key, "timer soon 10m")
		w.sees(key, 1, "opened")
	}
	stop()
	stop = w.start(w.manager(cfg, script(2)))
	w.poke("cancelled", "cancel soon")
	w.poke("anew", "timer soon 1h")
	w.poke("all", "cancel all")
	many := []any{poked{"long", []string{"cancel soon"}}}
	for range takeAtOnce {
		many = append(many, poked{Key: "long"})
	}
	w.append("pokes", uuid.Nil, many...)
	w.becomes("what is kept", fmt.Sprint(3+len(many)), "SELECT sum(held)::text FROM daybook.sagas")
	clock.step(noon.Add(11 * time.Minute))
	w.becomes("the timers", "4", "SELECT count(*)::text FROM daybook.saga_inputs WHERE kind = 'timer'")
	stop()
	w.start(w.manager(cfg, script(1)))
	w.becomes("what is kept", "0 0", "SELECT sum(held) || ' ' || (SELECT count(*) FROM daybook.saga_inputs) FROM daybook.sagas")
	for _, key := range keys {
		if got := w.log(key, 1); strings.Contains(got, "timer") || !strings.HasPrefix(got, "opened; poked") {
			t.Errorf("%s has seen %s", key, got)
		}
	}
}

type (
	billing struct{ Order string }
	bill    struct{ Order string }
)

// An answer by key that a command of another step has caused is one by key also when it was kept.
func TestKeptAnswerByKey(t *testing.T) {
	t.Parallel()
	key := KeyOf(func(e Event[poked]) string { return e.Payload.Key })
	define := func(version int) Definition {
		return Define(Process[billing]{
			Name: "billing", Version: version, Events: scriptEvents,
			Start: StartOn(func(e Event[opened]) billing { return billing{e.Stream.ID} }),
			Steps: []Step[billing]{{Name: "both", Together: []Step[billing]{
				{Name: "invoice", Send: Send(func(s billing) (string, bill) { return "a", bill(s) }), NothingToUndo: "a draft"},
				{Name: "pay", Send: Send(func(s billing) (string, bill) { return "b", bill(s) }), NothingToUndo: "a request",
					Succeeded: []Answer[billing]{OnKey(key, func(s billing, _ Event[poked]) billing { return s })}},
			}}},
		})
	}
	w := newScriptWorld(t, define(1))
	stop := w.start(w.manager(quick(), define(1)))
	w.open("x")
	w.becomes("the commands", "2", "SELECT count(*)::text FROM daybook.saga_commands")
	stop()
	stop = w.start(w.manager(quick(), define(2)))
	w.append("bank", idOf("billing", "x", 1, "invoice", 1), poked{Key: "x"})
	w.becomes("what is kept", "1", "SELECT held::text FROM daybook.sagas")
	stop()
	w.start(w.manager(quick(), define(1)))
	w.becomes("the answer", "pay", "SELECT coalesce((SELECT step FROM daybook.saga_history WHERE kind = 'answered'), '')")
}
