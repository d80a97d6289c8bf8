package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// long is a job that runs until it is told to end, or until its context ends.
type long struct {
	calls
	began chan Firing
	end   chan struct{}
	ended chan error
}

func newLong() *long {
	return &long{began: make(chan Firing, 100), end: make(chan struct{}), ended: make(chan error, 100)}
}

func (l *long) run(ctx context.Context, f Firing) error {
	l.note(f)
	l.began <- f
	select {
	case <-l.end:
		return nil
	case <-ctx.Done():
		l.ended <- errors.Join(f.Save(context.WithoutCancel(ctx), []byte("late")), context.Cause(ctx))
		return ctx.Err()
	}
}

// A job that runs longer than three slots waits for its end; then the policy decides about those that waited.
func TestOverlapForbid(t *testing.T) {
	t.Parallel()
	for missed, want := range map[Missed]string{
		Once: "60:done 120:missed 180:missed 240:done",
		Skip: "60:done 120:missed 180:missed 240:done",
		All:  "60:done 120:done 180:done 240:done",
	} {
		w := newWorld(t)
		l := newLong()
		w.start(w.runner(w.config(), Job{Name: "long", Cron: "* * * * *", Missed: missed, Run: l.run}))
		w.registered(1)
		w.clock.step(60 * time.Second)
		receive(t, "the first begins", l.began)
		for range 3 {
			w.clock.step(60 * time.Second)
			w.eventually("it is looked at, and left", func() bool {
				return ask[bool](w, `SELECT due_at > $1 FROM daybook.timers WHERE queue = 'schedules'`, w.clock.time())
			})
		}
		if got := l.text(); got != "long@60#1" {
			t.Errorf("%s: beside it: %s", missed, got)
		}
		close(l.end)
		w.settled()
		if got := w.told("long"); got != want {
			t.Errorf("%s: %s, want %s", missed, got, want)
		}
	}
}

func TestOverlapAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := newLong()
	w.start(w.runner(w.config(), Job{Name: "long", Cron: "* * * * *", Overlap: Allow, Run: l.run}))
	w.registered(1)
	for n := range 3 {
		w.clock.step(60 * time.Second)
		f := receive(t, "the next begins", l.began)
		if want := at(time.Duration(n+1) * time.Minute); !f.Slot.Equal(want) {
			t.Errorf("begun is %s, want %s", f.Slot, want)
		}
	}
	if n := ask[int](w, `SELECT count(*) FROM daybook.schedule_firings WHERE state = 'running'`); n != 3 {
		t.Errorf("%d run side by side", n)
	}
	close(l.end)
	w.settled()
	if got := w.told("long"); got != "60:done 120:done 180:done" {
		t.Errorf("allow: %s", got)
	}
}

// The later slot takes the rights from the earlier, whose context ends and whose writes are refused; and begins then.
func TestOverlapReplace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := newLong()
	w.start(w.runner(w.config(), Job{Name: "long", Cron: "* * * * *", Overlap: Replace, Run: l.run}))
	w.registered(1)
	w.clock.step(60 * time.Second)
	first := receive(t, "the first begins", l.began)
	if err := first.Save(t.Context(), []byte("early")); err != nil {
		t.Fatal(err)
	}
	w.clock.step(60 * time.Second)
	fault := receive(t, "the context of the first ends", l.ended)
	if !errors.Is(fault, ErrLost) || strings.Count(fault.Error(), ErrLost.Error()) != 2 {
		t.Errorf("saving late, and the cause: %v", fault)
	}
	second := receive(t, "the second begins without the clock going on, as the first has returned", l.began)
	if second.Slot != at(120*time.Second) || second.Attempt != 1 || second.Progress() != nil {
		t.Errorf("the second is %+v with %q", second, second.Progress())
	}
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := first.Finish(t.Context(), tx); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "long for 2030-01-01T00:01:00Z") {
		t.Errorf("finishing late: %v", err)
	}
	close(l.end)
	w.settled()
	if got := w.told("long"); got != "60:replaced 120:done" {
		t.Errorf("replace: %s", got)
	}
}

// An earlier firing that does not return delays the later by five seconds, no more.
func TestReplaceWithoutReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, began := make(chan struct{}), make(chan Firing, 10)
	w.start(w.runner(w.config(), Job{Name: "deaf", Cron: "* * * * *", Overlap: Replace, Run: func(_ context.Context, f Firing) error {
		if began <- f; f.Slot == at(time.Minute) {
			<-release
		}
		return nil
	}}))
	w.registered(1)
	w.clock.step(60 * time.Second)
	receive(t, "the first begins", began)
	w.clock.step(60 * time.Second)
	w.eventually("the second waits", func() bool { return w.told("deaf") == "60:replaced 120:waiting" })
	w.clock.step(replaceGrace)
	if f := receive(t, "the second begins", began); f.Slot != at(2*time.Minute) {
		t.Errorf("then came %s", f.Slot)
	}
	w.settled()
	close(release)
	if got := w.told("deaf"); got != "60:replaced 120:done" {
		t.Errorf("replace: %s", got)
	}
}

// A process freezes in the middle; another goes on from what it has saved, and what the first does later is refused.
func TestTakeoverWithProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE TABLE effects (job text, step int)`)
	frozen := &steps{now: second0}
	thaw, done := make(chan struct{}), make(chan error, 2)
	step := func(ctx context.Context, f Firing, n int) error {
		tx, err := w.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1, $2)`, f.Job, n); err != nil {
			return err
		}
		if err := f.SaveTx(ctx, tx, fmt.Append(nil, n)); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	work := func(stopAt int) func(context.Context, Firing) error {
		return func(ctx context.Context, f Firing) error {
			ctx = context.WithoutCancel(ctx) // deaf
			var n int
			if saved := f.Progress(); saved != nil {
				_, _ = fmt.Sscan(string(saved), &n)
			}
			for n++; n <= 5; n++ {
				if n == stopAt {
					done <- nil
					<-thaw
				}
				if err := step(ctx, f, n); err != nil {
					done <- err
					return err
				}
			}
			tx, err := w.pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if err := f.Finish(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}
	}
	cfg := w.config()
	cfg.Lease, cfg.Clock = 30*time.Second, frozen.time
	w.start(w.runner(cfg, Job{Name: "report", Cron: "* * * * *", Run: work(3)}))
	w.registered(1)
	frozen.step(60 * time.Second)
	receive(t, "the first stands still", done)
	cfg.Clock = w.clock.time
	w.clock.to(at(85 * time.Second))
	var second calls
	w.start(w.runner(cfg, Job{Name: "report", Cron: "* * * * *", Run: func(ctx context.Context, f Firing) error {
		second.note(f)
		return work(0)(ctx, f)
	}}))
	w.clock.to(at(91 * time.Second))
	w.eventually("the second finishes", func() bool { return w.told("report") == "60:done" })
	close(thaw)
	if err := receive(t, "the first goes on", done); !errors.Is(err, ErrLost) {
		t.Errorf("the first: %v", err)
	}
	if got := second.text(); got != "report@60#2" {
		t.Errorf("the second carried out %s", got)
	}
	if got := ask[string](w, `SELECT string_agg(step::text, ' ' ORDER BY step) FROM effects`); got != "1 2 3 4 5" {
		t.Errorf("effects %s", got)
	}
	list, err := History(t.Context(), w.pool, "report")
	if err != nil || len(list) != 1 || list[0].Attempts != 2 || list[0].Failures != 1 {
		t.Errorf("history %+v, %v", list, err)
	}
}
