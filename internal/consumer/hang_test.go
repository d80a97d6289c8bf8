package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// hangs makes the handler of some values hang until they are let go, whatever their contexts say.
type hangs struct {
	let   chan struct{}
	began atomic.Int32
	late  func(tx pgx.Tx) // what it does then
}

func (w *world) hanging(values ...string) *hangs {
	h := &hangs{let: make(chan struct{})}
	w.handle = func(_ context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error {
		for _, v := range values {
			if string(e.Data) == v {
				h.began.Add(1)
				select {
				case <-h.let:
					return nil
				default:
				}
				<-h.let
				if h.late != nil {
					h.late(tx)
				}
			}
		}
		return nil
	}
	w.t.Cleanup(h.end)
	return h
}

// end lets all go that hang, and all that come.
func (h *hangs) end() {
	select {
	case <-h.let:
	default:
		close(h.let)
	}
}

func (w *world) nothingHangs(c *calls) {
	w.t.Helper()
	w.eventually("the handlers end", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.left) == 0
	})
}

// bounded is a registry of a test's own.
func bounded(most int) *calls { return &calls{most: most} }

// R-LB06: one handler hangs for ever and ignores the end of its context. All others take effect, it is named, and it is
// released when it ends at last. What it writes then is nowhere.
func TestAHandlerThatHangsHoldsNobody(t *testing.T) {
	w := newWorld(t)
	w.append("warm", "up")
	before := goleak.IgnoreCurrent()
	h := w.hanging("hung")
	h.late = func(tx pgx.Tx) {
		_, _ = tx.Exec(context.Background(), "INSERT INTO seen (position, key, value) VALUES (0, 'late', 'late')")
		_, _ = tx.Exec(context.Background(), "COMMIT")
	}
	var at eventstore.Position
	for i := range 100 {
		if i == 30 {
			w.append("hung", "hung", "behind")
		}
		at = w.append(fmt.Sprint("k", i), fmt.Sprint(i))
	}
	const limit = 500 * time.Millisecond
	var said livetest.Lines
	calls := bounded(10)
	worker := w.worker(Config{Timeout: limit, RetryBase: 10 * time.Millisecond, calls: calls, Logger: said.Logger()})
	stop := w.run(worker)
	w.reaches(at)
	if n := len(w.seen()); n != 101 {
		t.Errorf("%d of 101 took effect", n)
	}
	w.becomes("hung", "retrying")
	if l := w.letter("hung"); l.Kind != "transient" || l.Attempts != 1 || !strings.Contains(l.Errors[0], "handler still runs") {
		t.Errorf("the letter is %+v", l)
	}
	if s := worker.Status(); s.State != Running || !strings.HasPrefix(s.Hung, "2 handlers ignore the end of their context and still run, that of ") {
		t.Errorf("the status is %+v", s)
	}
	if !strings.Contains(said.String(), "takes no effect any more") {
		t.Errorf("the log has no word of it: %s", said.String())
	}
	// While it runs no other is begun: it is due every few milliseconds.
	more := w.append("k0", "more")
	w.reaches(more)
	w.eventually("a second has passed", func() bool { return time.Since(worker.Status().Since) > time.Second })
	if n := h.began.Load(); n != 2 {
		t.Errorf("%d handlers were begun for one event, want 2: with the others, and alone", n)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 0 {
		t.Errorf("%d transactions are left open", n)
	}
	h.end()
	w.becomes("hung", "")
	w.nothingHangs(calls)
	if seen := w.seen(); len(seen) != 104 || !strings.HasSuffix(strings.Join(seen, " "), "more hung behind") {
		t.Errorf("%d took effect, at last %q", len(seen), seen[max(len(seen)-4, 0):])
	}
	if hung := worker.Status().Hung; hung != "" {
		t.Errorf("nothing hangs, and the status says %s", hung)
	}
	stop()
	w.pool.Reset()
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"),
		goleak.IgnoreAnyFunction("testing.tRunner.func1")); err != nil {
		t.Error(err)
	}
}

