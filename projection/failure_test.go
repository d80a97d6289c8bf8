package projection

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
	"github.com/daybook-go/daybook/internal/livetest"
)

// stopped waits until a runner's only projection has stopped, and returns the reason.
func stopped(t *testing.T, r *Runner, part int) string {
	t.Helper()
	livetest.Eventually(t, "the projection stops", func() bool { return r.Health(t.Context()).Parts[part].State == "stopped" })
	h := r.Health(t.Context())
	if h.Ready || h.Parts[part].Ready {
		t.Errorf("health says ready: %+v", h)
	}
	return h.Parts[part].Reason
}

// R-PR04, R-PR05: what precedes the failing event is applied once, the place in the log lies just before it, other
// projections go on, and a runner with mended code goes on from there.
func TestStopsJustBeforeTheFailingEvent(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	var tries atomic.Int64
	p := logged("failing", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 5 && broken.Load() {
			tries.Add(1)
			return errors.New("five is bad")
		}
		return nil
	})
	v := counts("going_on")
	w := newWorld(t, p, v)
	var tokens []eventstore.Token
	for n := int64(1); n <= 10; n++ {
		tokens = append(tokens, w.append("s", added{n}))
	}
	var lines livetest.Lines
	r := w.runner(Config{OnFailure: Stop, Attempts: 3, Logger: lines.Logger()}, p, v)
	stop := w.start(r)
	reason := stopped(t, r, 0)
	for _, part := range []string{"failing", "version 1", "test.added", `"test-s" version 5`, "five is bad", "3 times",
		"position " + tokens[4].Marks()[0].Position.String()} {
		if !strings.Contains(reason, part) {
			t.Errorf("reason %q lacks %q", reason, part)
		}
	}
	if n := tries.Load(); n != 3 { // once within its page, twice by itself
		t.Errorf("the event was tried %d times, want 3", n)
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4}, values(w, "failing")); diff != "" {
		t.Error(diff)
	}
	floor := ask[int64](w, "SELECT floor FROM daybook.segments WHERE consumer = 'failing'")
	if want := tokens[3].Marks()[0].Position.Ordinal(); floor != want {
		t.Errorf("floor is %d, want %d", floor, want)
	}
	w.wait(tokens[9], v)

	began := time.Now()
	e := mustBe[*StoppedError](t, NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), tokens[9], v, p))
	if e.Projection != "failing" || e.State != "stopped" || !strings.Contains(e.Reason, "five is bad") || time.Since(began) > 5*time.Second {
		t.Errorf("waiting for a stopped projection gives %v after %v", e, time.Since(began))
	}
	w.wait(tokens[3], p) // what was applied before it stopped is there
	stop()
	if n := strings.Count(lines.String(), "consumer stopped"); n != 1 || !strings.Contains(lines.String(), "level=ERROR") {
		t.Errorf("%d lines about the stop:\n%s", n, lines.String())
	}

	broken.Store(false)
	r = w.runner(Config{}, p, v)
	w.start(r)
	livetest.Eventually(t, "it goes on", func() bool { return NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), tokens[9], p) == nil })
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, values(w, "failing")); diff != "" {
		t.Error(diff)
	}
	if !r.Health(t.Context()).Ready {
		t.Errorf("health is %+v", r.Health(t.Context()))
	}
}

