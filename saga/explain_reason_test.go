package saga

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

func TestExplainReplyOverdue(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	id := w.send("take-payment", flow.Do, "TakePayment", "42", after(5))
	w.ends(id, "done", "", "", after(6))
	w.learns(id, after(7))
	if e := w.explain(after(3605)); e.Reason != "" {
		t.Errorf("after an hour: %s", e)
	}
	e := w.explain(after(3606))
	w.says(e, ReasonReplyOverdue, `checkout "812" is stuck at take-payment since 2026-01-02T12:00:05Z (1h), reply_overdue: `+
		`TakePayment to 42 (take-payment) was sent at 2026-01-02T12:00:05Z (1h) and was carried out at 2026-01-02T12:00:06Z; no answer has come since.`)
	w.remedies(e, "daybook saga retry checkout 812 --step take-payment --reason WHY", "daybook saga answer checkout 812 --step take-payment --reason WHY")
	if e := w.explain(after(65), OverdueAfter(time.Minute/2)); e.Reason != ReasonReplyOverdue {
		t.Errorf("with a limit: %s", e)
	}
	// A deadline is what it waits for, however long.
	w.timer("take-payment/deadline", "compensates", after(90_000))
	if e := w.explain(after(7200)); e.Reason != "" {
		t.Errorf("with a deadline: %s", e)
	}
	// An undo.
	w.exec(`DELETE FROM daybook.timers`)
	w.set(`state = 'compensating', progress = $1`, w.progress([]flow.Step{{Name: "take-payment", State: flow.Undoing, Intent: 1, UndoIntent: 1, SentAt: after(10)}}))
	w.send("take-payment", flow.Undo, "Refund", "42", after(10))
	e = w.explain(after(7210))
	w.says(e, ReasonReplyOverdue, `checkout "812" is stuck at take-payment since 2026-01-02T12:00:10Z (2h), reply_overdue: Refund to 42 (undo of take-payment) was sent at `+
		`2026-01-02T12:00:10Z (2h) and has left the outbox, and its end is not known; no answer has come since; it is being compensated.`)
	w.remedies(e, "daybook saga retry checkout 812 --step take-payment --reason WHY", "daybook saga mark checkout 812 --step take-payment --reason WHY")
}

// R-ST19: what waits for its due time is no fault, what is overdue is.
func TestExplainTimerOverdue(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	w.timer("take-payment/deadline", "compensates", after(60))
	for _, now := range []time.Time{after(59), after(90)} {
		if e := w.explain(now); e.Reason != "" {
			t.Errorf("at %v: %s", now, e)
		}
	}
	e := w.explain(after(91))
	w.says(e, ReasonTimerOverdue, `checkout "812" is stuck at take-payment since 2026-01-02T12:01:00Z (31s), timer_overdue: `+
		`timer take-payment/deadline was due at 2026-01-02T12:01:00Z (31s) and has not fired; its manager runs; it compensates.`)
	w.remedies(e, "daybook status")
	w.exec(`UPDATE daybook.segments SET expires_at = $1 WHERE consumer = 'saga-checkout'`, after(20))
	if e := w.explain(after(91)); !strings.Contains(e.Text, "its manager does not run in any process") || e.Problems[0].Remedy != "run a program with the manager of checkout" {
		t.Errorf("%s", e)
	}
	// Somebody has it.
	w.exec(`UPDATE daybook.timers SET owner = 'host-2', visible_at = $1`, after(120))
	if e := w.explain(after(119)); e.Reason != "" {
		t.Errorf("claimed: %s", e)
	}
	// It failed, and is tried again.
	w.exec(`UPDATE daybook.timers SET owner = '', attempts = 2, error = 'no such receipt'`)
	w.says(w.explain(after(119)), ReasonRetrying, `checkout "812": timer take-payment/deadline has failed twice: no such receipt; it is tried again at 2026-01-02T12:02:00Z; `+
		`next, at 2026-01-02T12:01:00Z, timer take-payment/deadline compensates.`)
}

