package saga

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
)

// Eight managers of one saga: nobody waits for another in a circle, and nothing happens twice.
func TestEightManagers(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	n := testscale.N(500)
	var managers []*Manager
	for range 8 {
		cfg := quick()
		cfg.BatchSize = 20
		m := w.manager(cfg, script(1))
		managers = append(managers, m)
		w.start(m)
	}
	e := &errand{w, map[string]bool{}, map[string][]string{"one": {"timer b 1ms", "timer c 1ms", "send two"}, "two": {"timer d 1ms", "script complete"}}}
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
		w.open(keys[i], "send one", "timer a 1ms", "timer a2 2ms")
		if i%5 == 0 {
			w.poke(keys[i], "timer p 1ms")
		}
	}
	plan := w.plan(flow.ActionRetry, "nothing", "", keys...)
	livetest.Eventually(t, "all have ended", func() bool {
		e.look()
		return w.number("SELECT count(*) FROM daybook.sagas WHERE ended_at IS NOT NULL") == n
	})
	w.planEnds(plan)
	if got := w.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); got != 0 {
		t.Errorf("%d deadlocks", got)
	}
	for _, key := range keys {
		seen := strings.Split(w.log(key, 1), "; ")
		unique := slices.Clone(seen)
		slices.Sort(unique)
		unique = slices.Compact(unique)
		if len(unique) != len(seen) {
			t.Fatalf("%s has seen %v", key, seen)
		}
		for _, want := range []string{"opened", "timer a", "timer a2", "answered one", "answered two", "timer do complete"} {
			if !slices.Contains(seen, want) && !strings.HasPrefix(want, "timer a") { // those may be cancelled by the end
				t.Fatalf("%s has not seen %q: %v", key, want, seen)
			}
		}
	}
	if twice := w.number("SELECT count(*) FROM (SELECT id FROM sent GROUP BY id HAVING count(*) > 1) x"); twice != 0 {
		t.Errorf("%d commands were sent twice", twice)
	}
	events := 0
	for _, m := range managers {
		if m.units[0].events.Load().Status().State == "running" {
			events++
		}
	}
	if events != 1 {
		t.Errorf("%d managers take the events", events)
	}
}

type (
	began    struct{}
	walkStep struct{ Name, Direction string }
	walked   struct{ Key string }
)

var walkEvents = eventstore.NewCatalog(eventstore.TypeOf[began]("walk.began"))

// walk is a process of four steps that are undone because the fifth is refused.
func walk() Definition {
	p := Process[walked]{
		Name: "walk", Version: 1, Events: walkEvents, Start: StartOn(func(e Event[began]) walked { return walked{e.Stream.ID} }),
		UndoRetry: Retry{Base: time.Millisecond, Cap: 2 * time.Millisecond},
	}
	for n := 1; n <= 4; n++ {
		name := fmt.Sprint("step-", n)
		p.Steps = append(p.Steps, Step[walked]{
			Name: name,
			Send: Send(func(s walked) (string, walkStep) { return s.Key, walkStep{name, "do"} }),
			Undo: Send(func(s walked) (string, walkStep) { return s.Key, walkStep{name, "undo"} }),
		})
	}
	p.Steps = append(p.Steps, Step[walked]{
		Name: "step-5", NothingToUndo: "it is the last", Send: Send(func(s walked) (string, walkStep) { return s.Key, walkStep{"step-5", "do"} }),
	})
	return Define(p)
}

// R-ST16: a manager that dies in the middle of a compensation goes on with what is left of it, in order.
func TestCompensationGoesOn(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, walk())
	d, err := walkEvents.Encode(began{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Append(t.Context(), eventstore.To(eventstore.NewStreamID("walk", "w"), eventstore.NoStream, d)); err != nil {
		t.Fatal(err)
	}
	// Each manager dies at the reply to one more command: that has no effect, the next manager takes it again.
	done := map[string]bool{}
	var order []string
	reply := func() {
		rows, err := w.pool.Query(t.Context(), "SELECT id || ' ' || encode(data, 'escape') FROM sent ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			id, what, _ := strings.Cut(text, " ")
			if done[id] {
				continue
			}
			done[id] = true
			order = append(order, what)
			state := flow.ReplyDone
			if strings.Contains(what, "step-5") {
				state = flow.ReplyRefused
			}
			w.post.reply(uuid.MustParse(id), state)
		}
	}
	over := func() bool {
		reply()
		return w.number("SELECT count(*) FROM daybook.sagas WHERE ended_at IS NOT NULL") == 1
	}
	for visit := 0; visit < 12 && !over(); visit++ {
		died, stop := w.dying([]string{"reacted", "committed"}[visit%2], 1+visit%3, walk())
		livetest.Eventually(t, "the manager dies", func() bool {
			select {
			case <-died:
				return true
			default:
				return over()
			}
		})
		stop()
	}
	w.start(w.manager(quick(), walk()))
	livetest.Eventually(t, "the end", over)
	var want []string
	for n := 1; n <= 5; n++ {
		want = append(want, fmt.Sprintf(`{"Name":"step-%d","Direction":"do"}`, n))
	}
	for n := 4; n >= 1; n-- {
		want = append(want, fmt.Sprintf(`{"Name":"step-%d","Direction":"undo"}`, n))
	}
	if !slices.Equal(order, want) {
		t.Errorf("sent:\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
	if got := w.value("SELECT state FROM daybook.sagas"); got != "compensated" {
		t.Errorf("it is %s", got)
	}
}
