package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/livetest"
)

// A target all of whose commands hang keeps others waiting for twice the time of one, whatever their number: those that
// were not begun by then never run, and their senders are told so.
func TestATargetThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	var begun atomic.Int32
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding && c.N >= 600 {
			begun.Add(1)
			<-release
		}
	})
	const limit = time.Second
	var stuck []uuid.UUID
	for n := range 12 {
		stuck = append(stuck, w.send(put{hung, int64(600 + n)}))
	}
	d := w.dispatcher(nil, Config{Timeout: limit, Workers: 2})
	stop := w.start(d)
	livetest.Eventually(t, "the first hangs", func() bool { return begun.Load() > 0 })
	began := time.Now()
	w.ends(w.send(put{"another", 1}), bus.OperationDone) // sent while the batch is under way
	if took := time.Since(began); took > 2*limit+3*time.Second {
		t.Errorf("another target waited %v behind %d commands that hang", took, len(stuck))
	}
	codes := map[string]int{}
	for _, id := range stuck {
		codes[w.ends(id, bus.OperationFailed).Code]++
	}
	if codes[CodeTimeout] == 0 || codes[CodeTargetHung] < len(stuck)-3 || codes[CodeTimeout]+codes[CodeTargetHung] != len(stuck) {
		t.Errorf("codes %v", codes)
	}
	close(release)
	livetest.Eventually(t, "they end", func() bool { _, n := d.calls.hanging(); return n == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := begun.Load(); int(n) > len(stuck) || int(n) > 4 {
		t.Errorf("%d were begun", n)
	}
}

// R-LB06: a handler that hangs for ever keeps neither other targets nor its own from going on, beyond its time; it is
// named, and what it does at last takes no effect.
func TestAHungHandlerDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding && c.N == 666 {
			<-release
		}
	})
	const limit = 3 * time.Second // others end far before, also on a busy machine
	d := w.dispatcher(nil, Config{Timeout: limit, Workers: 4})
	late := w.send(put{hung, 666})
	var others []uuid.UUID
	for n := range 30 {
		others = append(others, w.send(put{fmt.Sprint(n % 3), int64(n/3 + 1)}))
	}
	behind := w.send(put{hung, 1})
	stop := w.start(d)
	began := time.Now()
	for _, id := range others {
		w.ends(id, bus.OperationDone)
	}
	if took := time.Since(began); took > limit {
		t.Errorf("the others took %v, as long as the one that hangs", took)
	}
	if o := w.ends(late, bus.OperationFailed); o.Code != CodeTimeout {
		t.Errorf("it failed with code %q: %s", o.Code, o.Reason)
	}
	w.ends(behind, bus.OperationDone)
	if took := time.Since(began); took > 2*limit+time.Second {
		t.Errorf("all took %v", took)
	}
	h := d.Health(t.Context())
	if !h.Ready || !strings.Contains(h.Reason, late.String()) {
		t.Errorf("health does not name the one that hangs: %+v", h)
	}
	close(release)
	livetest.Eventually(t, "it ends", func() bool { _, n := d.calls.hanging(); return n == 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := w.numbers(hung); fmt.Sprint(got) != "[1]" {
		t.Errorf("the till of the one that hung has %v: its late commit took effect", got)
	}
}

// R-RL05: a handler that ignores its context keeps Run from neither ending in time nor giving back the lease; it is
// named. What it commits later is found by the next dispatcher.
func TestAHandlerThatIgnoresTheShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, release := make(chan struct{}, 1), make(chan struct{})
	var runs atomic.Int32
	w.puts(func(_ context.Context, place string, _ put) {
		if place == atDeciding && runs.Add(1) == 1 {
			began <- struct{}{}
			<-release
		}
	})
	d := w.dispatcher(nil, Config{Lease: time.Minute})
	id := w.send(put{"a", 1}, bus.ReplyTo("replies"))
	stop := w.start(d)
	<-began
	asked := time.Now()
	err := stop()
	if took := time.Since(asked); took > 2*time.Second {
		t.Errorf("Run took %v to end", took)
	}
	var late *ShutdownError
	if !errors.As(err, &late) || !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), putType.Name()) {
		t.Errorf("Run returned %v, which does not name the command", err)
	}
	if owner := ask[string](w, "SELECT owner FROM daybook.segments WHERE consumer = 'commands'"); owner != "" {
		t.Errorf("the lease still belongs to %s", owner)
	}
	close(release)
	livetest.Eventually(t, "the late handler ends", func() bool { return len(d.calls.running()) == 0 })
	w.run(Config{})
	w.ends(id, bus.OperationDone)
	w.wantNumbers("a", 1)
	if n := len(w.replies("replies")); n != 1 {
		t.Errorf("%d ends were told", n)
	}
}