// What an instance waits for may have come, and nobody has read it.
func TestExplainAManagerThatDoesNotRun(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	w.exec(`UPDATE daybook.segments SET floor = 0, expires_at = $1 WHERE consumer = 'saga-checkout'`, after(60))
	w.exec(`SELECT nextval('daybook.log_position') FROM generate_series(1, 5)`)
	for _, now := range []time.Time{after(59), after(90)} {
		if e := w.explain(now); e.Reason != "" {
			t.Errorf("at %v: %s", now, e)
		}
	}
	e := w.explain(after(120))
	w.says(e, ReasonOutboxBlocked, `checkout "812" is stuck since 2026-01-02T12:01:00Z (1m), outbox_blocked: its manager does not run in any process, and has not read what came since.`)
	w.remedies(e, "daybook status")
	w.exec(`UPDATE daybook.consumers SET state = 'stopped', reason = 'the definition has changed', since = $1 WHERE consumer = 'saga-checkout'`, after(61))
	w.says(w.explain(after(121)), ReasonOutboxBlocked, `checkout "812" is stuck since 2026-01-02T12:01:01Z (1m), outbox_blocked: its manager is stopped (the definition has changed), and has not read what came since.`)
	w.exec(`UPDATE daybook.segments SET floor = 5`)
	if e := w.explain(after(121)); e.Reason != "" {
		t.Errorf("it has read all: %s", e)
	}
}

// A timer that was given up says so itself, and one of a paused instance does nothing.
func TestExplainTimersThatStandStill(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	w.timer("take-payment/deadline", "compensates", after(60))
	w.exec(`UPDATE daybook.timers SET visible_at = due_at + $1::interval, error = 'no such receipt', attempts = 5`, never)
	w.stuck(flow.DeadLetter, "", "timer take-payment/deadline failed 5 times: no such receipt", after(90))
	e := w.explain(after(600))
	w.says(e, ReasonDeadLetter, `checkout "812" is stuck since 2026-01-02T12:01:30Z (8m30s), dead_letter: timer take-payment/deadline failed 5 times: no such receipt.`)
	w.remedies(e, "daybook saga retry checkout 812 --reason WHY", "daybook saga cancel checkout 812 --reason WHY")
	if len(e.Timers) != 1 || !e.Timers[0].FreeAt.IsZero() || !e.Timers[0].DueAt.Equal(after(60)) {
		t.Errorf("%+v", e.Timers)
	}
	w.set("held = 3, stuck_text = 'what was kept for it failed 3 times: broken'")
	e = w.explain(after(600))
	w.remedies(e, "daybook saga retry checkout 812 --reason WHY", "daybook saga skip checkout 812 --reason WHY", "daybook saga cancel checkout 812 --reason WHY")
	if !strings.HasPrefix(e.Problems[0].Remedy, "3 inputs are kept for it, at the first of which its definition fails: ") {
		t.Errorf("%+v", e.Problems)
	}
	w.exec("INSERT INTO daybook.saga_inputs (saga, key, run, kind, body, arrived_at) VALUES ('checkout', '812', 1, 'timer', '', $1), ('checkout', '812', 1, 'event', '', $1)", noon)
	w.remedies(w.explain(after(600)), "daybook saga retry checkout 812 --reason WHY", "daybook saga cancel checkout 812 --reason WHY") // not to pass by a timer
	w.set("stuck_text = '', stuck = '', stuck_since = NULL, held = 0")
	e = w.explain(after(600))
	w.says(e, ReasonDeadLetter, `checkout "812" is stuck at take-payment since 2026-01-02T12:01:00Z (9m), dead_letter: timer take-payment/deadline was given up: it failed 5 times: no such receipt.`)
	w.remedies(e, "daybook saga retry checkout 812 --reason WHY", "daybook saga cancel checkout 812 --reason WHY")
	w.set("stuck = '', stuck_since = NULL, held = 0, paused_at = $1, paused_by = 'ann', paused_why = 'x'", after(90))
	w.says(w.explain(after(150)), ReasonPaused, `checkout "812" is paused since 2026-01-02T12:01:30Z (1m): it was paused by ann: x; `+
		`it waits for the end of take-payment since 2026-01-02T12:00:05Z (2m25s); its timer stands still meanwhile.`)
}

