package consumer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// items are the states of a plan's items, in their order.
func (w *world) items(id uuid.UUID) []string {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), "SELECT state FROM daybook.redrive_items WHERE redrive = $1 ORDER BY item", id)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// parkedWorld has n sequences parked, k00 with v00 and so on, and a worker of whom every failure is permanent.
func parkedWorld(t *testing.T, n int, cfg Config) (w *world, bad *switches, stop func()) {
	t.Helper()
	w, bad = newWorld(t), turned()
	var at eventstore.Position
	for i := range n {
		bad.on[fmt.Sprintf("v%02d", i)] = true
		at = w.append(fmt.Sprintf("k%02d", i), fmt.Sprintf("v%02d", i))
	}
	w.failing(bad)
	cfg.Classify = permanent
	stop = w.run(w.worker(cfg))
	w.reaches(at)
	return w, bad, stop
}

// A plan stops at its canary, whatever may fail beyond.
func TestCanaryStopsThePlan(t *testing.T) {
	t.Parallel()
	w, bad, _ := parkedWorld(t, 6, Config{})
	bad.off("v00", "v02", "v03", "v04", "v05")
	id := w.plan(0, 2, 0, "true")
	w.eventually("the plan stops", func() bool { return w.planned(id) == "stopped" })
	if diff := cmp.Diff([]string{"succeeded", "failed", "waiting", "waiting", "waiting", "waiting"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
	bad.off("v01")
	id = w.plan(0, 2, 0, "true")
	w.eventually("the next one is done", func() bool { return w.planned(id) == "done" })
	if diff := cmp.Diff([]string{"v00", "v01", "v02", "v03", "v04", "v05"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if n := ask[int](w, "SELECT succeeded FROM daybook.redrives WHERE redrive = $1", id); n != 5 {
		t.Errorf("it counts %d", n)
	}
}

// Of a canary one begins at a time: while it is tried again the others wait, and when it has failed nothing else was tried.
func TestCanaryBeginsOneAtATime(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("v0", "v1", "v2", "v3"), newSteps()
	w.failing(bad)
	for i := range 4 {
		w.append(fmt.Sprint("k", i), fmt.Sprint("v", i))
	}
	w.run(w.worker(Config{Clock: clock.time, Attempts: 2}))
	parked := func(n int) func() bool {
		return func() bool {
			return ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked' AND attempts >= 2") == n
		}
	}
	w.eventually("all are tried again", func() bool {
		return ask[int](w, "SELECT count(*)::int FROM daybook.parked WHERE state = 'retrying'") == 4
	})
	clock.step(time.Minute)
	w.eventually("all are parked", parked(4))
	bad.off("v0")
	id := w.plan(0, 3, 1, "true")
	w.becomes("k1", "retrying")
	<-time.After(2*lookEvery + 4*unknownClock)
	if diff := cmp.Diff([]string{"succeeded", "running", "waiting", "waiting"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
	clock.step(time.Minute)
	w.eventually("the plan stops", func() bool { return w.planned(id) == "stopped" })
	if diff := cmp.Diff([]string{"succeeded", "failed", "waiting", "waiting"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
}

// A plan stops when so many have failed.
func TestFailuresStopThePlan(t *testing.T) {
	t.Parallel()
	w, bad, _ := parkedWorld(t, 6, Config{})
	bad.off("v00", "v02", "v04")
	id := w.plan(0, 0, 2, "true")
	w.eventually("the plan stops", func() bool { return w.planned(id) == "stopped" })
	if diff := cmp.Diff([]string{"succeeded", "failed", "succeeded", "failed", "waiting", "waiting"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
}

// What is no longer open is skipped, and a plan of which nothing is left ends.
func TestPlanSkipsWhatIsNotOpen(t *testing.T) {
	t.Parallel()
	w, bad, _ := parkedWorld(t, 2, Config{})
	bad.off("v00", "v01")
	first := w.plan(0, 0, 1, "true")
	second := w.plan(0, 0, 1, "true")
	w.eventually("both are done", func() bool { return w.planned(first) == "done" && w.planned(second) == "done" })
	if diff := cmp.Diff([]string{"succeeded", "succeeded"}, w.items(first)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"skipped", "skipped"}, w.items(second)); diff != "" {
		t.Error(diff)
	}
}

// A plan's rate is kept, by the owner's clock.
func TestPlanKeepsItsRate(t *testing.T) {
	t.Parallel()
	clock := newSteps()
	w, bad, _ := parkedWorld(t, 3, Config{Clock: clock.time})
	bad.off("v00", "v01", "v02")
	clock.step(time.Hour) // behind the time at which the database says that the plan was made
	id := w.plan(0.5, 0, 1, "true")
	for n := 1; n <= 3; n++ {
		w.eventually(fmt.Sprint(n, " succeed"), func() bool {
			return ask[int](w, "SELECT succeeded FROM daybook.redrives WHERE redrive = $1", id) >= n
		})
		clock.step(1900 * time.Millisecond)
		<-time.After(2*lookEvery + 4*unknownClock)
		if got := ask[int](w, "SELECT succeeded FROM daybook.redrives WHERE redrive = $1", id); got != n {
			t.Errorf("%d have succeeded after %d steps just below the rate", got, n)
		}
		clock.step(100 * time.Millisecond)
	}
	w.eventually("it is done", func() bool { return w.planned(id) == "done" })
}

// An item whose letter is tried several times ends with it, also when another owner takes over in between.
func TestItemGoesOnWithTheNextOwner(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("v"), newSteps()
	w.failing(bad)
	w.append("k", "v")
	stop := w.run(w.worker(Config{Clock: clock.time, Attempts: 2}))
	w.becomes("k", "retrying")
	clock.step(time.Minute)
	w.becomes("k", "parked")
	id := w.plan(0, 0, 1, "true")
	w.becomes("k", "retrying") // the first attempt of a new round has failed
	if diff := cmp.Diff([]string{"running"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
	stop()
	w.run(w.worker(Config{Clock: clock.time, Attempts: 2}))
	bad.off("v")
	clock.step(time.Minute)
	w.becomes("k", "")
	w.eventually("the plan is done", func() bool { return w.planned(id) == "done" })
	if diff := cmp.Diff([]string{"succeeded"}, w.items(id)); diff != "" {
		t.Error(diff)
	}
	if got := w.letter("k"); got.State != "applied" || got.Attempts != 3 {
		t.Errorf("the letter is %+v", got)
	}
}

// What operators change under the lock of the segment's row is seen by an owner that has nothing to commit, within a second
// or so: here a letter is discarded.
func TestOwnerSeesWhatOperatorsChange(t *testing.T) {
	t.Parallel()
	w, _, _ := parkedWorld(t, 1, Config{})
	at := w.append("k00", "behind")
	w.reaches(at)
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`UPDATE daybook.segments SET parked_rev = parked_rev + 1 WHERE consumer = 'tested'`,
			`UPDATE daybook.letters SET state = 'discarded', closed_at = clock_timestamp(), closed_by = 'test', reason = 'wrong'`,
			`UPDATE daybook.parked SET state = 'draining', first_position = first_position + 1`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.becomes("k00", "")
	if diff := cmp.Diff([]string{"behind"}, w.seen()); diff != "" {
		t.Error(diff)
	}
}

// What is queued goes on page by page, stops at an event that fails, and goes on behind it when that is redriven.
func TestDrainStopsAtTheNextFailure(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(w *world) Source{
		"by sequence": func(w *world) Source { return w.store.Log() },
		"by page":     func(w *world) Source { return plainSource{w.store.Log()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, bad := newWorld(t), turned("v0", "v7")
			w.failing(bad)
			var want []string
			var at eventstore.Position
			for i := range 12 {
				at = w.append("k", fmt.Sprint("v", i))
				w.append("other", fmt.Sprint("w", i))
				want = append(want, fmt.Sprint("v", i))
			}
			w.run(w.reading(source(w), Config{Classify: permanent, BatchSize: 5}))
			w.reaches(at)
			bad.off("v0")
			w.plan(0, 0, 1, "true")
			w.eventually("it stops at v7", func() bool { return w.state("k") == "parked" && bad.count("v7") == 1 })
			if n := ask[int](w, "SELECT queued::int FROM daybook.parked"); n != 4 {
				t.Errorf("%d wait behind v7", n)
			}
			bad.off("v7")
			w.plan(0, 0, 1, "true")
			w.becomes("k", "")
			got := slices.DeleteFunc(w.seen(), func(v string) bool { return v[0] == 'w' })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// plainSource hides that a log can read one sequence.
type plainSource struct{ Source }
