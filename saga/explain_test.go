package saga

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

func waiting(step string, at time.Time) flow.Step {
	return flow.Step{Name: step, State: flow.Waiting, Intent: 1, BeganAt: at, SentAt: at}
}

func done(step string, place int) flow.Step {
	return flow.Step{Name: step, State: flow.Done, Intent: 1, Place: place, BeganAt: noon, SentAt: noon, EndedAt: noon}
}

func TestExplainAWaitingInstance(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, done("reserve-stock", 1), waiting("take-payment", after(5)))
	w.set(`awaits = 'an answer to take-payment (TakePayment to 42)', tenant = 'shop'`)
	id := w.send("take-payment", flow.Do, "TakePayment", "42", after(5))
	w.ends(id, "done", "", "", after(6))
	w.learns(id, after(7))
	w.timer("take-payment/deadline", "undoes take-payment, then compensates", after(905))
	w.exec(`INSERT INTO daybook.saga_history (saga, key, run, entry, at, kind, step, text) VALUES
		('checkout', '812', 1, 1, $1, 'started', '', ''), ('checkout', '812', 1, 2, $1, 'sent', 'take-payment', 'TakePayment to 42')`, noon)
	e := w.explain(after(185))
	w.says(e, "", `checkout "812" waits for an answer to take-payment (TakePayment to 42) since 2026-01-02T12:00:05Z (3m); `+
		`TakePayment to 42 (take-payment) was sent at 2026-01-02T12:00:05Z and was carried out at 2026-01-02T12:00:06Z; `+
		`next, at 2026-01-02T12:15:05Z (in 12m), timer take-payment/deadline undoes take-payment, then compensates.`)
	if e.String() != e.Sentence || len(e.Done) != 1 || len(e.Now) != 1 || strings.Join(e.ToCome, " ") != "hand-over" || len(e.Timeline) != 2 || e.Timeline[1].Step != "take-payment" {
		t.Errorf("%+v", e)
	}
	// The names of its JSON are a promise.
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		`"saga":"checkout"`, `"key":"812"`, `"run":1`, `"runs":1`, `"version":1`, `"kind":"process"`, `"state":"running"`, `"stuck":false`, `"sentence":`,
		`"awaits":`, `"awaits_since":`, `"done":[{"name":"reserve-stock","state":"done"`, `"now":[{"name":"take-payment","state":"waiting"`,
		`"to_come":["hand-over"]`, `"compensated":[]`, `"commands":[{"id":"` + id.String(), `"where":"done"`, `"sent_at":"2026-01-02T12:00:05Z"`,
		`"timers":[{"name":"take-payment/deadline","due_at":"2026-01-02T12:15:05Z","does":`, `"held":0`, `"timeline":[{"entry":1,"at":`, `"earlier":0`,
		`"tenant":"shop"`, `"correlation_id":"c-812"`, `"started_by":"`, `"started_at":`, `"changed_at":`, `"at":"2026-01-02T12:03:05Z"`,
	} {
		if !strings.Contains(string(text), name) {
			t.Errorf("the JSON lacks %s:\n%s", name, text)
		}
	}
	// In a transaction of the caller's, which goes on as it was.
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	again, err := Explain(t.Context(), tx, "checkout", "812", At(after(185)), OfRun(1), InSchema("daybook"))
	var setting string
	if err2 := tx.QueryRow(t.Context(), `SELECT current_setting('enable_seqscan')`).Scan(&setting); err != nil || err2 != nil || again.Sentence != e.Sentence || setting != "on" {
		t.Errorf("%v, %v, %s, %s", err, err2, setting, again.Sentence)
	}
}

