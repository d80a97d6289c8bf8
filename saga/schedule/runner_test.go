package schedule

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/internal/testscale"
)

// Two years of a daily job of Berlin, with outages, under every policy: what ran and what was missed, by slot. The expected
// slots are those of a walk through every minute. At the usual scale the quiet months are one outage each.
func TestTwoYearsUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from, to := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)
	w.clock.to(from)
	const expr = "30 2 * * *"
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	slots := walk([]string{expr}, zone, from, to, time.Minute)[0]
	none := (&calls{}).run
	job := func(name string, missed Missed, tooLate time.Duration) Job {
		return Job{Name: name, Cron: expr, Zone: zone.String(), Missed: missed, TooLate: tooLate, Overlap: Allow, Run: none}
	}
	w.start(w.runner(w.config(), job("once", Once, 0), job("skip", Skip, 0), job("all", All, 0), job("late", All, 30*time.Hour)))
	w.registered(4)

	want := map[string][]string{}
	note := func(job string, slot time.Time, ran bool) {
		state := "missed"
		if ran {
			state = "done"
		}
		want[job] = append(want[job], slot.Format(slotForm)+" "+state)
	}
	for n := 0; n < len(slots); {
		month := slots[n].Month()
		k := 1 // how many slots become due at once
		switch {
		case n%30 == 7:
			k = 5
		case testscale.Factor() < 1 && month != time.March && month != time.October:
			k = 31
		}
		k = min(k, len(slots)-n)
		last := slots[n+k-1]
		late := 10 * time.Second
		if n%4 == 3 {
			late = 2 * time.Hour
		}
		now := last.Add(late)
		w.clock.to(now)
		for i, slot := range slots[n : n+k] {
			latest := i == k-1
			note("once", slot, latest)
			note("skip", slot, latest && late <= time.Minute)
			note("all", slot, true)
			note("late", slot, now.Sub(slot) <= 30*time.Hour)
		}
		n += k
		w.settled()
	}
	for name, lines := range want {
		list, err := History(t.Context(), w.pool, name, AtMost(1000))
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(list)
		var got []string
		for _, r := range list {
			got = append(got, r.Slot.Format(slotForm)+" "+r.State)
		}
		if !slices.Equal(got, lines) {
			t.Errorf("%s: %d slots, want %d\n got %v\nwant %v", name, len(got), len(lines), got, lines)
		}
	}
}

// Nodes whose clocks are five seconds behind and ahead: each slot once, as the next one follows from the one before.
func TestNodesWithWrongClocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	job := Job{Name: "minutely", Cron: "* * * * *", Run: seen.run}
	w.clock.to(at(30 * time.Second))
	for _, off := range []time.Duration{-5 * time.Second, 0, 5 * time.Second} {
		cfg := w.config()
		cfg.Clock = w.clock.off(off)
		w.start(w.runner(cfg, job))
	}
	w.registered(1)
	for range 120 { // ten minutes
		w.clock.step(5 * time.Second)
		due := int(w.clock.time().Add(5*time.Second).Sub(second0) / time.Minute)
		w.eventually("the node whose clock is ahead fires", func() bool {
			return ask[int](w, `SELECT count(*) FROM daybook.schedule_firings WHERE state = 'done'`) >= due
		})
	}
	w.settled()
	var want []string
	for n := range 10 {
		want = append(want, fmt.Sprintf("minutely@%d#1", 60*(n+1)))
	}
	if got := seen.all(); !slices.Equal(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
}

// A runner that is ended and run again five times fires once a second, and leaves nothing behind.
func TestRunAgain(t *testing.T) { // not beside others, whose goroutines would count
	w := newWorld(t)
	var seen calls
	r := w.runner(w.config(), Job{Name: "secondly", Cron: "* * * * * *", Run: seen.run})
	goroutines := 0
	for range 6 {
		stop := w.start(r)
		w.registered(1)
		for range 5 {
			w.clock.step(time.Second)
			w.settled()
		}
		w.eventually("as many goroutines as in the first life", func() bool { // calls may be about to end
			n := runtime.NumGoroutine()
			if goroutines == 0 {
				goroutines = n
			}
			return n <= goroutines
		})
		stop()
	}
	for n, got := range seen.all() {
		if want := fmt.Sprintf("secondly@%d#1", n+1); got != want {
			t.Fatalf("firing %d is %s, want %s", n, got, want)
		}
	}
	if n := len(seen.all()); n != 30 {
		t.Errorf("%d firings in 30 s", n)
	}
}

