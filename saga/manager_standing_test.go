package saga

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/daybook-go/daybook/internal/flow"
)

// A timer that was given up keeps its instance stuck, whatever comes meanwhile, until it is retried.
func TestTimersThatWereGivenUpStayKnown(t *testing.T) {
	t.Parallel()
	type state struct{ Pokes int }
	var mended atomic.Bool
	key := KeyOf(func(e Event[poked]) string { return e.Payload.Key })
	d := Define(Flow[state]{
		Name: "script", Version: 1, Events: scriptEvents, Start: StartOn(func(Event[opened]) state { return state{} }),
		Reactions: []Reaction[state]{
			React(func(s state, _ Event[opened], fx *Effects) state { fx.After("soon", 0); return s }),
			ReactKey(key, func(s state, e Event[poked], fx *Effects) state {
				s.Pokes++
				if len(e.Payload.Ops) > 0 {
					fx.Cancel("soon")
				}
				return s
			}),
			ReactTimer("soon", func(s state, fx *Effects) state {
				if !mended.Load() {
					panic("a bug")
				}
				fx.Complete()
				return s
			}),
		},
	})
	w := newScriptWorld(t, d)
	w.start(w.manager(quick(), d))
	stuck := func(key, want string) {
		t.Helper()
		w.becomes("what "+key+" is stuck at", want, "SELECT stuck FROM daybook.sagas WHERE key = $1", key)
	}
	w.open("x")
	w.open("y")
	stuck("x", flow.DeadLetter)
	stuck("y", flow.DeadLetter)
	w.poke("x")
	w.poke("y")
	w.becomes("history", "2", "SELECT count(DISTINCT key)::text FROM daybook.saga_history WHERE kind = 'answered'")
	stuck("x", flow.DeadLetter)
	e, err := Explain(t.Context(), w.pool, "script", "x")
	if err != nil || !e.Stuck || len(e.Problems) != 1 || !strings.Contains(e.Sentence, "timer soon failed 3 times") {
		t.Errorf("%v, %v, %+v", err, e.Stuck, e.Problems)
	}
	w.poke("y", "cancel")
	stuck("y", "")
	mended.Store(true)
	w.planEnds(w.plan(flow.ActionRetry, "", "", "x"))
	w.becomes("x", "completed", "SELECT state FROM daybook.sagas WHERE key = 'x'")
	stuck("x", "")
}