func TestExplainWhereACommandIs(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.exec(`UPDATE daybook.segments SET floor = 0 WHERE consumer = 'commands'`)
	w.instance(flow.Running, waiting("take-payment", after(5)))
	first := w.enqueue(uuid.New(), "Other", "42", after(1))
	id := w.send("take-payment", flow.Do, "TakePayment", "42", after(5))
	position := w.enqueue(id, "TakePayment", "42", after(5))
	const begins = `checkout "812" waits for the end of take-payment since 2026-01-02T12:00:05Z (5s); TakePayment to 42 (take-payment) was sent at 2026-01-02T12:00:05Z and `
	at := func(p int64) string { return eventstore.PositionAt(p).String() }
	w.says(w.explain(after(10)), "", begins+`is in the outbox at position `+at(position)+` behind 1 other command, before the dispatcher.`)

	// With a relay that publishes commands.
	w.consumer(explainRelay, "relay", 2, first, after(3600), after(5))
	w.exec(`INSERT INTO daybook.outbox_tails (consumer, version, topic, partition, position) VALUES ('outbox-relay', 2, 'commands', 1, 1)`)
	w.says(w.explain(after(10)), "", begins+`is in the outbox at position `+at(position)+`, before the relay.`)
	w.exec(`UPDATE daybook.segments SET floor = $1 WHERE consumer = 'outbox-relay'`, position)
	w.says(w.explain(after(10)), "", begins+`is published (position `+at(position)+`), and the dispatcher has not come to it.`)

	// The ends.
	w.exec(`UPDATE daybook.segments SET floor = $1 WHERE consumer = 'commands'`, position)
	w.says(w.explain(after(10)), "", begins+`has left the outbox, and its end is not known.`)
	w.exec(`INSERT INTO daybook.operations (id, type, state, started_at) VALUES ($1, 't', 'running', $2)`, id, after(6))
	w.says(w.explain(after(10)), "", begins+`is being carried out since 2026-01-02T12:00:06Z (4s).`)
	for state, want := range map[string]string{
		"refused": `was refused at 2026-01-02T12:00:07Z (declined: card <b>expired</b>�).`,
		"expired": `has expired at 2026-01-02T12:00:07Z (declined: card <b>expired</b>�).`,
		"failed":  `was given up by the dispatcher at 2026-01-02T12:00:07Z (declined: card <b>expired</b>�).`,
		"done":    `was carried out at 2026-01-02T12:00:07Z.`,
	} {
		w.exec(`DELETE FROM daybook.operations`)
		w.ends(id, state, "declined", "card <b>expired</b>\x1b", after(7))
		w.says(w.explain(after(10)), "", begins+want)
	}
}

func TestExplainRetrying(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, flow.Step{Name: "take-payment", State: flow.RetryLater, Intent: 2, Attempts: 2, SentAt: after(5), Text: "busy"})
	w.timer("take-payment/retry", "sends take-payment again", after(12))
	e := w.explain(after(10))
	w.says(e, ReasonRetrying, `checkout "812": take-payment has failed twice (busy); attempt 3 is made at 2026-01-02T12:00:12Z; `+
		`next, at 2026-01-02T12:00:12Z (in 2s), timer take-payment/retry sends take-payment again.`)
	w.remedies(e, "daybook saga retry checkout 812 --step take-payment --reason WHY")
}

func TestExplainPaused(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, waiting("take-payment", after(5)))
	w.set(`paused_at = $1, paused_by = 'ann', paused_why = 'stocktaking', held = 2`, after(60))
	w.exec(`INSERT INTO daybook.saga_plans (plan, saga, action, actor, reason, selection, state, items, done, created_at, ended_at) VALUES
		('0190f5fe-7c00-7a00-8000-000000000000', 'checkout', 'pause', 'ann', 'stocktaking', 's', 'done', 1, 1, $1, $1)`, after(59))
	w.exec(`INSERT INTO daybook.saga_plan_items (plan, item, key, run, state, done_at) VALUES ('0190f5fe-7c00-7a00-8000-000000000000', 1, '812', 1, 'done', $1)`, after(60))
	e := w.explain(after(180))
	w.says(e, ReasonPaused, `checkout "812" is paused since 2026-01-02T12:01:00Z (2m): it was paused by ann: stocktaking; 2 inputs are waiting for it meanwhile; `+
		`it waits for the end of take-payment since 2026-01-02T12:00:05Z (2m55s).`)
	w.remedies(e, "daybook saga resume checkout 812 --reason WHY")
	if len(e.Actions) != 1 || e.Actions[0].Action != "pause" || e.Actions[0].Actor != "ann" || e.Actions[0].State != "done" || e.Held != 2 {
		t.Errorf("%+v", e.Actions)
	}
}