// An old program that does not know a new job decides about it, and never carries it out; the new one runs it on time.
func TestARollingDeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var old, fresh calls
	known := Job{Name: "known", Cron: "* * * * *", Run: old.run}
	w.start(w.runner(w.config(), known))
	w.registered(1)
	deployed := []Job{{Name: "known", Cron: "* * * * *", Run: fresh.run}, {Name: "added", Cron: "* * * * *", Run: fresh.run}}
	stop := w.start(w.runner(w.config(), deployed...))
	w.registered(2)
	w.clock.step(61 * time.Second)
	w.settled()
	stop() // its processes are away for a moment
	w.clock.step(60 * time.Second)
	w.eventually("the slot is written down by a process that does not know the job", func() bool {
		return ask[int](w, `SELECT count(*) FROM daybook.schedule_firings WHERE job = 'added' AND state = 'waiting'`) == 1
	})
	w.start(w.runner(w.config(), deployed...))
	w.settled()
	if got := w.told("added"); got != "60:done 120:done" {
		t.Errorf("the new job: %s", got)
	}
	if strings.Contains(old.text(), "added") {
		t.Errorf("the old program ran %s", old.text())
	}
}

// One job hangs for ever; a hundred others run, and it is reported.
func TestAHungJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	hung := Job{Name: "hung", Cron: "* * * * *", Timeout: 20 * time.Millisecond, Run: func(context.Context, Firing) error {
		<-release
		return nil
	}}
	var seen calls
	others := Job{Name: "other", Cron: "* * * * *", Tenants: some(100), Run: seen.run}
	cfg := w.config()
	cfg.margin = 2 * time.Second
	r := w.runner(cfg, hung, others)
	stop := w.start(r)
	w.registered(101)
	w.clock.step(time.Minute)
	w.eventually("the others run", func() bool { return len(seen.all()) == 100 })
	w.eventually("the hung one is reported", func() bool {
		h := r.Health(context.Background())
		return h.Ready && h.State == "stuck" && strings.Contains(h.Reason, "job hung") && h.Parts[0].State == "stuck" && h.Parts[1].State == "running"
	})
	w.clock.step(time.Minute)
	w.eventually("the others run again", func() bool { return len(seen.all()) == 200 })
	if n := ask[int](w, `SELECT count(*) FROM daybook.schedule_firings WHERE job = 'hung'`); n != 1 {
		t.Errorf("%d firings of the hung job", n)
	}
	close(release)
	w.settled()
	stop()
	if h := r.Health(context.Background()); h.Ready || h.Reason != "call Run" {
		t.Errorf("health after the end: %+v", h)
	}
}

func some(n int) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprint("t", i))
		}
		return list, nil
	}
}

// Five runners, one slot: one effect. So for fifty tenants, each at its own minute.
func TestFiveRunners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen calls
	for range 5 {
		w.start(w.runner(w.config(), Job{Name: "one", Cron: "30 2 * * *", Run: seen.run}, Job{Name: "each", Cron: "H 3 * * *", Tenants: some(50), Run: seen.run}))
	}
	w.registered(51)
	w.clock.to(at(2*time.Hour + 30*time.Minute))
	w.settled()
	if got := seen.text(); got != "one@9000#1" {
		t.Errorf("five runners: %s", got)
	}
	for minute := range 60 {
		w.clock.to(at(3*time.Hour + time.Duration(minute)*time.Minute))
		if minute%10 == 9 {
			w.settled()
		}
	}
	got := seen.all()[1:]
	var want []string
	for i := range 50 {
		tenant := fmt.Sprint("t", i)
		want = append(want, fmt.Sprintf("each%s@%d#1", tenant, 3*3600+60*hashMinute("each", tenant)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("tenants fired\n got %v\nwant %v", got, want)
	}
}
