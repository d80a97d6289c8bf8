package consumer

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/retry"
)

// told keeps what an observer is told of failures and of what is set aside, as text.
type told struct {
	eventstore.NopObserver
	mu               sync.Mutex
	failures, asides []string
}

// ObserveFailure implements [eventstore.Observer].
func (o *told) ObserveFailure(f eventstore.FailureObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, fmt.Sprintf("%s v%d %s: %s, attempt %d, parked %t: %v", f.Consumer, f.Version, f.Type, f.Kind, f.Attempt, f.Parked, f.Err))
}

// ObserveParked implements [eventstore.Observer].
func (o *told) ObserveParked(p eventstore.ParkedObservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := fmt.Sprintf("%d retrying, %d parked, %d draining, since then %t", p.Retrying, p.Parked, p.Draining, !p.Oldest.IsZero())
	if len(o.asides) == 0 || o.asides[len(o.asides)-1] != now {
		o.asides = append(o.asides, now)
	}
}

func (o *told) both() (failures, asides []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.failures), slices.Clone(o.asides)
}

// An observer is told of each failure, with its kind and attempt, and of what is set aside whenever that changes: it has
// what a gauge shows, from the takeover on.
func TestObserverIsToldOfWhatIsSetAside(t *testing.T) {
	t.Parallel()
	w, bad, clock, o := newWorld(t), turned("a1", "b1"), newSteps(), &told{}
	w.failing(bad)
	cfg := Config{Clock: clock.time, Attempts: 2, Observer: o}
	stop := w.run(w.worker(cfg))
	w.eventually("it has taken over", func() bool { _, asides := o.both(); return len(asides) == 1 })
	w.append("a", "a1", "a2")
	w.becomes("a", "retrying")
	clock.step(time.Minute)
	w.becomes("a", "parked")
	stop()
	w.run(w.worker(cfg)) // the next owner tells of what it finds
	bad.off("a1")
	w.plan(0, 0, 1, "true")
	w.becomes("a", "")
	w.append("b", "b1")
	w.becomes("b", "retrying")
	w.eventually("it is told", func() bool { f, _ := o.both(); return len(f) == 3 })

	failures, asides := o.both()
	if diff := cmp.Diff([]string{
		"tested v1 test.happened: transient, attempt 1, parked false: value a1: it is bad",
		"tested v1 test.happened: transient, attempt 2, parked true: value a1: it is bad",
		"tested v1 test.happened: transient, attempt 1, parked false: value b1: it is bad",
	}, failures); diff != "" {
		t.Errorf("failures: %s", diff)
	}
	if diff := cmp.Diff([]string{
		"0 retrying, 0 parked, 0 draining, since then false",
		"1 retrying, 0 parked, 0 draining, since then true",
		"0 retrying, 1 parked, 0 draining, since then true",
		"0 retrying, 0 parked, 1 draining, since then true",
		"0 retrying, 0 parked, 0 draining, since then false",
		"1 retrying, 0 parked, 0 draining, since then true",
	}, asides); diff != "" {
		t.Errorf("what is set aside: %s", diff)
	}
}

// Retries keep to their budget, whatever is due: what does not fit is put off, and uses up no attempt.
func TestRetriesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	const keys, floor = 40, 1
	budget, err := retry.NewBudget(retry.BudgetConfig{Share: 0.1, Floor: floor})
	if err != nil {
		t.Fatal(err)
	}
	w, clock := newWorld(t), newSteps()
	bad := turned("v")
	w.failing(bad)
	for i := range keys {
		w.append(fmt.Sprint("k", i), "v")
	}
	w.run(w.worker(Config{Clock: clock.time, Attempts: 1000, RetryBase: time.Millisecond, RetryCap: time.Millisecond, Budget: budget}))
	w.eventually("all are set aside", func() bool { return ask[int](w, "SELECT count(*)::int FROM daybook.letters") == keys })
	retries := func() int { return ask[int](w, "SELECT sum(attempts)::int FROM daybook.letters") - keys }
	const allowed = 10 * floor // in any 10 s; a tenth of the first attempts is less
	for window := range 3 {
		clock.step(11 * time.Second)
		w.eventually("some are tried again", func() bool { return retries() > window*allowed })
		for range 8 { // all are due each time, and there are 40
			clock.step(time.Second)
			<-time.After(2 * unknownClock)
		}
		if n := retries(); n > (window+1)*2*allowed {
			t.Fatalf("%d retries in %d s, want %d each 10 s at most", n, (window+1)*19, allowed)
		}
	}
}
