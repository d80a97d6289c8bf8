package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/internal/testscale"
)

// crowd is a store with an instance for each reason why one does not go on, among many that do.
type crowd struct {
	*rowWorld
	keys []string
	now  time.Time
}

func (w *crowd) one(key string, state flow.State, steps ...flow.Step) {
	w.t.Helper()
	w.keys = append(w.keys, key)
	i := &flow.Instance{State: state, Steps: steps, StartedAt: noon}
	waiting, retrying := waits(nil, i)
	var ended *time.Time
	if state.Over() {
		ended = &noon
	}
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by, started_at, changed_at, waits_since, retries_since, ended_at)
		VALUES ('checkout', $1, 1, 1, 'process', $2, $3, '', '', gen_random_uuid(), $4, $4, $5, $6, $7)`, key, string(state), w.progress(steps), noon, waiting, retrying, ended)
}

func (w *crowd) row(key, assignments string, args ...any) {
	w.t.Helper()
	w.exec(`UPDATE daybook.sagas SET `+assignments+` WHERE saga = 'checkout' AND key = '`+key+`'`, args...)
}

func (w *crowd) sends(key string, at time.Time) uuid.UUID {
	w.t.Helper()
	id := flow.CommandID(flow.Ref{Saga: "checkout", Key: key, Run: 1}, "pay", flow.Do, 1)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data, sent_at)
		VALUES ($1, 'checkout', $2, 1, 'pay', 'do', 1, 'Pay', 'till-' || $2, '', '', $3)`, id, key, at)
	return id
}

func (w *crowd) carriedOut(id uuid.UUID, learned bool) {
	w.t.Helper()
	w.ends(id, "done", "", "", after(10))
	if learned {
		w.learns(id, after(11))
		return
	}
	w.exec(`WITH p AS (SELECT nextval('daybook.log_position') AS position)
		INSERT INTO daybook.outbox (first_position, last_position, id, partition, topic, key, type, content_type, causation_id, data, recorded_at)
		SELECT p.position, p.position, gen_random_uuid(), 3, $2, 'k', 'reply', '', $1, '', $3 FROM p`, id.String(), ReplyTopic("checkout"), after(10))
}

func (w *crowd) sets(key, name string, due, visible time.Time, attempts int, text string) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at, attempts, error) VALUES ($1, $2, $3, $4, $5, $6)`,
		timerQueue("checkout"), timerName(flow.Ref{Saga: "checkout", Key: key, Run: 1}, name), due, visible, attempts, text)
}

// idle are instances that wait for their deadlines: their commands were carried out.
func (w *crowd) idle(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by, started_at, changed_at)
		SELECT 'checkout', 'idle-' || i, 1, 1, 'process', (ARRAY['running', 'compensating'])[i % 2 + 1],
		       '{"steps":[{"name":"pay","state":"waiting","intent":1}]}', '', '', gen_random_uuid(), $2, $2 FROM generate_series(1, $1) i`, n, noon)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data, sent_at, state, replied_at)
		SELECT gen_random_uuid(), 'checkout', 'idle-' || i, 1, 'pay', 'do', 1, 'Pay', 't', '', '', $2, 'done', $2 FROM generate_series(1, $1) i`, n, noon)
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at)
		SELECT 'saga:checkout', length('idle-' || i) || ':idle-' || i || ':1:pay/deadline', $2, $2 FROM generate_series(1, $1) i`, n, after(90_000))
	w.keys = append(w.keys, "idle-1", "idle-2")
}

