package deadletter

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

// look is what the owner finds of plans.
func (k *worker) look() []parking.Item {
	k.w.t.Helper()
	l, err := parking.LookFor(k.w.t.Context(), k.w.pool, k.owner, 0, 0, partitions-1, time.Now())
	if err != nil {
		k.w.t.Fatal(err)
	}
	return l.Items
}

// try carries out the next item of a plan, with this outcome.
func (k *worker) try(cause string) {
	k.w.t.Helper()
	items := k.look()
	if len(items) == 0 {
		k.w.t.Fatal("no plan has anything to do")
	}
	i := items[0]
	c := k.set.Change()
	c.Begin(i, time.Now())
	l, err := parking.OpenLetter(k.w.t.Context(), k.w.pool, k.owner, i.Key)
	switch {
	case errors.Is(err, parking.ErrNotOpen) || err == nil && l.ID != i.Letter:
		c.End(i, parking.ItemSkipped, time.Now())
	case err != nil:
		k.w.t.Fatal(err)
	case cause == "":
		c.Applied(l, time.Now())
		c.Release(i.Key)
		c.End(i, parking.ItemSucceeded, time.Now())
	default:
		c.Failed(l, k.failure(l.Message, cause), true)
		c.End(i, parking.ItemFailed, time.Now())
	}
	k.mustCommit(k.floor, c)
}

func TestAPlanIsFrozenInTheOrderOfPositions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	var want []uuid.UUID
	for i := range 12 {
		want = append(want, k.fail(w.append(fmt.Sprint(11-i), "x"), "no such account"))
	}
	other := k.fail(w.append("odd", "x"), "the amount is odd")
	group := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{}))[0]
	before := get[int64](w, `SELECT floor FROM daybook.segments`)

	preview := must[Preview](t)(w.letters.Preview(t.Context(), OfGroup(group.Fingerprint)))
	if preview.Letters != 12 || preview.Consumer != "orders" || preview.Version != 1 || len(preview.Examples) != 10 || preview.Examples[0].ID != want[0] {
		t.Errorf("preview: %+v", preview)
	}
	o := ann
	o.Rate, o.Canary, o.MaxFailures, o.Expect = 1000, 2, 3, 12
	p := must[Plan](t)(w.letters.Redrive(t.Context(), OfGroup(group.Fingerprint), o))
	if p.Items != 12 || p.State != "running" || p.Actor != ann.Actor || p.Reason != ann.Reason || p.Rate != 1000 || p.Canary != 2 ||
		p.MaxFailures != 3 || p.Selection != OfGroup(group.Fingerprint).String() || p.Consumer != "orders" || p.Left() != 12 || p.ETA != "1 s" {
		t.Errorf("plan: %+v", p)
	}
	k.fail(w.append("new", "x"), "no such account") // after the plan was made

	// The canary first: what is behind it does not show.
	if items := k.look(); len(items) != 2 || items[0].Letter != want[0] || items[1].Letter != want[1] {
		t.Fatalf("the canary: %+v", items)
	}
	for range 12 {
		k.try("")
	}
	if items := k.look(); len(items) != 0 {
		t.Errorf("more than was frozen: %+v", items)
	}
	p = must[Plan](t)(w.letters.Plan(t.Context(), p.ID))
	if p.State != "done" || p.Succeeded != 12 || p.Failed != 0 || p.ETA != "" || p.EndedAt.IsZero() || p.Left() != 0 {
		t.Errorf("at its end: %+v", p)
	}
	for i, id := range want {
		if d := must[Detail](t)(w.letters.Show(t.Context(), id)); d.State != Applied || d.Waiting != nil || len(d.Actions) != 1 ||
			d.Actions[0].What != "redrive" || d.Actions[0].Plan != p.ID || d.Actions[0].Actor != ann.Actor || d.Actions[0].Reason != ann.Reason {
			t.Errorf("letter %d: %+v", i, d)
		}
	}
	if d := must[Detail](t)(w.letters.Show(t.Context(), other)); d.State != Parked || d.Plan != uuid.Nil {
		t.Errorf("a letter of another group: %+v", d)
	}
	// R-DL02: the log went on by two events, the plan moved nothing.
	if after := get[int64](w, `SELECT floor FROM daybook.segments`); after != before+1 || get[int](w, `SELECT count(*)::int FROM daybook.checkpoints`) != 0 {
		t.Errorf("the checkpoint is at %d, was at %d", after, before)
	}
}