// While a handler still runs its event waits for people when it has had its attempts, for which no other is begun. A redrive
// begins another.
func TestAHandlerThatHangsForLongIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hanging("hung")
	w.append("hung", "hung")
	calls := bounded(5)
	w.run(w.worker(Config{Timeout: 100 * time.Millisecond, RetryBase: 10 * time.Millisecond, RetryCap: 20 * time.Millisecond, Attempts: 3, calls: calls}))
	w.becomes("hung", "parked")
	if l := w.letter("hung"); l.Attempts != 3 || !strings.Contains(strings.Join(l.Errors, " "), "handler still runs") {
		t.Errorf("the letter is %+v", l)
	}
	if n := h.began.Load(); n != 1 {
		t.Errorf("%d handlers were begun, want 1", n)
	}
	id := w.plan(0, 0, 0, "true")
	w.eventually("the redrive begins another", func() bool { return h.began.Load() == 2 })
	h.end()
	w.becomes("hung", "")
	w.eventually("the redrive ends", func() bool { return w.planned(id) == "done" })
	w.nothingHangs(calls)
}

// A handler that watches its context has failed like any other when its time is over; events that are only slow together are not.
func TestTimeIsOverForAHandlerThatWatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var slow atomic.Bool
	slow.Store(true)
	w.handle = func(ctx context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error {
		switch v := string(e.Data); {
		case v == "waits" && slow.Load():
			<-ctx.Done()
			return ctx.Err()
		case v == "asks" && slow.Load(): // the driver closes the connection
			_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
			if err == nil {
				return nil
			}
			return errors.New("it did not answer")
		case v == "takes a while":
			_, err := tx.Exec(ctx, "SELECT pg_sleep(0.2)")
			return err
		}
		return nil
	}
	w.append("a", "1")
	w.append("waits", "waits")
	w.append("b", "2")
	w.append("asks", "asks")
	var at eventstore.Position
	for range 20 {
		at = w.append("c", "takes a while")
	}
	calls := bounded(0)
	w.run(w.worker(Config{Timeout: time.Second, RetryBase: 10 * time.Millisecond, RetryCap: 20 * time.Millisecond, Attempts: 2, calls: calls}))
	w.reaches(at)
	w.becomes("waits", "parked")
	w.becomes("asks", "parked")
	if n := len(w.seen()); n != 22 {
		t.Errorf("%d of 22 took effect", n)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters"); n != 2 {
		t.Errorf("%d letters, want 2", n)
	}
	for _, key := range []string{"waits", "asks"} {
		if l := w.letter(key); l.Kind != "transient" || l.Attempts != 2 || !strings.Contains(strings.Join(l.Errors, " "), "was not done after 1s (Config.Timeout)") {
			t.Errorf("the letter is %+v", l)
		}
	}
	slow.Store(false)
	w.plan(0, 0, 0, "true")
	w.becomes("waits", "")
	w.becomes("asks", "")
}

// A handler that ends its goroutine has failed, and keeps no connection: there are three.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := turned("bad")
	w.handle = func(_ context.Context, _ pgx.Tx, e eventstore.RecordedEvent) error {
		if bad.is(string(e.Data)) {
			runtime.Goexit()
		}
		return nil
	}
	w.append("bad", "bad")
	at := w.append("good", "good")
	w.run(w.worker(Config{RetryBase: time.Millisecond, RetryCap: 2 * time.Millisecond, Attempts: 8}))
	w.reaches(at)
	w.becomes("bad", "parked")
	if l := w.letter("bad"); l.Attempts != 8 || l.Errors[0] != errGone.Error() {
		t.Errorf("the letter is %+v", l)
	}
	bad.off("bad")
	w.plan(0, 0, 0, "true")
	w.becomes("bad", "")
}

