package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// R-DL01: later events of a key whose event failed wait for it, also those that come while it is tried again.
func TestSequenceWaitsForItsFailedEvent(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("a1"), newSteps()
	var once sync.Once
	var attempts []int
	w.handle = func(ctx context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if string(e.Data) == "a1" {
			attempts = append(attempts, Attempt(ctx))
		}
		if bad.is(string(e.Data)) {
			return errBad
		}
		if string(e.Data) == "a1" {
			once.Do(func() { w.append("a", "a3") }) // during the retry that succeeds
		}
		return nil
	}
	w.append("a", "a1", "a2")
	at := w.append("b", "b1")
	stop := w.run(w.worker(Config{Clock: clock.time}))
	w.reaches(at)
	if diff := cmp.Diff([]string{"b1"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if got := w.letter("a"); got.State != "retrying" || got.Attempts != 1 || got.Data != "a1" || got.Errors[0] != "it is bad" {
		t.Errorf("the letter is %+v", got)
	}
	if n := ask[int](w, "SELECT queued::int FROM daybook.parked"); n != 1 {
		t.Errorf("%d events wait, want a2", n)
	}
	bad.off("a1")
	clock.step(time.Second) // the greatest first pause
	w.becomes("a", "")
	w.eventually("a3 takes effect", func() bool { return len(w.seen()) == 4 })
	stop()
	if diff := cmp.Diff([]string{"b1", "a1", "a2", "a3"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{1, 2}, attempts); diff != "" {
		t.Errorf("attempts in the handler's context: %s", diff)
	}
	if got := w.letter("a"); got.State != "applied" || got.Attempts != 1 {
		t.Errorf("the letter is %+v", got)
	}
	if n := ask[int](w, "SELECT parked_rev::int FROM daybook.segments WHERE consumer = $1", testConsumer); n != 2 {
		t.Errorf("the revision is %d, want one for parking and one for the release", n)
	}
}

// R-DL02: what is tried again leaves the checkpoint alone.
func TestRedriveLeavesTheCheckpoint(t *testing.T) {
	t.Parallel()
	w, bad := newWorld(t), turned()
	var at eventstore.Position
	for i := range 10 {
		v := fmt.Sprint("v", i)
		bad.on[v] = i < 8
		at = w.append(fmt.Sprint("k", i), v)
	}
	w.failing(bad)
	stop := w.run(w.worker(Config{Classify: permanent}))
	w.reaches(at)
	before := w.floor()
	bad.off("v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7")
	id := w.plan(0, 0, 1, "true")
	w.eventually("the plan is done", func() bool { return w.planned(id) == "done" })
	if now := w.floor(); now != before {
		t.Errorf("the checkpoint went from %d to %d", before, now)
	}
	stop()
	w.run(w.worker(Config{Classify: permanent}))
	w.reaches(w.append("k11", "v11"))
	got := w.seen()
	slices.Sort(got)
	if diff := cmp.Diff([]string{"v0", "v1", "v11", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"}, got); diff != "" {
		t.Error(diff)
	}
}

// R-DL03, R-DL11: a handler's own time-out is a failure like any other, and an event is one letter however often it fails.
func TestTimeoutsAreFailuresAndOneLetter(t *testing.T) {
	t.Parallel()
	w, clock := newWorld(t), newSteps()
	w.handle = func(ctx context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		switch string(e.Data) {
		case "late":
			short, cancel := context.WithTimeout(ctx, time.Microsecond)
			defer cancel()
			<-short.Done()
			return fmt.Errorf("call: %w", short.Err())
		case "canceled":
			return context.Canceled
		}
		return nil
	}
	w.append("a", "late")
	w.append("b", "canceled")
	worker := w.worker(Config{Clock: clock.time, Attempts: 2})
	w.run(worker)
	w.reaches(w.append("c", "good"))
	clock.step(time.Minute)
	w.becomes("a", "parked")
	w.becomes("b", "parked")
	for key, text := range map[string]string{"a": "call: context deadline exceeded", "b": "context canceled"} {
		if got := w.letter(key); got.Attempts != 2 || got.Kind != "transient" || got.Errors[0] != text || got.Data == "" {
			t.Errorf("the letter of %s is %+v", key, got)
		}
	}
	if s := worker.Status(); s.State != Running || s.Parked.Parked != 2 {
		t.Errorf("the worker is %+v", s)
	}
	w.reaches(w.append("c", "good too"))
	if diff := cmp.Diff([]string{"good", "good too"}, w.seen()); diff != "" {
		t.Error(diff)
	}
}

// R-DL04: a redrive of what fails permanently is one attempt each, and the letter has both failures.
func TestRedriveOfPermanentFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int64
	w.handle = func(context.Context, pgx.Tx, eventstore.RecordedEvent) error {
		return fmt.Errorf("call %d: %w", calls.Add(1), errBad)
	}
	var at eventstore.Position
	for i := range 5 {
		at = w.append(fmt.Sprint("k", i), "v")
	}
	w.run(w.worker(Config{Classify: permanent}))
	w.reaches(at)
	if n := calls.Load(); n != 5 {
		t.Errorf("%d calls for 5 events", n)
	}
	id := w.plan(0, 0, 0, "true")
	w.eventually("the plan is done", func() bool { return w.planned(id) == "done" })
	if n := calls.Load(); n != 10 {
		t.Errorf("%d calls after a redrive of 5", n)
	}
	for i := range 5 {
		got := w.letter(fmt.Sprint("k", i))
		if got.State != "parked" || got.Attempts != 2 || got.Round != 1 || got.Errors[0] == got.FirstErrors[0] ||
			!strings.Contains(got.FirstErrors[0], "call ") {
			t.Errorf("letter %d is %+v", i, got)
		}
	}
	if n := ask[int](w, "SELECT failed FROM daybook.redrives WHERE redrive = $1", id); n != 5 {
		t.Errorf("the plan counts %d failures", n)
	}
}

// R-DL05: an event that always fails holds no other key.
func TestPoisonHoldsNobody(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("poison"), newSteps()
	w.failing(bad)
	at := w.append("p", "poison")
	for i := range 100 {
		at = w.append(fmt.Sprint("k", i), fmt.Sprint("good", i))
	}
	w.run(w.worker(Config{Clock: clock.time, Attempts: 3}))
	w.reaches(at) // while the clock stands
	if n := len(w.seen()); n != 100 {
		t.Errorf("%d of 100 took effect", n)
	}
	for range 3 {
		clock.step(time.Minute)
		w.eventually("the budget lets it", func() bool { return bad.count("poison") > 2 || w.letter("p").Attempts > 1 })
	}
	w.becomes("p", "parked")
	if n := bad.count("poison"); n != 3 {
		t.Errorf("it was tried %d times, want 3", n)
	}
}

// R-DL07: what always fails is not tried in a hot loop.
func TestFailingIsNoHotLoop(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("v"), newSteps()
	w.failing(bad)
	w.append("k", "v")
	w.run(w.worker(Config{Clock: clock.time, Attempts: 1000}))
	w.becomes("k", "retrying")
	for range 100 { // 10 s
		clock.step(100 * time.Millisecond)
		<-time.After(2 * unknownClock)
	}
	if n := bad.count("v"); n < 3 || n >= 20 {
		t.Errorf("%d attempts in 10 s", n)
	}
}

// R-DL09: when a letter cannot be written the checkpoint does not pass, and everybody can see why.
func TestLetterThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w, bad := newWorld(t), turned("bad")
	w.failing(bad)
	role := "r_" + ask[string](w, "SELECT current_database()::text")
	w.exec("CREATE ROLE " + role)
	w.exec("GRANT ALL ON ALL TABLES IN SCHEMA daybook, public TO " + role)
	w.exec("GRANT USAGE ON SCHEMA daybook, public TO " + role)
	t.Cleanup(func() { w.exec("DROP OWNED BY " + role); w.exec("DROP ROLE " + role) })
	w.exec("REVOKE INSERT ON daybook.letters FROM " + role)
	w.append("a", "good")
	first := w.floor()
	at := w.append("b", "bad")

	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	weak := &world{t: t, pool: newPool(t, cfg), store: w.store, handle: w.handle}
	worker := weak.worker(Config{Classify: permanent})
	weak.run(worker)
	w.eventually("it is seen", func() bool {
		s := worker.Status()
		return s.State == Waiting && strings.Contains(s.Reason, "permission denied for table letters") && strings.Contains(s.Reason, "sets aside")
	})
	w.eventually("it is tried again", func() bool { return bad.count("bad") >= 3 })
	if now := w.floor(); now >= at.Ordinal() || now < first {
		t.Errorf("the checkpoint is %d, and the letter at %s is not written", now, at)
	}
	w.exec("GRANT INSERT ON daybook.letters TO " + role)
	w.becomes("b", "parked")
	w.reaches(at)
	if diff := cmp.Diff([]string{"good"}, w.seen()); diff != "" {
		t.Error(diff)
	}
}

// A shutdown, or the loss of the lease, in the middle of a retry changes nothing.
func TestEndDuringARetry(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"shutdown", "lost"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w, clock := newWorld(t), newSteps()
			var calls atomic.Int64
			inside := make(chan struct{}, 1)
			w.handle = func(ctx context.Context, _ pgx.Tx, _ eventstore.RecordedEvent) error {
				if calls.Add(1) != 2 {
					return errBad
				}
				inside <- struct{}{}
				<-ctx.Done()
				return errors.New("what it says then means nothing")
			}
			w.append("a", "v")
			stop := w.run(w.worker(Config{Clock: clock.time, Lease: 300 * time.Millisecond}))
			w.becomes("a", "retrying")
			before := w.letter("a")
			clock.step(time.Second)
			<-inside
			if how == "shutdown" {
				stop()
			} else {
				w.exec("UPDATE daybook.segments SET epoch = epoch + 1, owner = 'another', expires_at = clock_timestamp() + interval '1 hour' WHERE consumer = $1", testConsumer)
				w.eventually("the handler is told", func() bool { return calls.Load() == 2 && len(inside) == 0 })
				stop()
			}
			if diff := cmp.Diff(before, w.letter("a")); diff != "" {
				t.Errorf("the letter has changed: %s", diff)
			}
			if got := w.state("a"); got != "retrying" {
				t.Errorf("the sequence is %q", got)
			}
		})
	}
}