// R-RL04: commands keep coming while the dispatcher stops and starts again: each that was accepted takes effect once.
func TestCommandsComeWhileItStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.puts(func(context.Context, string, put) { <-time.After(time.Millisecond) })
	s := newSender(w)
	for range 5 {
		stop := w.start(w.dispatcher(nil, Config{BatchSize: 10}))
		for n := range 40 {
			s.put(fmt.Sprint(n % 4))
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.put("0")
	}
	w.run(Config{})
	s.allDone()
}

// A handler that watches its context ends with it, and is not tried beyond its time.
func TestATimeoutIsForAllAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int32
	w.handles(func(ctx context.Context, _ anything) (bus.Reply, error) {
		runs.Add(1)
		<-ctx.Done()
		return bus.Reply{}, ctx.Err()
	})
	w.run(Config{Timeout: 300 * time.Millisecond})
	if o := w.ends(w.send(anything{"slow"}), bus.OperationFailed); o.Code != CodeTimeout {
		t.Errorf("it failed with code %q: %s", o.Code, o.Reason)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// A command whose handler meets its deadline ends as expired, and one that had taken effect before as done.
func TestADeadlineWhileItRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.puts(func(ctx context.Context, place string, c put) {
		if place == c.Till {
			<-ctx.Done()
		}
	})
	w.run(Config{})
	w.ends(w.send(add{"warm", 1}), bus.OperationDone)
	// One after the other: the first would keep the second waiting until both are late.
	for _, test := range []struct {
		place string
		end   bus.OperationState
	}{{atAppended, bus.OperationDone}, {atDeciding, bus.OperationExpired}} {
		w.ends(w.send(put{test.place, 1}, bus.WithDeadline(time.Now().Add(3*time.Second))), test.end)
	}
	if got := w.numbers(atDeciding); len(got) != 0 {
		t.Errorf("the command that expired has added %v", got)
	}
	w.wantNumbers(atAppended, 1)
}

// What fails for a while is tried again; what is refused without saying so is found out.
func TestAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int32
	w.handles(func(context.Context, anything) (bus.Reply, error) {
		if runs.Add(1) < 4 {
			return bus.Reply{}, aggregate.Transient(errors.New("not yet"))
		}
		return bus.Reply{}, nil
	})
	w.run(Config{})
	w.ends(w.send(anything{"later"}), bus.OperationDone)
	if n := runs.Load(); n != 4 {
		t.Errorf("it ran %d times, want 4", n)
	}
	if o := w.ends(w.send(put{"a", -1}), bus.OperationRefused); o.Code != "negative" || o.Reason != errNegative.Error() {
		t.Errorf("it was refused with code %q: %s", o.Code, o.Reason)
	}
}

// What a dispatcher had given up when it died is given up by the next one too.
func TestGivenUpBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := w.bus.Encode(add{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	sealed := c
	sealed.Deadline = time.Unix(0, 0)
	if _, err := w.bus.Dispatch(t.Context(), sealed); !errors.Is(err, bus.ErrExpired) {
		t.Fatal(err)
	}
	if _, err := w.queue.Enqueue(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.run(Config{})
	if o := w.ends(c.ID, bus.OperationFailed); o.Code != CodeExhausted {
		t.Errorf("it failed with code %q: %s", o.Code, o.Reason)
	}
	if got := w.numbers("a"); len(got) != 0 {
		t.Errorf("it has added %v", got)
	}
}

// A gate that sends commands away, for longer than one may take and more often than one is tried, delays them, and no more.
func TestOverloadIsWaitedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int32
	w.handles(func(context.Context, anything) (bus.Reply, error) {
		if runs.Add(1) <= 6 {
			return bus.Reply{}, &admission.OverloadedError{Reason: admission.QueueFull, RetryAfter: 100 * time.Millisecond}
		}
		return bus.Reply{}, nil
	})
	w.run(Config{Attempts: 2, Timeout: 300 * time.Millisecond})
	w.ends(w.send(anything{"shed"}), bus.OperationDone)
	if n := runs.Load(); n != 7 {
		t.Errorf("it ran %d times, want 7", n)
	}
}

// Urgent targets of a batch begin first, and replies wake whoever publishes them.
func TestUrgentTargetsBeginFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var order []string
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding {
			mu.Lock()
			order = append(order, c.Till)
			mu.Unlock()
		}
	})
	w.send(put{"bulk", 1}, bus.WithClass(admission.Bulk))
	w.send(put{"normal", 1})
	last := w.send(put{"critical", 1}, bus.WithClass(admission.Critical), bus.ReplyTo("replies"))
	woken := make(chan struct{}, 10)
	w.run(Config{Workers: 1, Wake: func() { woken <- struct{}{} }})
	w.ends(last, bus.OperationDone)
	select {
	case <-woken:
	case <-time.After(patience):
		t.Error("nobody was woken")
	}
	livetest.Eventually(t, "all have run", func() bool { mu.Lock(); defer mu.Unlock(); return len(order) == 3 })
	if got := fmt.Sprint(order); got != "[critical normal bulk]" {
		t.Errorf("they ran in the order %s", got)
	}
}
