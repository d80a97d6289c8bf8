package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/timers"
)

// counted is a source that counts what is read.
type counted struct {
	Source
	n atomic.Int64
}

func (c *counted) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	c.n.Add(1)
	return c.Source.ReadPage(ctx, after, f, limit)
}

// die leaves a lease that nobody renews, as a process that was killed does.
func (w *scriptWorld) die(consumer, lease string) {
	w.t.Helper()
	if w.exec("UPDATE daybook.segments SET owner = 'dead', expires_at = clock_timestamp() + $2::interval WHERE consumer = $1", consumer, lease) != 1 {
		w.t.Fatalf("there is no consumer %s", consumer)
	}
}

// overdue makes timers due that were set for later.
func (w *scriptWorld) overdue(n int) {
	w.t.Helper()
	if got := w.exec("UPDATE daybook.timers SET due_at = clock_timestamp(), visible_at = clock_timestamp()"); got != int64(n) {
		w.t.Fatalf("%d timers are set, not %d", got, n)
	}
}

// What was recorded before a timer was due takes effect before it, however late it is read.
func TestTimersWaitForEvents(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	keys := []string{"a", "b", "c", "d", "e"}
	for _, key := range keys {
		w.open(key, "timer deadline 1h")
		w.sees(key, 1, "opened")
	}
	stop()
	for _, key := range keys {
		w.poke(key, "cancel deadline")
	}
	w.overdue(len(keys))
	w.die("saga-script", "1500 ms")
	m := w.manager(quick(), script(1))
	w.start(m)
	for _, key := range keys {
		w.sees(key, 1, "opened; poked")
	}
	livetest.Eventually(t, "no timer is left", func() bool { return w.number("SELECT count(*) FROM daybook.timers") == 0 })
	for _, key := range keys {
		if got := w.log(key, 1); got != "opened; poked" {
			t.Errorf("%s has seen %q", key, got)
		}
	}
	if s := m.Stats()[0]; s.TimersFired != 0 || s.TimersFailed != 0 {
		t.Errorf("%d timers fired, %d failed", s.TimersFired, s.TimersFailed)
	}
}

// The same with how a command ended.
func TestTimersWaitForReplies(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x", "send pay", "timer deadline 1h")
	w.becomes("sent", "1", "SELECT count(*)::text FROM sent")
	stop()
	w.post.reply(idOf("script", "x", 1, "pay", 1), flow.ReplyDone)
	w.overdue(1)
	w.die("saga-script-replies", "1500 ms")
	w.start(w.manager(quick(), script(1)))
	w.sees("x", 1, "opened; reply pay done; timer deadline")
	if n := w.number("SELECT count(*) FROM daybook.saga_history WHERE kind = 'stuck'"); n != 0 {
		t.Errorf("%d instances are stuck", n)
	}
}

// What comes after a timer was due does not hold it up, nor does a consumer that has nothing to read.
func TestTimersWaitForNothingElse(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x", "timer late 1h")
	w.open("y", "timer later 1h")
	w.sees("y", 1, "opened")
	stop()
	w.overdue(2)
	w.die("saga-script", "1 hour")
	w.die("saga-script-replies", "1 hour")
	w.poke("x")
	w.start(w.manager(quick(), script(1)))
	w.sees("x", 1, "opened; timer late")
	w.sees("y", 1, "opened; timer later")
}

// writes appends an event in a transaction, which the caller ends.
func (w *scriptWorld) writes(ctx context.Context, stream string, event any) (pgx.Tx, error) {
	d, err := scriptEvents.Encode(event)
	if err != nil {
		return nil, err
	}
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	_, err = w.store.WithTx(tx).Append(ctx, eventstore.To(eventstore.StreamID{Category: "script", ID: stream}, eventstore.AnyVersion, d))
	if err != nil {
		_ = tx.Rollback(ctx)
	}
	return tx, err
}