func TestExplainStuck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		state    flow.State
		step     flow.Step
		reason   string
		text     string
		sentence string
		commands []string
	}{
		{
			"given up", flow.Running,
			flow.Step{Name: "hand-over", State: flow.Waiting, Intent: 1, SentAt: noon},
			flow.DeadLetter, "panic: nil map",
			`checkout "812" is stuck at hand-over since 2026-01-02T12:00:10Z (1h), dead_letter: panic: nil map.`,
			[]string{
				"daybook saga retry checkout 812 --step hand-over --reason WHY", "daybook saga answer checkout 812 --step hand-over --reason WHY",
				"daybook saga cancel checkout 812 --reason WHY",
			},
		},
		{
			"compensation", flow.Compensating,
			flow.Step{Name: "hand-over", State: flow.UndoFailed, Intent: 1, UndoIntent: 3},
			flow.CompensationFailed, "undoing was refused: closed",
			`checkout "812" is stuck at hand-over since 2026-01-02T12:00:10Z (1h), compensation_failed: undoing was refused: closed; it is being compensated.`,
			[]string{"daybook saga retry checkout 812 --step hand-over --reason WHY", "daybook saga mark checkout 812 --step hand-over --reason WHY"},
		},
		{
			"version", flow.Running,
			flow.Step{Name: "hand-over", State: flow.Done},
			flow.HandlerMissing, "",
			`checkout "812" is stuck since 2026-01-02T12:00:10Z (1h), handler_missing: no program that runs has version 1 of its definition.`, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newRowWorld(t)
			w.runs(after(5))
			w.instance(c.state, c.step)
			step := c.step.Name
			if c.reason == flow.HandlerMissing {
				step = ""
			}
			w.stuck(c.reason, step, c.text, after(10))
			e := w.explain(after(3610))
			w.says(e, c.reason, c.sentence)
			w.remedies(e, c.commands...)
		})
	}
}

// A pause does not move since when an instance is stuck.
func TestExplainStuckAndPaused(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.runs(after(5))
	w.instance(flow.Running, flow.Step{Name: "hand-over", State: flow.Refused, Intent: 1, SentAt: noon})
	w.stuck(flow.DeadLetter, "hand-over", "closed", after(10))
	w.set(`awaits = 'somebody to decide about hand-over', paused_at = $1, paused_by = 'ann', paused_why = 'x', changed_at = $1`, after(60))
	w.says(w.explain(after(70)), ReasonPaused, `checkout "812" is paused since 2026-01-02T12:01:00Z (10s): it was paused by ann: x; `+
		`it waits for somebody to decide about hand-over since 2026-01-02T12:00:10Z (1m).`)
}

