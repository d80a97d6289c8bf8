package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// An event that finds something away is rolled back alone, also while events are applied one by one: what it has done by
// then is not committed with those before it, and done once more later.
func TestWhatIsAwayTakesBackItsEvent(t *testing.T) {
	t.Parallel()
	w, down := newWorld(t), errors.New("the bank is away")
	var away atomic.Bool
	away.Store(true)
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		switch {
		case string(e.Data) == "bad":
			return errBad
		case string(e.Data) == "calls" && away.Load():
			return down // after its row is written
		}
		return nil
	}
	w.append("a", "good")
	w.append("b", "bad") // from here on one by one
	at := w.append("c", "calls")
	worker := w.worker(Config{Classify: func(err error) eventstore.FailureKind {
		if errors.Is(err, down) {
			return eventstore.Environment
		}
		return eventstore.Permanent
	}})
	w.run(worker)
	w.becomes("b", "parked")
	w.eventually("it waits", func() bool { return worker.Status().State == Waiting })
	if diff := cmp.Diff([]string{"good"}, w.seen()); diff != "" {
		t.Errorf("while it is away: %s", diff)
	}
	away.Store(false)
	w.reaches(at)
	if diff := cmp.Diff([]string{"good", "calls"}, w.seen()); diff != "" {
		t.Error(diff)
	}
}

// silent cannot say what it is when it is nil, as happens to errors of a type of one's own.
type silent struct{ text string }

func (s *silent) Error() string { return s.text }

// Errors that cannot be written as they are, are written as far as they can.
func TestErrorsThatAreNoText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var none *silent
	texts := map[string]error{
		"zero": errors.New("a\x00b"), "no utf8": errors.New("a\xffb"), "long": errors.New(strings.Repeat("x", 10<<20)), "nil": none,
		"wrapped": fmt.Errorf("call: %w", none),
	}
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error { return texts[string(e.Data)] }
	var at eventstore.Position
	for name := range texts {
		at = w.append(strings.ReplaceAll(name, " ", ""), name)
	}
	w.run(w.worker(Config{Classify: permanent}))
	w.reaches(at)
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked'"); n != len(texts) {
		t.Errorf("%d letters, want %d", n, len(texts))
	}
}

// What a consumer has stopped for is on record, whatever its text is.
func TestReasonThatIsNoText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("a", "bad")
	for name, err := range map[string]error{"zero": errors.New("a\x00b"), "no utf8": errors.New("a\xffb"), "long": errors.New(strings.Repeat("x", 10<<20))} {
		w.handle = func(context.Context, pgx.Tx, eventstore.RecordedEvent) error { return err }
		w.exec("UPDATE daybook.consumers SET state = 'running', reason = ''")
		stop := w.run(w.worker(Config{OnFailure: StopConsumer, Attempts: 1}))
		w.eventually(name+": it stops", func() bool {
			return ask[string](w, "SELECT state FROM daybook.consumers WHERE consumer = $1", testConsumer) == "stopped"
		})
		stop()
		if n := ask[int](w, "SELECT length(reason) FROM daybook.consumers WHERE consumer = $1", testConsumer); n == 0 || n > 10_000 {
			t.Errorf("%s: the reason has %d characters", name, n)
		}
	}
}

// A plan's rate is a number like any other: none keeps the consumer from its work.
func TestRatesThatNobodyMeans(t *testing.T) {
	t.Parallel()
	rates := []float64{1e-308, 1e-300, 1e-12, 1e10, 1e300}
	w, bad, _ := parkedWorld(t, 2*len(rates), Config{Classify: permanent})
	for i := range 2 * len(rates) {
		bad.off(fmt.Sprintf("v%02d", i))
	}
	for i, rate := range rates {
		two := fmt.Sprintf("sequence IN ('s-k%02d', 's-k%02d')", 2*i, 2*i+1)
		w.plan(rate, 0, 1, two)
		w.eventually(fmt.Sprint(rate, ": the first letter is applied"), func() bool {
			return ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'applied' AND "+two) > 0
		})
		w.reaches(w.append("z", fmt.Sprint("more", i)))
	}
}

// An event that was passed by is tried when its turn comes, whatever a run has said of it that was rolled back.
func TestFailureOfARunThatWasRolledBackIsForgotten(t *testing.T) {
	t.Parallel()
	w, clock := newWorld(t), newSteps()
	var first, second atomic.Int32
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		switch string(e.Data) {
		case "a1":
			if first.Add(1) == 2 {
				return context.DeadlineExceeded
			}
		case "a2":
			if second.Add(1) == 1 {
				return errBad
			}
		}
		return nil
	}
	at := w.append("a", "a1", "a2")
	w.run(w.worker(Config{Clock: clock.time, Classify: func(err error) eventstore.FailureKind {
		if errors.Is(err, errBad) {
			return eventstore.Permanent
		}
		return eventstore.Transient
	}}))
	w.reaches(at)
	w.becomes("a", "retrying")
	clock.step(time.Minute)
	w.becomes("a", "")
	if diff := cmp.Diff([]string{"a1", "a2"}, w.seen()); diff != "" {
		t.Error(diff)
	}
}

// A clock that was ahead when an event failed, and is set right, leaves no sequence waiting for that long.
func TestClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	w, bad, clock := newWorld(t), turned("v"), newSteps()
	w.failing(bad)
	clock.step(365 * 24 * time.Hour)
	at := w.append("a", "v")
	w.run(w.worker(Config{Clock: clock.time}))
	w.reaches(at)
	bad.off("v")
	clock.step(-365 * 24 * time.Hour)
	w.eventually("a goes on", func() bool {
		clock.step(time.Minute)
		return w.state("a") == ""
	})
}