// An answer that was recorded before a timer was due takes effect before it, also when it is not committed yet, and when a
// transaction of somebody else keeps readers from seeing it.
func TestTimersWaitForWhatIsWritten(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w *scriptWorld) (pgx.Tx, error){
		"not committed": func(w *scriptWorld) (pgx.Tx, error) {
			return w.writes(t.Context(), "pokes", poked{"x", []string{"cancel deadline"}})
		},
		"behind the head": func(w *scriptWorld) (pgx.Tx, error) {
			tx, err := w.writes(t.Context(), "other", poked{})
			w.poke("x", "cancel deadline")
			return tx, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1))
			var lines livetest.Lines
			cfg := quick()
			cfg.Logger = lines.Logger()
			m := w.manager(cfg, script(1))
			w.start(m)
			w.open("x", "timer deadline 1h")
			w.sees("x", 1, "opened")
			tx, err := answer(w)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			w.overdue(1)
			livetest.Eventually(t, "the timer waits", func() bool {
				if n := m.Stats()[0].TimersFired; n != 0 {
					t.Fatalf("%d timers have fired: %s", n, w.log("x", 1))
				}
				return strings.Contains(lines.String(), "timers that are due wait") && strings.Contains(lines.String(), "has not ended")
			})
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.sees("x", 1, "opened; poked")
			w.becomes("timers that are left", "0", "SELECT count(*)::text FROM daybook.timers")
			w.open("y", "timer soon 1ms") // it does not wait any more
			w.sees("y", 1, "opened; timer soon")
			if n := m.Stats()[0].TimersFired; n != 1 || w.log("x", 1) != "opened; poked" {
				t.Errorf("%d timers have fired, and it has seen %s", n, w.log("x", 1))
			}
		})
	}
}

// Transactions that begin to append behind a timer's due time do not hold it up, however many follow each other.
func TestTimersWaitForNoConstantLoad(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	w.open("x", "timer late 1h")
	w.sees("x", 1, "opened")
	stop()
	w.overdue(1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	begun, load := make(chan struct{}), make(chan error, 1)
	go func() { // one at least is always under way
		var tx pgx.Tx
		for n := 0; ; n++ {
			next, err := w.writes(context.Background(), fmt.Sprint("load-", n), poked{})
			if n == 0 {
				close(begun)
			} else {
				err = errors.Join(err, tx.Commit(context.Background()))
			}
			if tx = next; err == nil && ctx.Err() != nil {
				err = tx.Commit(context.Background())
			}
			if err != nil || ctx.Err() != nil {
				load <- err
				return
			}
		}
	}()
	<-begun
	w.start(w.manager(quick(), script(1)))
	w.sees("x", 1, "opened; timer late")
	end()
	if err := <-load; err != nil {
		t.Error(err)
	}
}

// A mark is kept for as long as nothing is due. Then so many positions may have been drawn that writers of now look as if they
// had begun before it.
func TestTimersWaitForNoOldMark(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		w := newScriptWorld(t, script(1))
		m := w.manager(quick(), script(1))
		u := m.units[0]
		w.start(m)
		w.open("x", "timer deadline 1h")
		w.sees("x", 1, "opened")
		look := func(earlier *mark) outlook {
			t.Helper()
			o, err := u.outlook(t.Context(), w.pool, earlier)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		first, err := w.writes(t.Context(), "first", poked{})
		if err != nil {
			t.Fatal(err)
		}
		o := look(nil)
		if o.known || o.next == nil {
			t.Fatalf("with a writer: %+v", o)
		}
		taken := o.next
		if o = look(taken); o.known || o.next == nil || !o.next.at.Equal(taken.at) {
			t.Errorf("a mark that is waited for does not stay: %+v, %+v", taken, o.next)
		}
		if old {
			w.exec("SELECT setval('daybook.log_position', (SELECT last_value FROM daybook.log_position) + 20000000)")
		}
		w.poke("x") // who begins before anything is drawn may have begun before the mark
		second, err := w.writes(t.Context(), "second", poked{})
		if err != nil {
			t.Fatal(err)
		}
		if o = look(taken); o.known || o.next == nil || o.next.at.Equal(taken.at) == old {
			t.Errorf("old %t: %+v, %+v", old, taken, o.next)
		}
		if taken = o.next; look(taken).known {
			t.Errorf("old %t: the first has not ended", old)
		}
		third := second
		if old { // the second had begun before the new mark
			w.poke("x")
			if third, err = w.writes(t.Context(), "third", poked{}); err != nil {
				t.Fatal(err)
			}
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o = look(taken); !o.known {
			t.Errorf("old %t: who has begun after the mark holds up timers", old)
		}
		if err := third.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	m := mark{drawn: 1 << 40, used: at}
	for now, old := range map[mark]bool{
		{drawn: 1 << 40, used: at.Add(time.Second)}: false,
		{drawn: 1<<40 + markSpan, used: at}:         false,
		{drawn: 1<<40 + markSpan + 1, used: at}:     true,
		{drawn: 1<<40 - 1, used: at}:                true, // of another database
		{drawn: 1 << 40, used: at.Add(markFor + 1)}: true,
	} {
		if m.old(now) != old {
			t.Errorf("after %v and %d positions: not %t", now.used.Sub(at), now.drawn-m.drawn, old)
		}
	}
}

// Timers that wait are claimed again and again, and overdue all the same: Health says so, and for what they wait.
func TestTimersThatWaitAreOverdue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin func(w *scriptWorld) (end func())
		cause string
	}{
		"a transaction that idles": {func(w *scriptWorld) func() {
			tx, err := w.writes(t.Context(), "other", poked{})
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = tx.Rollback(context.Background()) }
		}, "has not ended"},
		"nobody takes events": {func(w *scriptWorld) func() {
			w.die("saga-script", "1 hour")
			w.poke("x")
			return func() { w.die("saga-script", "-1 second") }
		}, "has not taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t, script(1))
			stop := w.start(w.manager(quick(), script(1)))
			w.open("x", "timer deadline 1h")
			w.sees("x", 1, "opened")
			stop()
			end := c.begin(w)
			defer end()
			m := w.manager(quick(), script(1))
			w.start(m)
			part := func() eventstore.Health {
				for _, part := range m.Health(t.Context()).Parts {
					if part.Component == "saga script timers" {
						return part
					}
				}
				return eventstore.Health{}
			}
			due := func(ago string) int64 { // behind what it waits for, claimed by nobody since then, and taken from whoever has it
				return w.exec("UPDATE daybook.timers SET token = token + 1, owner = '', due_at = clock_timestamp(), visible_at = clock_timestamp() - $1::interval", ago)
			}
			due("0 seconds")
			livetest.Eventually(t, "it says that they wait", func() bool { return strings.Contains(part().Reason, c.cause) })
			if h := part(); !h.Ready || h.State != "running" {
				t.Errorf("they have waited for a moment: %+v", h)
			}
			due("5 minutes")
			overdue := func(h eventstore.Health) bool {
				return !h.Ready && h.State == "overdue" && strings.Contains(h.Reason, c.cause) && time.Since(h.Since).Round(time.Minute) == 5*time.Minute
			}
			livetest.Eventually(t, "they are overdue", func() bool { return overdue(part()) })
			claims := w.number("SELECT token FROM daybook.timers")
			livetest.Eventually(t, "they were claimed again and again", func() bool {
				if h := part(); !overdue(h) {
					t.Fatalf("%+v", h)
				}
				if h := m.Health(t.Context()); h.Ready {
					t.Fatalf("%+v", h)
				}
				return w.number("SELECT token FROM daybook.timers") > claims+4
			})
			if name == "nobody takes events" { // that was cancelled, say
				w.exec("DELETE FROM daybook.timers")
			}
			end()
			livetest.Eventually(t, "none waits", func() bool { h := part(); return h.Ready && h.Reason == "" })
			w.becomes("timers that are left", "0", "SELECT count(*)::text FROM daybook.timers")
		})
	}
}