// BenchmarkAttempt measures what it costs that a transaction's handlers run in a goroutine of their own.
func BenchmarkAttempt(b *testing.B) {
	for _, timeout := range []time.Duration{0, DefaultTimeout} {
		b.Run(timeout.String(), func(b *testing.B) {
			t := &Tenure{w: &Worker{cfg: Config{Timeout: timeout}.withDefaults()}, work: context.Background()}
			events := make([]eventstore.RecordedEvent, 1)
			for b.Loop() {
				if _, err := t.attempt(t.work, nil, events, func(context.Context, *call) made { return made{} }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// With OnFailure Stop a handler that hangs has its attempts in place, and then the consumer stops just before it.
func TestAHandlerThatHangsStopsTheConsumer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hanging("hung")
	for i := range 20 {
		w.append(fmt.Sprint("k", i), fmt.Sprint(i))
	}
	w.append("hung", "hung")
	w.append("k0", "never")
	calls := bounded(10)
	worker := w.worker(Config{Timeout: 200 * time.Millisecond, OnFailure: StopConsumer, Attempts: 2, calls: calls})
	w.run(worker)
	w.eventually("it stops", func() bool { return worker.Status().State == Stopped })
	if s := worker.Status(); !strings.Contains(s.Reason, "failed 2 times") || !strings.Contains(s.Reason, "handler still runs") {
		t.Errorf("the reason is %s", s.Reason)
	}
	if n := len(w.seen()); n != 20 {
		t.Errorf("%d of 20 took effect", n)
	}
	if n := h.began.Load(); n != 3 {
		t.Errorf("%d handlers were begun, want 3: with the others, and twice alone", n)
	}
	h.end()
	w.nothingHangs(calls)
}

// Handlers that hang are bounded: beyond that the consumer stops, and names them.
func TestTooManyHandlersHang(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hanging("hung")
	for i := range 8 {
		w.append(fmt.Sprint("k", i), "hung")
	}
	calls := bounded(3)
	worker := w.worker(Config{Timeout: 50 * time.Millisecond, calls: calls})
	w.run(worker)
	w.eventually("it stops", func() bool { return worker.Status().State == Stopped })
	if s := worker.Status(); !strings.Contains(s.Reason, `4 handlers ignore the end of their context and still run: 4 of "tested" version 1 for "test.happened"`) {
		t.Errorf("the reason is %s", s.Reason)
	}
	w.eventually("the store says so", func() bool { return ask[string](w, "SELECT state FROM daybook.consumers") == "stopped" })
	if n := h.began.Load(); n != 4 {
		t.Errorf("%d handlers were begun", n)
	}
	h.end()
	w.nothingHangs(calls)
}

// A handler that hangs at something that is queued is found there, too: what lies before it takes effect, one by one.
func TestAHandlerThatHangsInAQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hanging("hung")
	hanging := w.handle
	fails := turned("first")
	w.handle = func(ctx context.Context, tx pgx.Tx, e eventstore.RecordedEvent) error {
		if fails.is(string(e.Data)) {
			return errBad
		}
		return hanging(ctx, tx, e)
	}
	at := w.append("a", "first", "1", "2", "3", "hung", "4")
	calls := bounded(5)
	w.run(w.worker(Config{Timeout: 200 * time.Millisecond, Classify: permanent, RetryBase: 10 * time.Millisecond, calls: calls}))
	w.reaches(at)
	w.becomes("a", "parked")
	fails.off("first")
	w.plan(0, 0, 0, "true")
	w.becomes("a", "retrying")
	if got := strings.Join(w.seen(), " "); got != "first 1 2 3" {
		t.Errorf("%s took effect", got)
	}
	if n := h.began.Load(); n != 2 {
		t.Errorf("%d handlers were begun, want 2", n)
	}
	h.end()
	w.becomes("a", "")
	if got := strings.Join(w.seen(), " "); got != "first 1 2 3 hung 4" {
		t.Errorf("%s took effect", got)
	}
	w.nothingHangs(calls)
}

// A handler that hangs keeps Run from neither ending in time, nor giving back the lease; it is named.
func TestAHandlerThatHangsAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hanging("hung")
	w.append("hung", "hung")
	calls := bounded(5)
	worker := w.worker(Config{Timeout: time.Hour, Lease: time.Minute, calls: calls})
	ctx, cancel := context.WithCancel(t.Context())
	db, err := Pool(ctx, w.pool, 1)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, db, worker) }()
	w.eventually("it hangs", func() bool { return h.began.Load() == 1 })
	asked := time.Now()
	cancel()
	err = <-done
	if took := time.Since(asked); took > 2*time.Second {
		t.Errorf("Run took %v to end", took)
	}
	var late *ShutdownError
	if !errors.As(err, &late) || !strings.Contains(err.Error(), testConsumer) {
		t.Errorf("Run returns %v", err)
	}
	if owner := ask[string](w, "SELECT owner FROM daybook.segments"); owner != "" {
		t.Errorf("the lease is still that of %s", owner)
	}
	h.end()
	w.nothingHangs(calls)
	if n := len(w.seen()); n != 0 {
		t.Errorf("%d took effect after the end", n)
	}
}