// The last command has a step of its own.
func TestExplainTheLastCommand(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Compensating, flow.Step{Name: "take-payment", State: flow.Undone, Intent: 1}, waiting("compensated", after(5)))
	w.set("awaits = 'its last command, CancelOrder to 812, to be carried out'")
	w.send("take-payment", flow.Do, "TakePayment", "42", after(1))
	w.exec(`UPDATE daybook.saga_commands SET closed = true`)
	w.ends(w.send("compensated", flow.End, "CancelOrder", "812", after(5)), "done", "", "", after(6))
	w.says(w.explain(after(10)), "", `checkout "812" is being compensated and waits for its last command, CancelOrder to 812, to be carried out since 2026-01-02T12:00:05Z (5s); `+
		`CancelOrder to 812 (compensated) was sent at 2026-01-02T12:00:05Z and was carried out at 2026-01-02T12:00:06Z.`)
}

func TestExplainOutboxBlocked(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.instance(flow.Running, waiting("take-payment", after(5)))
	other := uuid.New()
	head := w.enqueue(other, "Other", "42", after(1))
	id := w.send("take-payment", flow.Do, "TakePayment", "42", after(5))
	position := w.enqueue(id, "TakePayment", "42", after(5))
	at := func(p int64) string { return eventstore.PositionAt(p).String() }
	if e := w.explain(after(35)); e.Reason != "" {
		t.Errorf("after 30 s: %s", e)
	}
	begins := `checkout "812" is stuck at take-payment since 2026-01-02T12:00:05Z (1m), outbox_blocked: TakePayment, sent at 2026-01-02T12:00:05Z, ` +
		`is in the outbox at position ` + at(position) + ` behind 1 other command, before the dispatcher; the dispatcher `
	ends := `; at the head of its partition stands Other ` + other.String() + `, position ` + at(head) + `, since 2026-01-02T12:00:01Z (1m4s).`
	e := w.explain(after(65))
	w.says(e, ReasonOutboxBlocked, begins+`has never run`+ends)
	w.remedies(e, "daybook status")
	if e.Problems[0].Remedy != "run a program with the dispatcher" {
		t.Error(e.Problems[0].Remedy)
	}
	w.consumer(explainDispatcher, "dispatcher", 1, 0, after(20), noon)
	w.says(w.explain(after(65)), ReasonOutboxBlocked, begins+`does not run in any process`+ends)
	w.exec(`UPDATE daybook.consumers SET state = 'stopped', reason = 'the history has changed' WHERE consumer = 'commands'`)
	w.says(w.explain(after(65)), ReasonOutboxBlocked, begins+`is stopped (the history has changed)`+ends)
	w.exec(`UPDATE daybook.consumers SET state = 'running'`)
	w.exec(`UPDATE daybook.segments SET expires_at = $1`, after(80))
	e = w.explain(after(65))
	w.says(e, ReasonOutboxBlocked, begins+`runs, and nothing of it has been committed since 2026-01-02T12:00:05Z (1m)`+ends)
	// It moves: this takes its time, and is no fault.
	w.exec(`UPDATE daybook.segments SET committed_at = $1`, after(60))
	if e := w.explain(after(65)); e.Reason != "" || e.Commands[0].Behind != 1 {
		t.Errorf("it moves: %s", e)
	}

	// The end is known, and nobody takes it.
	w.exec(`UPDATE daybook.segments SET floor = 1000`)
	w.ends(id, "done", "", "", after(60))
	w.consumer(explainReplies("checkout"), "saga", 1, 0, after(20), noon)
	if e := w.explain(after(90)); e.Reason != "" {
		t.Errorf("the end is young: %s", e)
	}
	e = w.explain(after(120))
	w.says(e, ReasonOutboxBlocked, `checkout "812" is stuck at take-payment since 2026-01-02T12:01:00Z (1m), outbox_blocked: TakePayment, sent at 2026-01-02T12:00:05Z, `+
		`was carried out at 2026-01-02T12:01:00Z; the saga has not learned of it: its manager does not run in any process.`)
	if e.Problems[0].Remedy != "run a program with the manager" {
		t.Error(e.Problems[0].Remedy)
	}
	// What is closed is not waited for.
	w.exec(`UPDATE daybook.saga_commands SET closed = true`)
	if e := w.explain(after(120)); e.Reason != "" {
		t.Errorf("closed: %s", e)
	}
}