// The first that waits counts, for as long as it is found to wait.
func TestSinceWhenTimersWait(t *testing.T) {
	t.Parallel()
	start := time.Now()
	after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	timer := func(due, visible, claimed int) timers.Timer {
		return timers.Timer{Due: after(due), Visible: after(visible), ClaimedAt: after(claimed)}
	}
	s := &settlement{}
	for n, c := range []struct {
		at           int
		due          []timers.Timer
		ready        int
		begins, ends bool
		since        int // -1: none waits
	}{
		{10, []timers.Timer{timer(2, 2, 10)}, 0, true, false, 2},
		{12, []timers.Timer{timer(9, 9, 12), timer(10, 10, 12)}, 0, false, false, 2},
		{13, []timers.Timer{timer(1, 12, 13)}, 1, false, false, 2}, // one that is tried again ends no wait
		{14, []timers.Timer{timer(2, 2, 14)}, 0, false, false, 2},
		{18, []timers.Timer{timer(9, 9, 18)}, 0, false, false, 2},
		{20, []timers.Timer{timer(9, 9, 20)}, 0, false, false, 9}, // the first was cancelled
		{21, []timers.Timer{timer(2, 5, 21)}, 0, false, false, 5},
		{22, []timers.Timer{timer(2, 5, 22), timer(9, 9, 22)}, 2, false, true, -1},
		{23, []timers.Timer{timer(24, 24, 23)}, 0, true, false, 23}, // claimed ahead
		{30, []timers.Timer{timer(29, 29, 30)}, 0, true, false, 29}, // nobody has waited for a while
		{31, []timers.Timer{timer(28, 28, 31), timer(30, 30, 31)}, 1, false, false, 29},
	} {
		begins, ends := s.note(c.due, c.ready, "", after(c.at), 5*time.Second)
		since := -1
		if !s.waits.since.IsZero() {
			since = int(s.waits.since.Sub(start) / time.Second)
		}
		if begins != c.begins || ends != c.ends || since != c.since {
			t.Errorf("%d: begins %t, ends %t, since %d", n, begins, ends, since)
		}
	}
	if s.waits.over(after(35), 5*time.Second) || !s.waits.over(after(36), 5*time.Second) {
		t.Error("it does not end with silence")
	}
}

