package schedule

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A job that fails is tried again within its slot, and has failed then; the next slot goes on. A panic is a failure.
func TestAJobThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	w.start(w.runner(w.config(), Job{Name: "bad", Cron: "* * * * *", Attempts: 3, RetryBase: time.Millisecond, RetryCap: time.Millisecond, Run: func(_ context.Context, f Firing) error {
		seen.note(f)
		switch {
		case f.Slot == at(time.Minute) && f.Attempt == 2:
			panic("secret")
		case f.Slot == at(time.Minute):
			return errors.New("the printer is on fire")
		case f.Slot == at(2*time.Minute) && f.Attempt == 1:
			return errors.New("no paper")
		}
		return nil
	}}))
	w.registered(1)
	for n := range 3 {
		w.clock.to(at(time.Duration(n+1) * time.Minute))
		w.eventually("the slot ends", func() bool {
			w.clock.step(time.Millisecond)
			return ask[int](w, `SELECT count(*) FROM daybook.schedule_firings WHERE ended_at IS NOT NULL`) == n+1
		})
	}
	if got := seen.text(); got != "bad@60#1 bad@60#2 bad@60#3 bad@120#1 bad@120#2 bad@180#1" {
		t.Errorf("called for %s", got)
	}
	list, err := History(t.Context(), w.pool, "bad")
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if r := list[2]; r.State != "failed" || r.Attempts != 3 || r.Failures != 3 || r.Error != "the printer is on fire" || r.StartedAt.IsZero() || r.EndedAt.IsZero() || r.Owner == "" {
		t.Errorf("the first: %+v", r)
	}
	if r := list[1]; r.State != "done" || r.Attempts != 2 || r.Failures != 1 {
		t.Errorf("the second: %+v", r)
	}
	if n := ask[int](w, `SELECT count(*) FROM daybook.timers WHERE queue LIKE 'schedule:%'`); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

// An attempt that takes too long has failed, and says so.
func TestTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.runner(w.config(), Job{Name: "slow", Cron: "* * * * *", Attempts: 1, Timeout: 30 * time.Millisecond, Run: func(ctx context.Context, _ Firing) error {
		<-ctx.Done()
		return ctx.Err()
	}}))
	w.registered(1)
	w.clock.step(time.Minute)
	w.settled()
	list, err := History(t.Context(), w.pool, "slow")
	if err != nil || len(list) != 1 || list[0].State != "failed" || !strings.HasPrefix(list[0].Error, "it took longer than Timeout, 30ms") {
		t.Errorf("%+v, %v", list, err)
	}
}