func (w *rowWorld) letter(consumer string, version int, topic, sequence, state, kind, cause string, text string, at time.Time) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	w.exec(`INSERT INTO daybook.letters (letter, consumer, version, topic, sequence, partition, position, state, kind, attempts, round, fingerprint, errors, first_errors,
		first_failed_at, last_failed_at, handler, program, id, type, schema_version, flags, content_type, tenant, correlation_id, causation_id, actor, headers, data, recorded_at)
		VALUES ($1, $2, $3, $4, $5, 0, (SELECT count(*) FROM daybook.letters), $6, 'permanent', 1, 1, 'f', ARRAY[$9], ARRAY[$9], $10, $10, 'h', 'p', gen_random_uuid(), $7, 1, 0, '', '', '', $8, '', '', '', $10)`,
		id, consumer, version, topic, sequence, state, kind, cause, text, at)
	return id
}

func TestExplainDeadLetters(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	id := w.send("take-payment", flow.Do, "TakePayment", "42", after(5))
	w.ends(id, "done", "", "", after(6))
	w.learns(id, after(7))
	w.letter(explainEvents("checkout"), 1, "", "order-9", "parked", "payment.taken", uuid.NewString(), "of another", after(8))
	if e := w.explain(after(20)); e.Reason != "" {
		t.Errorf("of another: %s", e)
	}
	letter := w.letter(explainEvents("checkout"), 1, "", "payment-7", "retrying", "payment.taken", id.String(), "no such receipt", after(10))
	if e := w.explain(after(20)); e.Reason != ReasonRetrying || e.Stuck {
		t.Errorf("it is retried: %s", e)
	}
	w.exec(`UPDATE daybook.letters SET state = 'parked'`)
	e := w.explain(after(20))
	w.says(e, ReasonDeadLetter, `checkout "812" is stuck since 2026-01-02T12:00:10Z (10s), dead_letter: payment.taken could not be taken by saga-checkout and is letter `+letter.String()+
		`: no such receipt; TakePayment to 42 (take-payment) was sent at 2026-01-02T12:00:05Z and was carried out at 2026-01-02T12:00:06Z.`)
	w.remedies(e, "daybook deadletter show "+letter.String(), "daybook deadletter redrive "+letter.String())
	if len(e.Letters) != 1 || e.Letters[0].ID != letter {
		t.Errorf("%+v", e.Letters)
	}
	w.exec(`DELETE FROM daybook.letters`)

	// By its key, and of the replies.
	w.letter(explainReplies("checkout"), 1, "", "812", "parked", "reply", "", "broken", after(10))
	if e := w.explain(after(20)); e.Reason != ReasonDeadLetter {
		t.Errorf("a reply: %s", e)
	}
	w.exec(`DELETE FROM daybook.letters`)

	// The relay has set it aside.
	w.exec(`DELETE FROM daybook.operations`)
	w.exec(`UPDATE daybook.saga_commands SET state = 'sent', replied_at = NULL`)
	w.consumer(explainRelay, "relay", 2, 1000, after(3600), after(5))
	w.exec(`INSERT INTO daybook.outbox_tails (consumer, version, topic, partition, position) VALUES ('outbox-relay', 2, 'commands', 1, 1)`)
	letter = w.letter(explainRelay, 2, "commands", "42", "parked", "TakePayment", "", "too large", after(4))
	e = w.explain(after(20))
	w.says(e, ReasonDeadLetter, `checkout "812" is stuck at take-payment since 2026-01-02T12:00:05Z (15s), dead_letter: TakePayment, sent at 2026-01-02T12:00:05Z, was set aside by the relay as letter `+letter.String()+`.`)
	w.remedies(e, "daybook deadletter show "+letter.String(), "daybook deadletter redrive "+letter.String())
}