// R-DL04: what is permanently bad is tried once for each redrive, and goes back with the history of both failures.
func TestWhatIsBadGoesBackAfterOneAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	var ids []uuid.UUID
	for i := range 5 {
		ids = append(ids, k.fail(w.append(fmt.Sprint(i), "x"), "no such account"))
	}
	o := ann
	o.MaxFailures = -1
	p := must[Plan](t)(w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), o))
	for range 5 {
		k.try("the account is closed")
	}
	p = must[Plan](t)(w.letters.Plan(t.Context(), p.ID))
	if p.State != "done" || p.Failed != 5 || p.Succeeded != 0 || len(p.Failures) != 5 || p.Failures[0].Letter != ids[0] || p.Failures[0].Sequence != "order-0" {
		t.Errorf("plan: %+v", p)
	}
	for i, id := range ids {
		d := must[Detail](t)(w.letters.Show(t.Context(), id))
		if d.State != Parked || d.Attempts != 2 || d.Round != 1 || d.FirstErrors[1] != "no such account" || d.Errors[1] != "the account is closed" {
			t.Errorf("letter %d: %+v", i, d)
		}
	}
	// The default stops at the first failure, and what was not tried stays as it is.
	p = must[Plan](t)(w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), ann))
	k.try("still closed")
	if p = must[Plan](t)(w.letters.Plan(t.Context(), p.ID)); p.State != "stopped" || p.Failed != 1 || p.Left() != 4 || len(k.look()) != 0 {
		t.Errorf("stopped at the first: %+v", p)
	}
	if all := must[[]Plan](t)(w.letters.Plans(t.Context(), "orders", false)); len(all) != 2 || all[0].ID != p.ID {
		t.Errorf("plans: %+v", all)
	}
	if running := must[[]Plan](t)(w.letters.Plans(t.Context(), "", true)); len(running) != 0 {
		t.Errorf("running plans: %+v", running)
	}
}

// What has begun when a plan ends goes on: it is neither left nor settled, and counts as what it ends as, whoever ends it.
func TestWhatHasBegunIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	for i := range 5 {
		k.fail(w.append(fmt.Sprint(i), "x"), "no such account")
	}
	p := must[Plan](t)(w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), ann))
	items := k.look()
	open := func(i parking.Item) parking.Letter {
		return must[parking.Letter](t)(parking.OpenLetter(t.Context(), w.pool, k.owner, i.Key))
	}
	for _, i := range items[:3] { // tried once more each, in a way that is tried again
		c, l := k.set.Change(), open(i)
		f := k.failure(l.Message, "the bank is away")
		f.Due = time.Now().Add(time.Hour)
		c.Begin(i, time.Now())
		c.Failed(l, f, true)
		k.mustCommit(k.floor, c)
	}
	want := func(what, state string, succeeded, failed, trying, left int, settled bool) {
		t.Helper()
		p = must[Plan](t)(w.letters.Plan(t.Context(), p.ID))
		if p.State != state || p.Succeeded != succeeded || p.Failed != failed || p.Trying != trying || p.Left() != left || p.Settled() != settled || (p.ETA == "") != settled ||
			len(p.Failures) != failed {
			t.Errorf("%s: %+v, %d left, settled %v", what, p, p.Left(), p.Settled())
		}
	}
	want("begun", "running", 0, 0, 3, 2, false)
	end := func(i parking.Item, known bool, bad bool) {
		c, l := k.set.Change(), open(i)
		outcome := parking.ItemSucceeded
		if bad {
			outcome = parking.ItemFailed
			c.Failed(l, k.failure(l.Message, "the account is closed"), false)
		} else {
			c.Applied(l, time.Now())
			c.Release(i.Key)
		}
		if known {
			c.End(i, outcome, time.Now())
		}
		k.mustCommit(k.floor, c)
	}
	end(items[0], true, true)
	want("stopped", "stopped", 0, 1, 2, 2, false)
	k.take() // another owner, which does not know of a plan that has ended
	end(items[1], false, true)
	want("one failed", "stopped", 0, 2, 1, 2, false)
	end(items[2], false, false)
	want("settled", "stopped", 1, 2, 0, 2, true)
}

func TestASequenceIsInOnePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a := k.fail(w.append("a", "x"), "odd")
	b := k.fail(w.append("b", "x"), "odd")
	p := must[Plan](t)(w.letters.Redrive(t.Context(), Sequence("orders", 0, "", "order-a"), ann))
	if p.Items != 1 || p.Selection != `consumer "orders", sequence "order-a"` {
		t.Errorf("plan: %+v", p)
	}
	_, err := w.letters.Redrive(t.Context(), One(a), ann)
	wantRefused(t, err, "redrive "+a.String(), p.ID.String(), "cancel it")
	if d := must[Detail](t)(w.letters.Show(t.Context(), a)); d.Plan != p.ID {
		t.Errorf("the plan of a letter is %s, want %s", d.Plan, p.ID)
	}
	wide := must[Plan](t)(w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), ann))
	if wide.Items != 1 {
		t.Errorf("what is planned is left out of a wide selection: %+v", wide)
	}
	if pre := must[Preview](t)(w.letters.Preview(t.Context(), Matching(Filter{Consumer: "orders"}))); pre.Letters != 2 || pre.Planned != 2 {
		t.Errorf("preview: %+v", pre)
	}
	_, err = w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), ann)
	wantRefused(t, err, "of 2 letters", "2 in plans")

	if err := w.letters.Cancel(t.Context(), wide.ID, ann); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, w.letters.Cancel(t.Context(), wide.ID, ann), "cancel "+wide.ID.String(), "cancelled already")
	if err := w.letters.Cancel(t.Context(), uuid.New(), ann); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown plan: %v", err)
	}
	if again := must[Plan](t)(w.letters.Redrive(t.Context(), One(b), ann)); again.Items != 1 {
		t.Errorf("after the cancel: %+v", again)
	}
	// A letter that is closed before its turn is skipped.
	must[Discards](t)(w.letters.Discard(t.Context(), One(a), ann))
	k.take()
	k.try("")
	if p = must[Plan](t)(w.letters.Plan(t.Context(), p.ID)); p.State != "done" || p.Skipped != 1 || p.Succeeded != 0 || p.Left() != 0 {
		t.Errorf("a letter was closed meanwhile: %+v", p)
	}
}

// Many that make the same plan at once: one has it, whatever the moment.
func TestPlansAtOneMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	for i := range 20 {
		k.fail(w.append(fmt.Sprint(i), "x"), "odd")
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	items, refused := 0, 0
	for range 8 {
		wg.Go(func() {
			p, err := w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), ann)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				items += p.Items
			case errors.Is(err, ErrRefused):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if items != 20 || refused != 7 {
		t.Errorf("%d items, %d refused, want 20 and 7", items, refused)
	}
}

func TestSelectionsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	orders, bills := w.worker("orders"), w.worker("bills")
	e := w.append("a", "x")
	a := orders.fail(e, "odd")
	bills.fail(e, "odd")
	_, err := w.letters.Redrive(t.Context(), Matching(Filter{Type: "order.paid"}), ann)
	wantRefused(t, err, "bills v1, orders v1", "name one")
	for _, s := range []Selection{{}, Matching(Filter{}), Matching(Filter{State: Closed}), Matching(Filter{State: Discarded})} {
		if _, err := w.letters.Redrive(t.Context(), s, ann); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []Selection{One(uuid.New()), Sequence("orders", 0, "", "order-b"), OfGroup("none"), Sequence("orders", 2, "", "order-a"), Matching(Filter{Consumer: "x"})} {
		if _, err := w.letters.Redrive(t.Context(), s, ann); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, o := range []Options{{}, {Actor: "a", Rate: -1}, {Actor: "a\xff"}, {Actor: "a", Reason: "\x00"}, {Actor: "a", Rate: 1e-9}, {Actor: "a", Rate: math.NaN()}, {Actor: "a", Rate: math.Inf(1)}, {Actor: "a", Canary: -1}, {Actor: "a", Expect: -1}} {
		if _, err := w.letters.Redrive(t.Context(), One(a), o); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	orders.fail(w.append("b", "x"), "odd")
	o := ann
	o.Expect = 1
	_, err = w.letters.Redrive(t.Context(), Matching(Filter{Consumer: "orders"}), o)
	wantRefused(t, err, "2 letters are selected by now, not 1")
	if n := get[int](w, `SELECT count(*)::int FROM daybook.redrives`); n != 0 {
		t.Errorf("%d plans were left by what was refused", n)
	}
}

// What a plan says of the time it needs.
func TestETA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	plan := func(items, done int, rate float64, age time.Duration) Plan {
		return Plan{State: "running", Consumer: "orders", Version: 1, Items: items, Succeeded: done, Rate: rate, CreatedAt: now.Add(-age)}
	}
	for _, c := range []struct {
		plan            Plan
		segments, owned int
		want            string
	}{
		{plan(1000, 100, 0, 10*time.Second), 1, 1, "90 s"},
		{plan(1000, 0, 10, time.Second), 1, 1, "100 s"},
		{plan(1000, 0, 0, time.Second), 1, 1, "not known yet"},
		{plan(10, 10, 0, time.Second), 1, 1, "0 s"},
		{plan(1000, 1, 0, time.Second), 4, 0, "waits: no process works on orders v1"},
		{plan(1000, 1, 0, time.Second), 0, 0, "never: orders v1 is no longer installed"},
	} {
		if got := c.plan.eta(now, c.segments, c.owned); got != c.want {
			t.Errorf("%+v: %q, want %q", c.plan, got, c.want)
		}
	}
}