// A runner that ends gives back what it cannot end; that is no failure, and the next one goes on with the progress.
func TestShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := make(chan Firing, 2)
	var again atomic.Bool
	r := w.runner(w.config(), Job{Name: "long", Cron: "* * * * *", Attempts: 1, Run: func(ctx context.Context, f Firing) error {
		began <- f
		if again.Load() {
			return nil
		}
		if err := f.Save(ctx, []byte("half")); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	stop := w.start(r)
	w.registered(1)
	w.clock.step(time.Minute)
	receive(t, "it begins", began)
	w.eventually("it saves", func() bool {
		return ask[string](w, `SELECT encode(progress, 'escape') FROM daybook.schedule_firings`) == "half"
	})
	since := time.Now()
	stop()
	if d := time.Since(since); d > 10*time.Second {
		t.Errorf("Run took %v to end", d)
	}
	again.Store(true)
	w.start(r)
	f := receive(t, "it goes on", began)
	if f.Attempt != 2 || string(f.Progress()) != "half" {
		t.Errorf("%+v with %q", f, f.Progress())
	}
	w.settled()
	if list, err := History(t.Context(), w.pool, "long"); err != nil || len(list) != 1 || list[0].State != "done" || list[0].Failures != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A firing that waited for a worker for too long is not begun any more.
func TestTooLateForAWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	job := Job{Name: "late", Cron: "0 2 * * *", TooLate: time.Hour, Run: seen.run}
	stop := w.start(w.runner(w.config(), job, Job{Name: "other", Cron: "0 2 * * *", Run: seen.run}))
	w.registered(2)
	stop()
	stop = w.start(w.runner(w.config(), Job{Name: "other", Cron: "0 2 * * *", Run: seen.run}))
	w.exec(`UPDATE daybook.schedules SET seen_at = $1`, at(2*time.Hour))
	w.clock.to(at(2 * time.Hour))
	w.eventually("it waits", func() bool { return w.told("late") == "7200:waiting" && w.told("other") == "7200:done" })
	stop()
	w.clock.to(at(4 * time.Hour))
	w.start(w.runner(w.config(), job))
	w.settled()
	list, err := History(t.Context(), w.pool, "late")
	if err != nil || len(list) != 1 || list[0].State != "missed" || list[0].Error != "too late to start: it was due 2h0m0s before" || list[0].Attempts != 0 || !list[0].StartedAt.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if got := seen.text(); got != "other@7200#1" {
		t.Errorf("called for %s", got)
	}
}

// Another expression counts from now on; a job that nobody knows stays, and goes on when somebody does.
func TestChangedAndOrphaned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	daily := Job{Name: "report", Cron: "0 2 * * *", Run: seen.run}
	stop := w.start(w.runner(w.config(), daily, Job{Name: "other", Cron: "0 0 1 1 *", Run: seen.run}))
	w.registered(2)
	stop()
	w.clock.to(at(time.Hour))
	daily.Cron = "30 * * * *"
	stop = w.start(w.runner(w.config(), daily))
	w.eventually("the new slot", func() bool {
		return ask[bool](w, `SELECT next_slot = $1 FROM daybook.schedules WHERE job = 'report'`, at(90*time.Minute))
	})
	w.clock.to(at(90 * time.Minute))
	w.settled()
	stop()
	// The job is gone from the code, and others look at what is due.
	w.clock.to(at(3 * time.Hour))
	stop = w.start(w.runner(w.config(), Job{Name: "other", Cron: "0 0 1 1 *", Run: seen.run}))
	w.eventually("nobody looks at it any more", func() bool {
		return !ask[bool](w, `SELECT EXISTS (SELECT FROM daybook.timers WHERE queue = 'schedules' AND name = 'report/')`)
	})
	stop()
	w.exec(`UPDATE daybook.schedules SET seen_at = clock_timestamp() - interval '6 minutes' WHERE job = 'report'`)
	list, err := List(t.Context(), w.pool)
	if err != nil || len(list) != 2 || list[0].Orphaned || !list[1].Orphaned || list[1].Job != "report" || list[1].Cron != "30 * * * *" ||
		!list[1].Next.Equal(at(150*time.Minute)) || !list[1].Last.Equal(at(90*time.Minute)) || list[1].Open != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	w.start(w.runner(w.config(), daily))
	w.settled()
	if got := w.told("report"); got != "5400:done 9000:done" {
		t.Errorf("report: %s", got)
	}
}

// Tenants come and go.
func TestTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	var list atomic.Pointer[[]string]
	list.Store(&[]string{"ada", ""})
	w.start(w.runner(w.config(), Job{Name: "bill", Cron: "0 * * * *", Run: seen.run, Tenants: func(context.Context) ([]string, error) {
		if l := list.Load(); l != nil {
			return *l, nil
		}
		return nil, errors.New("the directory is away")
	}}))
	w.registered(1)
	list.Store(&[]string{"ada", "grace@home"})
	w.registered(2)
	list.Store(nil)
	w.clock.to(at(time.Hour))
	w.settled()
	list.Store(&[]string{"grace@home"})
	w.eventually("only one is known", func() bool {
		w.clock.step(time.Minute)
		return ask[bool](w, `SELECT max(seen_at) - min(seen_at) > interval '6 minutes' FROM daybook.schedules`)
	})
	w.clock.to(at(3 * time.Hour))
	w.eventually("the slot of the one that stays", func() bool { return strings.Contains(seen.text(), "billgrace@home@10800") })
	for _, got := range seen.all() {
		if strings.HasPrefix(got, "billada") && got != "billada@3600#1" {
			t.Errorf("%s, after it was gone", got)
		}
	}
	if all, err := History(t.Context(), w.pool, "bill", OfTenant("ada"), InSchema("daybook"), AtMost(5)); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A store that is not there is said; nobody waits for it.
func TestWithoutStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Schema = "elsewhere"
	r := w.runner(cfg, Job{Name: "report", Cron: "0 2 * * *", Run: (&calls{}).run})
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "migrate it") {
		t.Errorf("Run: %v", err)
	}
	if h := r.Health(t.Context()); h.Ready || h.Component != "schedules" {
		t.Errorf("%+v", h)
	}
}

// The zero Firing is for tests of jobs.
func TestAFiringForTests(t *testing.T) {
	t.Parallel()
	var f Firing
	if err := errors.Join(f.Save(t.Context(), nil), f.SaveTx(t.Context(), nil, nil), f.Finish(t.Context(), nil)); err != nil || f.Progress() != nil {
		t.Errorf("%v", err)
	}
}

// What ended long ago is removed, in pages.
func TestClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`INSERT INTO daybook.schedule_firings (job, tenant, slot, state, ended_at)
	 SELECT 'old', '', $1::timestamptz - i * interval '1 hour', 'done', $1::timestamptz - i * interval '1 hour' FROM generate_series(0, 2500) i`, second0)
	w.exec(`INSERT INTO daybook.schedule_firings (job, tenant, slot, state) VALUES ('old', 'open', $1, 'waiting')`, second0.AddDate(-1, 0, 0))
	cfg := w.config()
	cfg.Keep = 10*time.Hour + time.Minute
	w.start(w.runner(cfg))
	w.eventually("old ones are removed", func() bool { return ask[int](w, `SELECT count(*) FROM daybook.schedule_firings`) == 12 })
}

// A firing that kills its process again and again has failed at last, and is not begun any more.
func TestAJobThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	job := Job{Name: "deadly", Cron: "0 2 * * *", Attempts: 3, Run: seen.run}
	w.exec(`INSERT INTO daybook.schedule_firings (job, tenant, slot, state, attempt, failures, token, owner, started_at) VALUES ('deadly', '', $1, 'running', 3, 2, 7, 'gone', $1)`, second0)
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at) VALUES ('schedule:deadly', $2, $1, $1)`, second0, nameOf("", second0))
	w.start(w.runner(w.config(), job))
	w.eventually("it has failed", func() bool { return w.told("deadly") == "0:failed" })
	list, err := History(t.Context(), w.pool, "deadly")
	if err != nil || list[0].Attempts != 3 || list[0].Failures != 3 || list[0].Error != "its process ended, or was silent for the lease, in attempt 3; 3 of 3 failed" || len(seen.all()) > 0 {
		t.Errorf("%+v, %v, %s", list, err, seen.text())
	}
}