func newCrowd(t *testing.T, idle int) *crowd {
	w := &crowd{newRowWorld(t), nil, after(7200)}
	w.idle(idle)
	w.runs(after(7190))
	w.consumer(explainRelay, "relay", 2, 1<<40, after(90_000), after(7190))
	w.exec(`INSERT INTO daybook.outbox_tails (consumer, version, topic, partition, position) VALUES ('outbox-relay', 2, 'commands', 1, 1)`)
	pays := waiting("pay", after(5))
	bounded := func(key string) {
		w.one(key, flow.Running, pays)
		w.row(key, "waits_since = NULL")
		w.sets(key, "pay/deadline", after(90_000), after(90_000), 0, "")
	}
	for n, reason := range storedReasons[:4] {
		bounded("stored-" + reason)
		w.row("stored-"+reason, "stuck = $1, stuck_step = 'pay', stuck_since = $2", reason, after(100+n))
	}
	bounded("paused")
	w.row("paused", "paused_at = $1", after(200))
	w.one("paused-and-stuck", flow.Compensating, flow.Step{Name: "pay", State: flow.UndoFailed})
	w.row("paused-and-stuck", "stuck = 'compensation_failed', stuck_step = 'pay', stuck_since = $1, paused_at = $1", after(201))

	bounded("letter-by-cause")
	w.letter(explainEvents("checkout"), 1, "", "a", "parked", "paid", w.sends("letter-by-cause", after(5)).String(), "broken", after(300))
	bounded("letter-by-key")
	w.letter(explainReplies("checkout"), 1, "", "letter-by-key", "parked", "reply", "", "broken", after(301))
	bounded("letter-retried")
	w.letter(explainEvents("checkout"), 1, "", "letter-retried", "retrying", "paid", "", "broken", after(302))
	w.one("ended", flow.Completed)
	w.letter(explainEvents("checkout"), 1, "", "ended", "parked", "paid", "", "broken", after(303))
	w.one("ended-and-late", flow.Completed)
	w.letter(explainEvents("checkout"), 1, "", "b", "parked", "paid", w.sends("ended-and-late", after(5)).String(), "broken", after(304))

	bounded("aside")
	id := w.sends("aside", after(5))
	w.enqueue(id, "Pay", "till-aside", after(5))
	letter := w.letter(explainRelay, 2, "commands", "till-aside", "parked", "Pay", "", "too large", after(5))
	w.exec(`UPDATE daybook.letters SET id = $1, position = 1, recorded_at = $3 WHERE letter = $2`, id, letter, after(5))
	bounded("behind-aside")
	id = w.sends("behind-aside", after(6))
	w.exec(`UPDATE daybook.saga_commands SET target = 'till-aside' WHERE command = $1`, id)
	w.enqueue(id, "Pay", "till-aside", after(6))

	bounded("overdue")
	w.sets("overdue", "pay/a", after(600), after(600), 0, "")
	w.sets("overdue", "pay/b", after(601), after(601), 1, "broken")
	bounded("due")
	w.sets("due", "pay/a", after(7180), after(7180), 0, "")
	bounded("given-up")
	w.sets("given-up", "other", after(600), after(600).Add(never), 5, "broken")
	bounded("failed")
	w.sets("failed", "other", after(600), after(7300), 1, "broken")

	w.one("no-answer", flow.Running, pays)
	w.carriedOut(w.sends("no-answer", after(5)), true)
	w.one("no-answer-yet", flow.Running, waiting("pay", after(6000)))
	w.carriedOut(w.sends("no-answer-yet", after(6000)), true)
	w.one("retrying", flow.Running, flow.Step{Name: "pay", State: flow.RetryLater, Intent: 1, Attempts: 1, SentAt: after(7000)})

	bounded("not-carried-out")
	w.enqueue(w.sends("not-carried-out", after(5)), "Pay", "till-not-carried-out", after(5))
	bounded("not-told")
	w.carriedOut(w.sends("not-told", after(5)), false)
	w.exec(`ANALYZE daybook.sagas, daybook.timers, daybook.saga_commands, daybook.outbox, daybook.letters`)
	return w
}

// listed goes through a list, and returns its instances in order.
func (w *crowd) listed(db *pgxpool.Pool, f Filter) (all []Summary) {
	w.t.Helper()
	f.Saga = "checkout"
	seen := map[string]bool{}
	for pages := 0; ; pages++ {
		page, err := List(w.t.Context(), db, f, At(w.now))
		if err != nil {
			w.t.Fatal(err)
		}
		if f.Limit > 0 && len(page.Sagas) > f.Limit || pages > 200 {
			w.t.Fatalf("%s: %d instances on page %d", f, len(page.Sagas), pages)
		}
		for _, s := range page.Sagas {
			if seen[s.Key] {
				w.t.Errorf("%s by %d: %s is listed twice", f, f.Limit, s.Key)
			}
			seen[s.Key] = true
		}
		all = append(all, page.Sagas...)
		if f.After = page.Next; f.After == "" {
			return all
		}
	}
}

