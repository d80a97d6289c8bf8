package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
)

// steppedClock is a clock that stands still.
type steppedClock struct {
	mu   sync.Mutex
	at   time.Time
	asks int // since the last step
}

func (c *steppedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks++
	return c.at
}

// looked waits until everything that looks for what is due has done so a few times by the time that the clock shows: each
// look asks the clock several times.
func (c *steppedClock) looked(t testing.TB) {
	t.Helper()
	livetest.Eventually(t, "what is due is looked for", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.asks >= 40
	})
}

func (c *steppedClock) step(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.asks = to, 0
}

// plan writes a plan as operators do, about the first runs of keys.
func (w *scriptWorld) plan(action, step, arguments string, keys ...string) (id string) {
	w.t.Helper()
	if arguments == "" {
		arguments = "{}"
	}
	id = uuid.NewString()
	w.exec(`WITH p AS (
  INSERT INTO daybook.saga_plans (plan, saga, action, step, arguments, actor, reason, selection, items)
  VALUES ($1::text::uuid, 'script', $2, $3, $4, 'ada', 'because', 'some', $5))
INSERT INTO daybook.saga_plan_items (plan, item, key, run) SELECT $1::text::uuid, u.nth, u.key, 1 FROM unnest($6::text[]) WITH ORDINALITY u(key, nth)`,
		id, action, step, []byte(arguments), len(keys), keys)
	return id
}

// planEnds waits for the end of a plan, and returns what became of its items.
func (w *scriptWorld) planEnds(id string) string {
	w.t.Helper()
	w.becomes("the plan", "done", "SELECT state FROM daybook.saga_plans WHERE plan = $1::text::uuid", id)
	return w.value(`SELECT p.done || ' done, ' || p.refused || ' refused: ' || (SELECT string_agg(i.key || ' ' || i.state || ' ' || i.result, '; ' ORDER BY i.item)
  FROM daybook.saga_plan_items i WHERE i.plan = p.plan) FROM daybook.saga_plans p WHERE p.plan = $1::text::uuid AND p.ended_at IS NOT NULL`, id)
}

func TestPlansAreCarriedOut(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	m := w.manager(quick(), script(1))
	for _, key := range []string{"a", "b", "c"} {
		w.open(key, "send one", "stick")
	}
	w.start(m)
	w.becomes("the instances", "3", "SELECT count(*)::text FROM daybook.sagas")
	got := w.planEnds(w.plan(flow.ActionRetry, "send two", "", "c", "a", "gone"))
	if want := "2 done, 1 refused: c done ; a done ; gone refused it is not there any more"; got != want {
		t.Errorf("the plan: %s\nwant      %s", got, want)
	}
	if got := w.log("c", 1); got != "opened; action retry send two" {
		t.Errorf("c has seen %s", got)
	}
	if got := w.column("c", 1, "stuck"); got != "" {
		t.Errorf("c is stuck still: %s", got)
	}
	if got := w.value("SELECT actor || ': ' || reason FROM daybook.saga_history WHERE key = 'a' AND kind = 'action'"); got != "ada: because" {
		t.Errorf("the history of a says %s", got)
	}
	if got := w.planEnds(w.plan(flow.ActionCancel, "refuse", "", "a")); !strings.Contains(got, "0 done, 1 refused: a refused") || !strings.Contains(got, "it refuses") {
		t.Errorf("the plan: %s", got)
	}
	if got := w.planEnds(w.plan(flow.ActionMark, "panic", "", "a")); !strings.Contains(got, "panicked") {
		t.Errorf("the plan: %s", got)
	}
	if got := w.log("a", 1); got != "opened; action retry send two" {
		t.Errorf("what was refused has changed a: %s", got)
	}
	payload, _ := json.Marshal(answered{[]string{"x"}})
	if got := w.planEnds(w.plan(flow.ActionAnswer, "complete", fmt.Sprintf(`{"type":"script.answered","payload":%s}`, payload), "b")); !strings.HasPrefix(got, "1 done") {
		t.Errorf("the plan: %s", got)
	}
	if got := w.column("b", 1, "state"); got != "completed" {
		t.Errorf("b is %s", got)
	}
	if got := w.planEnds(w.plan(flow.ActionAnswer, "complete", `{"type":"script.unknown","payload":{}}`, "a")); !strings.Contains(got, "script.unknown") {
		t.Errorf("the plan: %s", got)
	}
	if s := m.Stats()[0]; s.Acted != 7 || s.Refused != 4 {
		t.Errorf("%d were acted on, %d refused", s.Acted, s.Refused)
	}
}

// A plan with a rate takes its time, by whatever process.
func TestRateOfAPlan(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	clock := &steppedClock{at: noon}
	cfg := quick()
	cfg.Clock = clock.now
	for range 2 {
		w.start(w.manager(cfg, script(1)))
	}
	for _, key := range []string{"a", "b", "c"} {
		w.open(key)
	}
	w.becomes("the instances", "3", "SELECT count(*)::text FROM daybook.sagas")
	id := w.plan(flow.ActionRetry, "send two", "", "a", "b", "c")
	w.exec("UPDATE daybook.saga_plans SET rate = 0.1, next_at = $1", noon)
	done := "SELECT done::text || ' ' || to_char(next_at AT TIME ZONE 'UTC', 'HH24:MI:SS') FROM daybook.saga_plans"
	w.becomes("the first", "1 12:00:10", done)
	clock.step(noon.Add(9 * time.Second))
	clock.looked(t)
	if got := w.value(done); got != "1 12:00:10" {
		t.Errorf("too soon: %s", got)
	}
	clock.step(noon.Add(10 * time.Second))
	w.becomes("the second", "2 12:00:20", done)
	clock.step(noon.Add(20 * time.Second))
	if got := w.planEnds(id); !strings.HasPrefix(got, "3 done") {
		t.Errorf("the plan: %s", got)
	}
}