// While it is known that timers wait they are seldom claimed, and fire as soon as they may.
func TestTimersThatWaitAreSeldomClaimed(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	cfg := quick()
	cfg.Lease = 30 * time.Second
	m := w.manager(cfg, script(1))
	w.start(m)
	w.open("x", "timer deadline 1h")
	w.sees("x", 1, "opened")
	tx, err := w.writes(t.Context(), "other", poked{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	w.overdue(1)
	livetest.Eventually(t, "it waits", func() bool { since, _ := m.units[0].waitsSince(); return !since.IsZero() })
	began, token := time.Now(), w.number("SELECT token FROM daybook.timers")
	changes := 0 // one by a claim, one when it is given back
	livetest.Eventually(t, "it is looked at for a while", func() bool {
		changes = w.number("SELECT token FROM daybook.timers") - token
		return changes > 2 && time.Since(began) > 2*settleWaiting
	})
	if most := 2 * (int(time.Since(began)/settleWaiting) + 2); changes > most {
		t.Errorf("it was claimed and given back %d times in %v, not at most %d", changes, time.Since(began), most)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.sees("x", 1, "opened; timer deadline")
}

// What waits is given back with no attempt counted, and costs next to nothing.
func TestTimersThatWait(t *testing.T) {
	t.Parallel()
	w := newScriptWorld(t, script(1))
	stop := w.start(w.manager(quick(), script(1)))
	for _, key := range strings.Split("abcdefghij", "") {
		w.open(key, "timer late 1h")
		w.sees(key, 1, "opened")
	}
	stop()
	w.poke("a")
	w.overdue(10)
	if got := w.log("a", 1); got != "opened" {
		t.Fatalf("it has seen %q", got)
	}
	w.die("saga-script", "1 hour")
	looks := &counted{Source: w.store.Log()}
	m, err := NewManager(w.pool, looks, w.post, quick(), script(1))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.start(m)
	livetest.Eventually(t, "they are looked at for a second", func() bool { return looks.n.Load() > 3 && time.Since(began) > time.Second })
	most := int64(timerWorkers) * int64(time.Since(began)/(settleFirst/2))
	if n := looks.n.Load(); n > most {
		t.Errorf("%d looks in %v", n, time.Since(began))
	}
	if n := w.number("SELECT count(*) FROM daybook.timers WHERE attempts = 0"); n != 10 || m.Stats()[0].TimersFired != 0 {
		t.Errorf("%d timers are left as they were, %d have fired", n, m.Stats()[0].TimersFired)
	}
	w.die("saga-script", "-1 second")
	w.sees("a", 1, "opened; poked; timer late")
	w.sees("j", 1, "opened; timer late")
}

// A consumer of a stream has partitions that are ahead of the others.
func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	p := newPost()
	at := time.Now()
	for n := range 250 {
		p.reply(idOf("script", "x", 1, "pay", 1), flow.ReplyDone)
		p.replies[n].Partition, p.replies[n].RecordedAt = n%2, at.Add(time.Duration(n))
	}
	for _, c := range []struct {
		r    reached
		want int
	}{
		{reached{}, 0},
		{reached{floor: 250}, -1},
		{reached{floor: 10}, 10},
		{reached{floor: 10, ahead: map[int]int64{0: 251}}, 11},
		{reached{floor: 10, ahead: map[int]int64{0: 230, 1: 220}}, 221},
		{reached{floor: 10, ahead: map[int]int64{0: 250, 1: 250}}, -1},
	} {
		got, err := c.r.untaken(t.Context(), p, eventstore.Filter{})
		switch {
		case err != nil:
			t.Fatal(err)
		case c.want < 0 && got != nil, c.want >= 0 && (got == nil || !got.Equal(at.Add(time.Duration(c.want)))):
			t.Errorf("%+v: got %v, want that of %d", c.r, got, c.want)
		}
	}
}