// agrees compares lists with what is said of each instance, and returns who is stuck for what.
func (w *crowd) agrees() map[string]string {
	w.t.Helper()
	reasons := map[string][]string{}
	stuck := map[string]string{}
	want := map[string][]string{} // by reason; those that are stuck by ""
	for _, key := range w.keys {
		e, err := Explain(w.t.Context(), w.pool, "checkout", key, At(w.now))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, p := range e.Problems {
			if !slices.Contains(reasons[key], p.Reason) {
				reasons[key] = append(reasons[key], p.Reason)
				want[p.Reason] = append(want[p.Reason], key)
			}
		}
		if e.Stuck {
			want[""] = append(want[""], key)
			stuck[key] = e.Reason
		}
	}
	for _, reason := range []string{
		"", ReasonDeadLetter, ReasonReplyOverdue, ReasonTimerOverdue, ReasonCompensationFailed, ReasonRetrying, ReasonHandlerMissing, ReasonPaused, ReasonOutboxBlocked,
	} {
		slices.Sort(want[reason])
		for _, limit := range []int{0, 2} {
			var got []string
			for _, s := range w.listed(w.pool, Filter{Stuck: reason == "", Reason: reason, Limit: limit}) {
				if strings.HasPrefix(s.Key, "idle-") && !slices.Contains(w.keys, s.Key) {
					continue
				}
				got = append(got, s.Key)
				if s.Stuck != (stuck[s.Key] != "") || !slices.Equal(sorted(s.Reasons), sorted(reasons[s.Key])) || !slices.Contains(s.Reasons, s.Reason) || s.StuckSince.IsZero() {
					w.t.Errorf("%s is listed as %+v, and explained by %v", s.Key, s, reasons[s.Key])
				}
			}
			if slices.Sort(got); !slices.Equal(got, want[reason]) {
				w.t.Errorf("with %q by %d:\n%v, want\n%v", cmp.Or(reason, "stuck"), limit, got, want[reason])
			}
		}
	}
	return stuck
}

func sorted(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return texts
}

func (w *crowd) stuckAre(want map[string]string) {
	w.t.Helper()
	if got := w.agrees(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("stuck are\n%v, want\n%v", got, want)
	}
}