// What comes for an instance that is paused is taken in order when it is resumed; timers wait, and are shifted or not.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	for _, shift := range []bool{true, false} {
		t.Run(fmt.Sprint("shift ", shift), func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1))
			clock := &steppedClock{at: noon}
			cfg := quick()
			cfg.Clock = clock.now
			m := w.manager(cfg, script(1))
			w.start(m)
			w.open("x", "send one", "timer soon 10m", "timer late 1h")
			w.sees("x", 1, "opened")
			clock.step(noon.Add(5 * time.Minute))
			pause := func(action, arguments string) string {
				id := w.plan(action, "", arguments, "x")
				w.exec("UPDATE daybook.saga_plans SET next_at = '-infinity' WHERE plan = $1::text::uuid", id)
				return w.planEnds(id)
			}
			if got := pause("pause", ""); !strings.HasPrefix(got, "1 done") {
				t.Fatalf("the plan: %s", got)
			}
			if got := pause("pause", ""); !strings.Contains(got, "paused already") {
				t.Errorf("the plan: %s", got)
			}
			if got := pause(flow.ActionCancel, ""); !strings.Contains(got, "resume it first") {
				t.Errorf("the plan: %s", got)
			}
			one := idOf("script", "x", 1, "one", 1)
			w.answer(one, "send two")
			w.becomes("what is kept", "1", "SELECT held::text FROM daybook.sagas")
			w.post.reply(one, flow.ReplyDone)
			w.becomes("what is kept", "2", "SELECT held::text FROM daybook.sagas")
			w.poke("x", "send three")
			w.becomes("what is kept", "3", "SELECT held::text FROM daybook.sagas")
			clock.step(noon.Add(30 * time.Minute))
			if got := pause("resume", fmt.Sprintf(`{"shift":%v}`, shift)); !strings.HasPrefix(got, "1 done") {
				t.Fatalf("the plan: %s", got)
			}
			taken := "opened; answered one; reply one done; poked"
			if shift {
				w.sees("x", 1, taken)
				clock.step(noon.Add(34 * time.Minute))
				clock.looked(t)
				if got := w.log("x", 1); got != taken {
					t.Errorf("too soon: %s", got)
				}
				clock.step(noon.Add(35*time.Minute + time.Second)) // ten minutes, and the 25 that it was paused
				w.sees("x", 1, taken+"; timer soon")
			} else {
				w.becomes("what was due", "true", "SELECT (encode(data, 'escape') LIKE '%timer soon%')::text FROM daybook.sagas")
				w.becomes("what is kept", "0", "SELECT held::text FROM daybook.sagas")
				w.becomes("the inputs", "0", "SELECT count(*)::text FROM daybook.saga_inputs")
			}
			want := map[bool]string{true: "13:25:00", false: "13:00:00"}[shift]
			if got := w.value("SELECT to_char(due_at AT TIME ZONE 'UTC', 'HH24:MI:SS') || (visible_at = due_at) FROM daybook.timers"); got != want+"true" {
				t.Errorf("the later timer is due at %s, want %s", got, want)
			}
			if got := w.column("x", 1, "entries"); got != w.value("SELECT count(*)::text FROM daybook.saga_history") {
				t.Errorf("the row counts %s lines of history", got)
			}
		})
	}
}

// What was given up before a pause stays so behind it, until an operator retries.
func TestResumeRevivesNothing(t *testing.T) {
	t.Parallel()
	for _, shift := range []bool{true, false} {
		t.Run(fmt.Sprint("shift ", shift), func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1))
			m := w.manager(quick(), script(1))
			w.start(m)
			w.open("x", "script fail", "timer late 1h")
			w.becomes("stuck", "dead_letter", "SELECT stuck FROM daybook.sagas")
			const given = "SELECT visible_at::text || ' ' || attempts FROM daybook.timers WHERE name LIKE '%fail'"
			before := w.value(given)
			w.planEnds(w.plan("pause", "", "", "x"))
			if got := w.value(given); got != before {
				t.Errorf("the pause makes of %s %s", before, got)
			}
			w.planEnds(w.plan("resume", "", fmt.Sprintf(`{"shift":%v}`, shift), "x"))
			if got := w.value(given); got != before {
				t.Errorf("resuming makes of %s %s", before, got)
			}
			if got := w.value("SELECT (visible_at = due_at)::text FROM daybook.timers WHERE name LIKE '%late'"); got != "true" {
				t.Error("the other timer does not go on")
			}
			w.planEnds(w.plan(flow.ActionRetry, "nothing", "", "x"))
			w.becomes("given up again", "2", "SELECT count(*)::text FROM daybook.saga_history WHERE kind = 'stuck'")
		})
	}
}