// What is away holds everybody and uses up no attempts; afterwards one event alone finds out, then all go on.
func TestEnvironmentHoldsEverybody(t *testing.T) {
	t.Parallel()
	w, away := newWorld(t), turned("v3")
	w.failing(away)
	var at eventstore.Position
	for i := range 9 {
		at = w.append(fmt.Sprint("k", i), fmt.Sprint("v", i))
	}
	o := &batches{}
	worker := w.worker(Config{Observer: o, Attempts: 1, Classify: func(error) eventstore.FailureKind { return eventstore.Environment }})
	w.run(worker)
	w.eventually("it waits", func() bool { return worker.Status().State == Waiting && away.count("v3") >= 4 })
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters"); n != 0 {
		t.Errorf("%d letters", n)
	}
	if diff := cmp.Diff([]string{"v0", "v1", "v2"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	away.off("v3")
	w.reaches(at)
	if diff := cmp.Diff([]string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{3, 1, 5}, o.sizes()); diff != "" {
		t.Errorf("batches that were committed: %s", diff)
	}
}

type batches struct {
	eventstore.NopObserver
	mu  sync.Mutex
	all []int
}

// ObserveBatch implements [eventstore.Observer].
func (o *batches) ObserveBatch(b eventstore.BatchObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.Err == nil {
		o.all = append(o.all, b.Events)
	}
}

func (o *batches) sizes() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

// More sequences than MaxParked stop the consumer just before the next event that fails.
func TestTooManyParkedStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if strings.HasPrefix(string(e.Data), "bad") {
			return errBad
		}
		return nil
	}
	w.append("a", "bad1")
	w.append("b", "bad2")
	w.append("c", "good1")
	w.append("a", "behind") // no sequence more
	last := w.append("d", "good2")
	w.append("e", "bad3")
	w.append("f", "good3")
	worker := w.worker(Config{MaxParked: 2, Classify: permanent})
	w.run(worker)
	w.eventually("it stops", func() bool { return worker.Status().State == Stopped })
	if reason := worker.Status().Reason; !strings.Contains(reason, "MaxParked") || !strings.Contains(reason, `"s-e"`) || !strings.Contains(reason, "it is bad") {
		t.Errorf("the reason is %q", reason)
	}
	if diff := cmp.Diff([]string{"good1", "good2"}, w.seen()); diff != "" {
		t.Error(diff)
	}
	if got := w.floor(); got != last.Ordinal() {
		t.Errorf("the checkpoint is %d, want %s", got, last)
	}
}