// What Explain calls stuck is what a list of those that are stuck has, for every reason, and nothing else.
func TestListsAgreeWithExplain(t *testing.T) {
	t.Parallel()
	w := newCrowd(t, 40)
	stuck := map[string]string{
		"stored-dead_letter": ReasonDeadLetter, "stored-reply_overdue": ReasonReplyOverdue, "stored-compensation_failed": ReasonCompensationFailed,
		"stored-handler_missing": ReasonHandlerMissing, "paused": ReasonPaused, "paused-and-stuck": ReasonPaused, "letter-by-cause": ReasonDeadLetter,
		"letter-by-key": ReasonDeadLetter, "ended-and-late": ReasonDeadLetter, "aside": ReasonDeadLetter, "behind-aside": ReasonDeadLetter,
		"overdue": ReasonTimerOverdue, "given-up": ReasonDeadLetter, "no-answer": ReasonReplyOverdue,
	}
	w.stuckAre(stuck)
	// Older is about the problem.
	for older, want := range map[time.Duration]string{
		7095 * time.Second: "stored-dead_letter stored-reply_overdue stored-compensation_failed stored-handler_missing aside behind-aside no-answer",
		6996 * time.Second: "stored-dead_letter stored-reply_overdue stored-compensation_failed stored-handler_missing paused-and-stuck paused aside behind-aside no-answer",
	} {
		var got []string
		for _, s := range w.listed(w.pool, Filter{Stuck: true, Older: older, Limit: 2}) {
			got = append(got, s.Key)
		}
		if fmt.Sprint(sorted(got)) != fmt.Sprint(sorted(strings.Fields(want))) {
			t.Errorf("for %v: %v", older, got)
		}
	}
	if got := w.listed(w.pool, Filter{Stuck: true, State: "compensating"}); len(got) != 1 || got[0].Key != "paused-and-stuck" || got[0].Reason != ReasonCompensationFailed || got[0].Step != "pay" {
		t.Errorf("compensating: %+v", got)
	}
	// A list of all tells the reasons too.
	for _, s := range w.listed(w.pool, Filter{State: "running"}) {
		if s.Stuck != (stuck[s.Key] != "") {
			t.Errorf("%+v", s)
		}
	}

	// The dispatcher dies, then whoever takes ends.
	w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer = 'commands'`, after(20))
	stuck["not-carried-out"] = ReasonOutboxBlocked
	w.stuckAre(stuck)
	w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer = $2`, after(20), explainReplies("checkout"))
	stuck["not-told"] = ReasonOutboxBlocked
	w.stuckAre(stuck)
	// The relay dies too: what it has not sent is before it.
	w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer = 'outbox-relay'`, after(20))
	w.stuckAre(stuck)
	// And the manager, with something to read: nobody goes on.
	w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer = 'saga-checkout'`, after(20))
	for _, key := range w.keys {
		if stuck[key] == "" && key != "ended" || key == "no-answer" { // an answer may be what is not read
			stuck[key] = ReasonOutboxBlocked
		}
	}
	w.stuckAre(stuck)
}

// Among very many instances that wait, a list of those that do not go on reads these and hardly more; see R-LB02.
func TestListsOfStuckInstancesReadNoOthers(t *testing.T) {
	t.Parallel()
	n := 20_000
	if testscale.Factor() >= 1 {
		n = 1_000_000
	}
	w := newCrowd(t, n)
	w.exec(`VACUUM daybook.sagas, daybook.timers`)
	pool, tr := w.traced()
	const others = 40 // what has a row, a timer or a message of its own here and is not stuck, and the consumers
	for _, f := range []Filter{
		{Stuck: true}, {Reason: ReasonDeadLetter}, {Reason: ReasonReplyOverdue}, {Reason: ReasonTimerOverdue}, {Reason: ReasonCompensationFailed},
		{Reason: ReasonRetrying}, {Reason: ReasonHandlerMissing}, {Reason: ReasonPaused}, {Reason: ReasonOutboxBlocked}, {Stuck: true, Limit: 1},
	} {
		for _, dead := range []bool{false, true} {
			if dead {
				w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer IN ('commands', $2)`, after(20), explainReplies("checkout"))
			} else {
				w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $2, floor = 1000000 WHERE consumer IN ('commands', $3)`, after(90_000), after(7190), explainReplies("checkout"))
			}
			tr.clear()
			listed := w.listed(pool, f)
			for sql, plan := range w.plans(tr) {
				if read := rowsRead(t, plan); read > len(listed)+others {
					t.Errorf("%s: of %d listed %d rows are read:\n%s\n%s", f, len(listed), read, sql, plan)
				}
			}
		}
	}
	// Where all are listed, a page reads a page.
	w.exec(`UPDATE daybook.segments SET expires_at = $1, committed_at = $1, floor = 0 WHERE consumer = 'saga-checkout'`, after(20))
	tr.clear()
	page, err := List(t.Context(), pool, Filter{Saga: "checkout", Reason: ReasonOutboxBlocked, Limit: 50}, At(w.now))
	if err != nil || len(page.Sagas) != 50 || page.Next == "" {
		t.Fatalf("%d, %v", len(page.Sagas), err)
	}
	for sql, plan := range w.plans(tr) {
		if read := rowsRead(t, plan); read > 50+others {
			t.Errorf("%d rows are read:\n%s\n%s", read, sql, plan)
		}
	}
}