// A store with many instances, and a store that was empty when the planner looked.
func TestExplainAndListGoByIndexes(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, stuck, stuck_since, progress, content_type, data, started_by, changed_at, ended_at)
		SELECT 'checkout', 'k' || i, 1, 1, 'process', (ARRAY['running', 'compensating', 'completed', 'compensated'])[i % 4 + 1], CASE WHEN i % 40 = 0 THEN 'dead_letter' ELSE '' END,
		       CASE WHEN i % 40 = 0 THEN clock_timestamp() END, '{}', '', '', gen_random_uuid(), clock_timestamp(), CASE WHEN i % 4 > 1 THEN clock_timestamp() END
		  FROM generate_series(1, 4000) i`)
	w.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at) SELECT 'saga:checkout', '3:k' || i || ':1:x', clock_timestamp() + '1 day', clock_timestamp() + '1 day' FROM generate_series(1, 4000) i`)
	w.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data)
		SELECT gen_random_uuid(), 'checkout', 'k' || i, 1, 's', 'do', 1, 't', '42', '', '' FROM generate_series(1, 4000) i`)
	w.exec(`INSERT INTO daybook.saga_history (saga, key, run, entry, kind) SELECT 'checkout', 'k' || i, 1, 1, 'started' FROM generate_series(1, 4000) i`)
	w.instance(flow.Running, waiting("take-payment", after(5)))
	w.enqueue(w.send("take-payment", flow.Do, "TakePayment", "42", after(5)), "TakePayment", "42", after(5))
	w.timer("take-payment/deadline", "compensates", after(60))
	pool, tr := w.traced()
	if _, err := Explain(t.Context(), pool, "checkout", "812"); err != nil {
		t.Fatal(err)
	}
	if _, err := Explain(t.Context(), pool, "checkout", "none"); err == nil {
		t.Fatal("there is one")
	}
	if _, err := Counts(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filter{
		{Reason: flow.Paused}, {Reason: flow.Paused, Stuck: true, Older: time.Hour}, {}, {Stuck: true}, {Reason: flow.DeadLetter}, {State: "running"}, {State: "compensating", Older: time.Hour}, {State: "completed"}, {Stuck: true, Older: time.Hour}, {Older: time.Hour},
	} {
		f.Saga, f.Limit = "checkout", 10
		page, err := List(t.Context(), pool, f)
		if err != nil {
			t.Fatal(err)
		}
		if f.After = page.Next; f.After != "" {
			if _, err := List(t.Context(), pool, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := (Operator{DB: pool}).Preview(t.Context(), Matching(Filter{Saga: "checkout", Stuck: true})); err != nil {
		t.Fatal(err)
	}
	plans := w.plans(tr)
	if len(plans) < 20 {
		t.Errorf("%d statements", len(plans))
	}
	for sql, plan := range plans {
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "Seq Scan on ") && !strings.Contains(line, "Seq Scan on store") {
				t.Errorf("reads all of a table:\n%s\n%s", sql, plan)
				break
			}
		}
	}
}