// A handler that fails now and then is tried again, and nothing is doubled (R-PR05).
func TestRetriesUntilItWorks(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	p := logged("retried", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 2 && n.Add(1) <= 3 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	w := newWorld(t, p)
	token := w.append("s", added{1}, added{2}, added{3})
	w.start(w.runner(Config{OnFailure: Stop}, p))
	w.wait(token, p)
	if diff := cmp.Diff([]int64{1, 2, 3}, values(w, "retried")); diff != "" {
		t.Error(diff)
	}
}

// R-DL11: only the runner's own context means the end; a handler's is a failure like any other.
func TestContextErrorsOfHandlersAreFailures(t *testing.T) {
	t.Parallel()
	causes := []error{context.Canceled, context.DeadlineExceeded}
	var all []Definition
	for i, cause := range causes {
		all = append(all, logged(fmt.Sprint("ctx_", i), func(context.Context, pgx.Tx, Event[added]) error { return fmt.Errorf("call: %w", cause) }))
	}
	w := newWorld(t, all...)
	w.append("s", added{1})
	r := w.runner(Config{OnFailure: Stop, Attempts: 2}, all...)
	w.start(r)
	for i, cause := range causes {
		if reason := stopped(t, r, i); !strings.Contains(reason, cause.Error()) || !strings.Contains(reason, "2 times") {
			t.Errorf("reason is %q", reason)
		}
	}
}

// What handlers must not do, and what they may.
func TestHandlersAndTheirTransaction(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		handler func(ctx context.Context, tx pgx.Tx, e Event[added]) error
		reason  string // empty: works
	}{
		"commit":   {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error { return tx.Commit(ctx) }, "return nil to commit"},
		"rollback": {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error { return tx.Rollback(ctx) }, "return nil to commit"},
		"by_hand": {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error {
			_, err := tx.Exec(ctx, "rollback")
			return err
		}, "ended the transaction by itself"},
		"swallowed": {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}, "a statement had failed"},
		"panic": {func(context.Context, pgx.Tx, Event[added]) error { panic(errors.New("out of cheese")) }, "panicked: out of cheese"},
		"savepoint": {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := sp.Exec(ctx, "SELECT 1/0"); err == nil {
				return errors.New("division by zero worked")
			}
			return sp.Rollback(ctx)
		}, ""},
		"deferred": {func(ctx context.Context, tx pgx.Tx, _ Event[added]) error { // found at COMMIT only
			_, err := tx.Exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP")
			if err == nil {
				_, err = tx.Exec(ctx, "INSERT INTO late VALUES (1), (1)")
			}
			return err
		}, "late_n_key"},
	}
	var all []Definition
	var names []string
	for name, c := range cases {
		all, names = append(all, logged("tx_"+name, c.handler)), append(names, name)
	}
	w := newWorld(t, all...)
	token := w.append("s", added{1}, added{2})
	r := w.runner(Config{OnFailure: Stop, Attempts: 2}, all...)
	w.start(r)
	for i, name := range names {
		c := cases[name]
		if c.reason == "" {
			w.wait(token, all[i])
			continue
		}
		if reason := stopped(t, r, i); !strings.Contains(reason, c.reason) || !strings.Contains(reason, `"test-s" version 1`) {
			t.Errorf("%s: reason is %q, want %q at version 1", name, reason, c.reason)
		}
		if n := ask[int](w, "SELECT count(*)::int FROM tx_"+name); n != 0 {
			t.Errorf("%s: %d rows were left", name, n)
		}
	}
}