func TestExplainTheEnds(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.instance(flow.Completed, done("reserve-stock", 1))
	w.set(`ended_at = $1`, after(90))
	w.says(w.explain(after(3600)), "", `checkout "812" was completed at 2026-01-02T12:01:30Z, after 1m30s.`)
	w.set(`state = 'compensated', progress = $1`, w.progress([]flow.Step{
		{Name: "reserve-stock", State: flow.Undone}, {Name: "take-payment", State: flow.Refused, Text: "card declined"},
	}))
	w.says(w.explain(after(3600)), "", `checkout "812" was compensated at 2026-01-02T12:01:30Z, after 1m30s, because take-payment was refused (card declined); undone: reserve-stock.`)
	// Another run begins: that is the one.
	w.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, progress, content_type, data, started_by, started_at, changed_at)
		SELECT saga, key, 2, version, kind, 'running', '{}', content_type, data, started_by, $1, $1 FROM daybook.sagas`, after(100))
	w.says(w.explain(after(160)), "", `checkout "812" run 2 of 2 waits for what comes for it since 2026-01-02T12:01:40Z (1m).`)
	if e := w.explain(after(160), OfRun(1)); e.Run != 1 || e.Runs != 2 || e.State != "compensated" {
		t.Errorf("run 1: %+v", e)
	}
}

func TestExplainWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	look := func(saga, key string, options ...ExplainOption) *NoInstanceError {
		t.Helper()
		_, err := Explain(t.Context(), w.pool, saga, key, options...)
		var missing *NoInstanceError
		if !errors.As(err, &missing) || !errors.Is(err, ErrNoInstance) {
			t.Fatalf("%v", err)
		}
		return missing
	}
	if err := look("checkout", "812"); err.Error() != `saga: no instance "812" of "checkout": no saga has begun in this store` {
		t.Error(err)
	}
	w.instance(flow.Running)
	if err := look("checkout", "81"); err.Error() != `saga: no instance "81" of "checkout": near it are "812"; `+"`daybook saga list checkout` lists them" {
		t.Error(err)
	}
	if err := look("chekout", "812"); err.Error() != `saga: no instance "812" of "chekout": that saga has none; there are some of "checkout"` {
		t.Error(err)
	}
	if err := look("checkout", "812", OfRun(3)); !strings.HasPrefix(err.Error(), `saga: no run 3 of instance "812"`) {
		t.Error(err)
	}
	w.runs(after(5))
	letter := w.letter(explainEvents("checkout"), 1, "", "order-9", "parked", "order.placed", "", "no account", after(8))
	w.exec(`UPDATE daybook.letters SET stream_id = sequence`)
	if err := look("checkout", "9"); err.Error() != `saga: no instance "9" of "checkout": what should have begun it may be a letter; see `+"`daybook deadletter show "+letter.String()+"`" {
		t.Error(err)
	}
	for _, bad := range [][2]string{{"", "812"}, {"checkout", ""}, {"checkout", "a\x00"}, {"checkout", "\xff"}} {
		if _, err := Explain(t.Context(), w.pool, bad[0], bad[1]); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Explain(t.Context(), w.pool, "checkout", "812", OfRun(-1)); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	if _, err := Explain(t.Context(), w.pool, "checkout", "812", InSchema("none")); err == nil || !strings.Contains(err.Error(), "daybook migrate") {
		t.Error(err)
	}
	if _, err := Explain(t.Context(), nil, "checkout", "812"); err == nil || !strings.Contains(err.Error(), "db is nil") {
		t.Error(err)
	}
}

// What others wrote cannot move a cursor or colour a terminal, and what is to be typed means what it says.
func TestExplainIsSafeForATerminal(t *testing.T) {
	t.Parallel()
	w := newRowWorld(t)
	w.instance(flow.Running, waiting("pay\x1b[31m", noon))
	w.stuck(flow.DeadLetter, "pay\x1b[31m", "evil\r\n\x1b[2Jtext\u202e", noon)
	w.set("key = E'a''b\\x1b'")
	e, err := Explain(t.Context(), w.pool, "checkout", "a'b\x1b", At(after(60)))
	if err != nil {
		t.Fatal(err)
	}
	w.says(e, ReasonDeadLetter, `checkout "a'b\x1b" is stuck at pay�[31m since 2026-01-02T12:00:00Z (1m), dead_letter: evil���[2Jtext�.`)
	if got := e.Problems[0].Commands[0]; got != `daybook saga retry checkout $'a\'b\x1b' --step $'pay\x1b[31m' --reason WHY` {
		t.Errorf("%s", got)
	}
	w.exec(`UPDATE daybook.sagas SET key = '-x'`)
	if e, err = Explain(t.Context(), w.pool, "checkout", "-x"); err != nil || e.Problems[0].Commands[2] != `daybook saga cancel --reason WHY -- checkout '-x'` {
		t.Errorf("%v, %+v", err, e.Problems)
	}
	for text, want := range map[string]string{"": "''", "a b": "'a b'", "it's": `'it'\''s'`, "plain-1_x/y.z": "plain-1_x/y.z", "-x": "'-x'", "$(rm)": "'$(rm)'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
