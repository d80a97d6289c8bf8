package sagatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/saga"
)

// World is the store that a scenario of [CrashEverywhere] runs in: a database of its own for each run.
type World struct {
	Pool  *pgxpool.Pool
	Store *postgres.Store
}

// Crashes is a scenario of [CrashEverywhere]: one instance, and the receivers of its commands as they really are.
type Crashes struct {
	// Bus makes a bus with the handlers of all commands. Give middleware to bus.New before any of your own, and
	// [bus.Idempotent] with w.Store after it.
	Bus func(w World, middleware ...bus.Middleware) *bus.Bus
	// Start appends the events that begin the instance, and whatever must be there before.
	Start func(ctx context.Context, w World) error
	// Effects are what its commands have brought about, as lines in any order; they must be the same in every run. Default:
	// each event of the log, by stream, type and payload.
	Effects func(ctx context.Context, w World) ([]string, error)
	// Check, if set, looks at the end of each run, also of those in which a deadline passed, for what must hold in any
	// case: sums, for example.
	Check func(ctx context.Context, w World, ended State) error
}

// State is how an instance has ended: "completed" or "compensated".
type State = flow.State

// CrashEverywhere runs a scenario on PostgreSQL, with a manager and a dispatcher, first undisturbed and then disturbed in
// every way that the world has: killed at each place where that would hurt; with each command and each event delivered
// twice; with the command of each step carried out after another, events before replies and replies before events; with the
// answer of each step after its deadline; with each undo before its do; with all commands delivered once more after the end;
// with keys forgotten at once, or by then. The instance must always end, in the same state and with the same effects as
// undisturbed. Where a deadline has passed it is compensated, with an undo carried out for each do that was; or, if the step is
// tried again, all is as undisturbed.
//
// At the usual scale of tests a tenth of the places is visited, and commands come twice all at once; with FULL=1 all places are,
// and each command comes twice in a run of its own. Runs go side by side. The definition must be deterministic, and so must the
// receivers, but for what a repeat may change.
func CrashEverywhere(t *testing.T, def saga.Definition, s Crashes) {
	t.Helper()
	if s.Bus == nil || s.Start == nil {
		t.Fatal("sagatest: CrashEverywhere: Bus and Start are needed: see Crashes")
	}
	if err := def.Validate(); err != nil {
		t.Fatalf("sagatest: the definition cannot run:\n%v", err)
	}
	calm := newCrashRun(t, def, s, disturbance{name: undisturbed})
	want := calm.run()
	if t.Failed() {
		return
	}
	t.Logf("undisturbed it is %s with %d effects; %d places", want.state, len(want.effects), calm.places())

	for _, d := range disturbances(calm) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			got := newCrashRun(t, def, s, d).run()
			got.mustBe(t, want, d.late != "")
		})
	}
}

const undisturbed = "undisturbed"

// disturbance is what one run is subjected to.
type disturbance struct {
	name    string
	crash   map[string]int // the visit of a place at which the process dies
	rewind  bool           // at the crash, or at the end, the consumers' progress is lost
	twice   bool           // each command is sent twice
	double  string         // the step whose commands are sent twice
	slow    string         // the step whose command waits until another was carried out
	late    string         // the step whose command is carried out after its deadline, or, with withhold, after its undo
	held    bool           // it is not delivered before the instance has ended
	again   bool           // all commands come once more at the end
	forget  bool           // the keys of commands are forgotten before
	amnesia bool           // they are forgotten as soon as a command was carried out
	behind  string         // the consumer that waits for the other: events or replies
}

func disturbances(calm *crashRun) []disturbance {
	all := []disturbance{
		{name: "each command twice", twice: true},
		{name: "each event twice", rewind: true},
		{name: "all commands once more", again: true},
		{name: "all commands once more, keys forgotten", again: true, forget: true},
		{name: "keys are forgotten at once", amnesia: true, again: true},
		{name: "replies come before events", behind: events},
		{name: "events come before replies", behind: replies},
	}
	for _, step := range calm.steps() {
		all = append(all, disturbance{name: step + " is slow", slow: step})
		if testscale.Factor() >= 1 {
			all = append(all, disturbance{name: step + " twice", double: step})
		}
		if !calm.hasDeadline(step) {
			continue
		}
		all = append(all, disturbance{name: step + " is carried out after its deadline", late: step},
			disturbance{name: step + " is delivered after its undo", late: step, held: true},
			disturbance{name: step + " is delivered after its undo, keys forgotten", late: step, held: true, forget: true})
	}
	type at struct {
		place string
		visit int
	}
	var places []at
	for place, visits := range calm.visits() {
		for visit := 1; visit <= visits; visit++ {
			places = append(places, at{place, visit})
		}
	}
	slices.SortFunc(places, func(a, b at) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	step := max(1, len(places)/max(1, testscale.N(len(places)))) // a part of them, spread over all
	for n := 0; n < len(places); n += step {
		p := places[n]
		name := fmt.Sprintf("killed at %s, visit %d", p.place, p.visit)
		all = append(all, disturbance{name: name, crash: map[string]int{p.place: p.visit}})
		if n%(3*step) == 0 {
			all = append(all, disturbance{name: name + ", progress lost", crash: map[string]int{p.place: p.visit}, rewind: true})
		}
	}
	return all
}

// result is how a run ended.
type result struct {
	state   State
	effects []string
	bare    []string // steps that were carried out, and not undone
}

func (got result) mustBe(t *testing.T, want result, late bool) {
	t.Helper()
	if t.Failed() {
		return
	}
	if late && got.state == flow.Compensated {
		if len(got.bare) > 0 {
			t.Errorf("it is compensated, but nothing undid %s", strings.Join(got.bare, ", "))
		}
		return
	}
	if got.state != want.state {
		t.Errorf("it is %s, undisturbed it is %s", got.state, want.state)
	}
	if diff := gocmp.Diff(want.effects, got.effects); diff != "" {
		t.Errorf("effects (-undisturbed +got):\n%s", diff)
	}
}