// A fold that panics, and a value that PostgreSQL refuses, stop the view at the right event with the right words.
func TestViewFailuresNameTheEvent(t *testing.T) {
	t.Parallel()
	type text struct{ Text string }
	v := View[string, text]{
		Name: "texts", Version: 1, Events: testEvents,
		Folds: []Fold[string, text]{On(ByStream, func(s text, e Event[other]) text {
			if e.Payload.Text == "panic" {
				panic("fold of glass")
			}
			return text{e.Payload.Text}
		})},
	}
	for name, c := range map[string]struct{ bad, reason string }{
		"panic": {"panic", "a fold of view texts panicked: fold of glass"},
		"nul":   {"a\x00b", `column "text": the text contains a zero byte`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, v)
			token := w.append("good", other{"fine"}, other{"still fine"})
			w.append("bad", other{"before"}, other{c.bad}, other{"after"})
			r := w.runner(Config{OnFailure: Stop, Attempts: 2}, v)
			w.start(r)
			reason := stopped(t, r, 0)
			if !strings.Contains(reason, c.reason) || !strings.Contains(reason, `"test-bad" version 2`) {
				t.Errorf("reason is %q", reason)
			}
			w.wait(token, v)
			if diff := cmp.Diff(map[string]text{"good": {"still fine"}, "bad": {"before"}}, rowsOf(w, v)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The database's own constraints do not say which event is to blame: it is found by halving.
func TestRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	v := counts("limited")
	w := newWorld(t, v)
	w.exec(`ALTER TABLE readmodels.limited_v1 ADD CHECK ("sum" < 100)`)
	var all []any
	for range 30 {
		all = append(all, added{1})
	}
	w.append("a", all...)
	w.append("b", added{100})
	w.append("a", all...)
	r := w.runner(Config{OnFailure: Stop, Attempts: 2}, v)
	w.start(r)
	if reason := stopped(t, r, 0); !strings.Contains(reason, `"test-b" version 1`) {
		t.Errorf("reason is %q", reason)
	}
	if diff := cmp.Diff(map[string]count{"a": {30, 30, 30}}, rowsOf(w, v)); diff != "" {
		t.Error(diff)
	}
}

// R-SU10: an event that today's code cannot read names everything.
func TestUndecodableEventNamesEverything(t *testing.T) {
	t.Parallel()
	v := counts("reading")
	w := newWorld(t, v)
	bad := encode(t, added{1})[0]
	bad.Data = []byte("secret payload \xff")
	r, err := w.store.Append(t.Context(), eventstore.To(stream("s"), eventstore.NoStream, append(encode(t, added{1}), bad)...))
	if err != nil {
		t.Fatal(err)
	}
	run := w.runner(Config{OnFailure: Stop, Attempts: 2}, v)
	w.start(run)
	reason := stopped(t, run, 0)
	for _, part := range []string{"test.added", `"test-s" version 2`, `"reading"`, r.Token.Marks()[0].Position.String()} {
		if !strings.Contains(reason, part) {
			t.Errorf("reason %q lacks %q", reason, part)
		}
	}
	if strings.Contains(reason, "secret") {
		t.Errorf("reason %q has the payload", reason)
	}
	if got := rowsOf(w, v)["s"].Events; got != 1 {
		t.Errorf("%d events applied, want the one before", got)
	}
}

// R-OP07: a place in the log beyond its end means lost commits, and the consumer says so instead of going on.
func TestLostHistoryStops(t *testing.T) {
	t.Parallel()
	v := counts("ahead")
	w := newWorld(t, v)
	w.append("s", added{1})
	w.exec("UPDATE daybook.segments SET floor = 1000000 WHERE consumer = 'ahead'")
	r := w.runner(Config{}, v)
	w.start(r)
	if reason := stopped(t, r, 0); !strings.Contains(reason, "history") {
		t.Errorf("reason is %q", reason)
	}
}

func TestPausedByAnOperator(t *testing.T) {
	t.Parallel()
	v := counts("paused")
	w := newWorld(t, v)
	w.wait(eventstore.Token{}, v)
	w.exec("UPDATE daybook.consumers SET state = 'paused', reason = 'maintenance' WHERE consumer = 'paused'")
	r := w.runner(Config{Lease: 300 * time.Millisecond}, v)
	w.start(r)
	token := w.append("s", added{1})
	livetest.Eventually(t, "paused is seen", func() bool { return r.Health(t.Context()).Parts[0].State == "paused" })
	if e := mustBe[*StoppedError](t, NewWaiter(w.pool, WaiterConfig{}).WaitFor(t.Context(), token, v)); e.State != "paused" || e.Reason != "maintenance" {
		t.Errorf("waiting gives %v", e)
	}
	w.exec("UPDATE daybook.consumers SET state = 'running', reason = '' WHERE consumer = 'paused'")
	w.wait(token, v)
	w.exec("UPDATE daybook.consumers SET state = 'paused' WHERE consumer = 'paused'")
	livetest.Eventually(t, "an owner that is paused lets go", func() bool { return r.Health(t.Context()).Parts[0].State == "paused" })
}
