package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

var errBad = errors.New("bad")

// soon are pauses for tests that do not look at them.
func soon(c Config) Config {
	c.RetryBase, c.RetryCap = time.Millisecond, 5*time.Millisecond
	return c
}

// open are the open letters of a projection, by position.
func (w *world) open(name string) []deadletter.Letter {
	w.t.Helper()
	people, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	page, err := people.List(context.Background(), deadletter.Filter{Consumer: name, State: deadletter.Open, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.SortFunc(page.Letters, func(a, b deadletter.Letter) int { return a.Position.Compare(b.Position) })
	return page.Letters
}

// parked waits until so many sequences wait for people, and no other is set aside.
func (w *world) parked(name string, n int) []deadletter.Letter {
	w.t.Helper()
	livetest.Eventually(w.t, fmt.Sprint(n, " are parked"), func() bool {
		return ask[bool](w, `SELECT count(*) = $2 AND bool_and(state = 'parked') IS NOT FALSE FROM daybook.parked WHERE consumer = $1`, name, n)
	})
	return w.open(name)
}

// redrive tries everything that waits for people again, and waits for the end of that.
func (w *world) redrive(name string) deadletter.Plan {
	w.t.Helper()
	people, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := people.Redrive(context.Background(), deadletter.Matching(deadletter.Filter{Consumer: name}), deadletter.Options{Actor: "test", MaxFailures: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	livetest.Eventually(w.t, "the plan ends", func() bool {
		if plan, err = people.Plan(context.Background(), plan.ID); err != nil {
			w.t.Fatal(err)
		}
		return !plan.Running()
	})
	return plan
}

// R-DL05: one message that always fails is no concern of others.
func TestOneOfAHundredAlwaysFails(t *testing.T) {
	t.Parallel()
	p := logged("among_many", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N < 0 {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p)
	var last eventstore.Token
	bad := w.append("bad", added{-1}, added{1000})
	for n := range int64(100) {
		last = w.append(fmt.Sprint("good", n), added{n})
	}
	r := w.runner(soon(Config{Attempts: 3}), p)
	w.start(r)
	w.wait(last, p) // although the other one is being tried
	if n := len(values(w, p.Name)); n != 100 {
		t.Errorf("%d of 100 were applied", n)
	}
	letters := w.parked(p.Name, 1)
	if len(letters) != 1 || letters[0].Attempts != 3 || letters[0].Sequence != "test-bad" || letters[0].StreamVersion != 1 || letters[0].Kind != "transient" {
		t.Errorf("%+v", letters)
	}
	e := mustBe[*ParkedError](t, w.waiter().WaitFor(t.Context(), bad, p))
	if e.Letter != letters[0].ID || e.State != SequenceParked || e.Sequence != "test-bad" {
		t.Errorf("%+v", e)
	}

	// Degraded is ready: to take the process from its work would help nobody.
	h := r.Health(t.Context())
	if !h.Ready || h.State != "degraded" || !h.Parts[0].Ready || h.Parts[0].State != "degraded" || !strings.Contains(h.Reason, "1 wait for people") {
		t.Errorf("%+v", h)
	}
	lag, err := r.Lag(t.Context())
	if err != nil || lag[0].Parked != 1 || lag[0].Retrying+lag[0].Draining != 0 || time.Since(lag[0].Oldest) > patience || lag[0].Behind != 0 {
		t.Errorf("%+v %v", lag, err)
	}
}

// R-DL06: as many attempts as are asked for, and no letter for who needs fewer. R-DL11: an error of a context of the
// handler's own is a failure like any other.
func TestAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	type counted struct {
		name   string
		fails  int // -1: always
		err    error
		want   int
		p      Projection
		called atomic.Int64
	}
	cases := []*counted{
		{name: "fails_twice", fails: 2, err: errBad, want: 3},
		{name: "fails_always", fails: -1, err: errBad, want: 4},
		{name: "times_out", fails: 2, err: fmt.Errorf("call: %w", context.DeadlineExceeded), want: 3},
		{name: "is_cancelled", fails: 2, err: fmt.Errorf("call: %w", context.Canceled), want: 3},
		{name: "always_late", fails: -1, err: context.DeadlineExceeded, want: 4},
		{name: "never_fails", want: 1},
	}
	var all []Definition
	for _, c := range cases {
		c.p = logged(c.name, func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
			if e.Payload.N != 7 {
				return nil
			}
			n := c.called.Add(1)
			if int64(Attempt(ctx)) != n {
				t.Errorf("%s: call %d is attempt %d", c.name, n, Attempt(ctx))
			}
			if c.fails < 0 || int(n) <= c.fails {
				return c.err
			}
			return nil
		})
		all = append(all, c.p)
	}
	w := newWorld(t, all...)
	w.append("s", added{7}, added{8})
	others := w.append("t", added{9})
	r := w.runner(soon(Config{Attempts: 4}), all...)
	w.start(r)
	for _, c := range cases {
		w.wait(others, c.p)
		if c.fails < 0 {
			if letters := w.parked(c.name, 1); len(letters) != 1 || letters[0].Attempts != 4 {
				t.Errorf("%s: %+v", c.name, letters)
			}
		} else {
			livetest.Eventually(t, c.name+" goes through", func() bool { return len(values(w, c.name)) == 3 })
			w.parked(c.name, 0)
			if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE consumer = $1 AND state <> 'applied'", c.name); n != 0 {
				t.Errorf("%s: %d letters are open", c.name, n)
			}
		}
		if n := c.called.Load(); n != int64(c.want) {
			t.Errorf("%s: %d calls, want %d", c.name, n, c.want)
		}
	}
	for _, part := range r.Health(t.Context()).Parts {
		if part.State == "stopped" || part.State == "waiting" {
			t.Errorf("%+v", part)
		}
	}
}

// R-DL01: what follows of the same key waits, also what comes while it is tried again, and is applied in order after it.
func TestTheRestOfTheKeyWaits(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	p := logged("in_order", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N == 2 && !mended.Load() {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p)
	w.append("a", added{1}, added{2}, added{3})
	w.append("b", added{10})
	w.start(w.runner(soon(Config{Attempts: 2, BatchSize: 2}), p))
	w.parked(p.Name, 1)
	w.append("a", added{4})
	w.wait(w.append("b", added{11}), p)
	if diff := cmp.Diff([]int64{1, 10, 11}, values(w, p.Name)); diff != "" {
		t.Error(diff)
	}
	if n := ask[int](w, "SELECT queued::int FROM daybook.parked"); n != 2 {
		t.Errorf("%d are queued", n)
	}
	mended.Store(true)
	token := w.append("a", added{5})
	w.redrive(p.Name)
	livetest.Eventually(t, "the key goes on", func() bool { return w.waiter().WaitFor(t.Context(), token, p) == nil })
	if diff := cmp.Diff([]int64{1, 10, 11, 2, 3, 4, 5}, values(w, p.Name)); diff != "" {
		t.Error(diff)
	}
	w.wait(w.append("a", added{6}), p)
	w.parked(p.Name, 0)
}

// R-DL08: what all need is away for half an hour by the clock. Nobody has used up an attempt, and everything comes.
func TestWhatAllNeedIsAway(t *testing.T) {
	t.Parallel()
	errAway := errors.New("away")
	var now atomic.Int64
	start := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	var probes atomic.Int64
	p := logged("waiting_for_it", func(context.Context, pgx.Tx, Event[added]) error {
		if time.Duration(now.Load()) < 30*time.Minute {
			probes.Add(1)
			now.Add(int64(7 * time.Minute)) // the pauses of the test are shorter
			return fmt.Errorf("look up: %w", errAway)
		}
		return nil
	})
	w := newWorld(t, p)
	var token eventstore.Token
	for n := range int64(100) {
		token = w.append(fmt.Sprint("s", n%20), added{n})
	}
	r := w.runner(Config{
		Clock:    func() time.Time { return start.Add(time.Duration(now.Load())) },
		Attempts: 2, Classify: func(err error) eventstore.FailureKind {
			if errors.Is(err, errAway) {
				return eventstore.Environment
			}
			return eventstore.Permanent
		},
	}, p)
	w.start(r)
	livetest.Eventually(t, "it says so", func() bool {
		h := r.Health(t.Context())
		return len(values(w, p.Name)) > 0 || !h.Ready && h.State == "waiting" && strings.Contains(h.Reason, "away")
	})
	w.wait(token, p)
	if n := len(values(w, p.Name)); n != 100 {
		t.Errorf("%d of 100 were applied", n)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters"); n != 0 || probes.Load() != 5 {
		t.Errorf("%d letters after %d probes", n, probes.Load())
	}
}

// R-DL09: a dead letter that cannot be written holds the checkpoint.
func TestALetterThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := logged("unwritten", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N < 0 {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p)
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room for letters'; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON daybook.letters FOR EACH ROW EXECUTE FUNCTION refuse()`)
	w.append("a", added{-1})
	token := w.append("b", added{1})
	r := w.runner(soon(Config{Attempts: 1}), p)
	w.start(r)
	livetest.Eventually(t, "it says so", func() bool {
		h := r.Health(t.Context())
		return !h.Ready && strings.Contains(h.Reason, "no room for letters")
	})
	if floor := ask[int64](w, "SELECT floor FROM daybook.segments WHERE consumer = 'unwritten'"); floor != 0 {
		t.Errorf("the checkpoint is at %d", floor)
	}
	w.exec("DROP TRIGGER refuse ON daybook.letters")
	w.wait(token, p)
	w.parked(p.Name, 1)
}

// A handler that is broken for everything does not set everything aside.
func TestMostThatIsSetAside(t *testing.T) {
	t.Parallel()
	p := logged("broken", func(_ context.Context, _ pgx.Tx, e Event[added]) error {
		if e.Payload.N > 0 {
			return errBad
		}
		return nil
	})
	w := newWorld(t, p)
	var tokens []eventstore.Token
	for n := range int64(10) {
		tokens = append(tokens, w.append(fmt.Sprint("s", n), added{n}))
	}
	var lines livetest.Lines
	r := w.runner(soon(Config{Attempts: 1, MaxParked: 4, Logger: lines.Logger()}), p)
	stop := w.start(r)
	reason := stopped(t, r, 0)
	for _, part := range []string{"set aside 4", "MaxParked", "bad", `"test-s5" version 1`} {
		if !strings.Contains(reason, part) {
			t.Errorf("the reason %q lacks %q", reason, part)
		}
	}
	if letters := w.open(p.Name); len(letters) != 4 {
		t.Errorf("%d letters", len(letters))
	}
	w.wait(tokens[0], p)
	mustBe[*StoppedError](t, w.waiter().WaitFor(t.Context(), tokens[9], p))
	mustBe[*ParkedError](t, w.waiter().WaitFor(t.Context(), tokens[2], p))
	stop()
	if !strings.Contains(lines.String(), "level=ERROR") {
		t.Errorf("nothing loud:\n%s", lines.String())
	}
}
