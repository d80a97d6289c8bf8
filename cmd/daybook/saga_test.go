package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/saga"
)

// desk is a store with instances as managers write them, and somebody at a terminal.
type desk struct {
	t    *testing.T
	pool *pgxpool.Pool
	url  string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	pool := postgrestest.New(t)
	d := &desk{t: t, pool: pool, url: postgrestest.URL(pool)}
	d.exec(`INSERT INTO daybook.sagas (saga, key, run, version, kind, state, stuck, stuck_step, stuck_text, stuck_since, awaits, progress, content_type, data, started_by, entries, started_at, changed_at, ended_at) VALUES
		('checkout', '1', 1, 1, 'process', 'running', '', '', '', NULL, 'an answer to pay', '{"steps":[{"name":"stock","state":"done"},{"name":"pay","state":"waiting","intent":1}],"plan":["stock","pay","ship"]}', '', '', gen_random_uuid(), 2, now() - interval '2 hours', now() - interval '2 minutes', NULL),
		('checkout', '2', 1, 1, 'process', 'running', 'dead_letter', 'ship', E'evil \x1b[31mred\n', now() - interval '3 hours', '', '{"steps":[{"name":"ship","state":"waiting"}]}', '', '', gen_random_uuid(), 0, now(), now(), NULL),
		('checkout', '3', 1, 1, 'process', 'compensating', 'compensation_failed', 'pay', 'closed', now() - interval '1 hour', '', '{"steps":[{"name":"pay","state":"undo failed"}]}', '', '', gen_random_uuid(), 0, now(), now(), NULL),
		('checkout', '4', 1, 1, 'process', 'completed', '', '', '', NULL, '', '{}', '', '', gen_random_uuid(), 0, now(), now(), now())`)
	d.exec(`INSERT INTO daybook.saga_history (saga, key, run, entry, at, kind, step, text, actor, reason) VALUES
		('checkout', '1', 1, 1, '2026-01-02T12:00:00Z', 'started', '', '', '', ''), ('checkout', '1', 1, 2, '2026-01-02T12:00:01Z', 'action', 'pay', E'a\x1bb', 'ann', 'because')`)
	d.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data, state, replied_at)
		VALUES ('0190f5fe-7c00-7a00-8000-000000000001', 'checkout', '1', 1, 'pay', 'do', 1, 'TakePayment', '42', '', '', 'done', now())`)
	d.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at, does) VALUES ('saga:checkout', '1:1:1:pay/deadline', now() + interval '10 minutes', now() + interval '10 minutes', 'compensates')`)
	return d
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) on(args ...string) []string {
	return append(append([]string{"saga"}, args...), "--database", d.url)
}

func (d *desk) run(args ...string) string {
	d.t.Helper()
	out, err := run(d.t, d.on(args...)...)
	if err != nil {
		d.t.Errorf("%v: %v", args, err)
	}
	return out
}

func (d *desk) wantError(code int, text string, args ...string) string {
	d.t.Helper()
	out, err := run(d.t, d.on(args...)...)
	if err == nil || exitCode(err) != code || !strings.Contains(err.Error(), text) {
		d.t.Errorf("%v: %v (exit %d), want %q (exit %d)\n%s", args, err, exitCode(err), text, code, out)
	}
	return out
}

func TestSagaWhy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out := d.run("why", "checkout", "1")
	wantIn(t, out, `checkout "1" waits for an answer to pay since `, "next, at ", "timer pay/deadline compensates", "\ndone         stock\n", "\nnow          pay (waiting)\n", "\nto come      ship\n",
		"\ntimers       pay/deadline ", "(in 9m): compensates", "\ncommands     pay: TakePayment to 42, sent ", "was carried out", "0190f5fe-7c00-7a00-8000-000000000001", `daybook saga history checkout "1"`)
	out = d.wantError(exitStuck, `checkout "2" is stuck: dead_letter`, "why", "checkout", "2")
	wantIn(t, out, `checkout "2" is stuck at ship since `, "dead_letter: evil �[31mred�", "\nto do        remove the cause", "\n               daybook saga retry checkout 2 --step ship --reason WHY\n",
		"\nto come      not known: only its definition says\n")
	if strings.Contains(out, "\x1b") {
		t.Errorf("a control character: %q", out)
	}
	var e saga.Explanation
	text := d.wantError(exitStuck, "stuck", "why", "checkout", "3", "--json")
	if err := json.Unmarshal([]byte(text), &e); err != nil || !e.Stuck || e.Reason != saga.ReasonCompensationFailed || e.Problems[0].Commands[1] != "daybook saga mark checkout 3 --step pay --reason WHY" {
		t.Errorf("%v: %+v", err, e)
	}
	wantIn(t, d.run("why", "checkout", "4"), `checkout "4" was completed at `)
	d.wantError(exitRefused, `no instance "5" of "checkout": near it are "3", "4"`, "why", "checkout", "5")
	d.wantError(exitRefused, "no run 2", "why", "checkout", "1", "--run", "2")
	wantIn(t, d.run("history", "checkout", "1"), "AT ", "started", "2026-01-02T12:00:01Z", "action", "a�b", "ann", "because")
	var lines []saga.Entry
	if err := json.Unmarshal([]byte(d.run("history", "checkout", "1", "--json")), &lines); err != nil || len(lines) != 2 || lines[1].Actor != "ann" {
		t.Errorf("%v: %+v", err, lines)
	}
}

func TestSagaList(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out := d.run("list", "checkout")
	wantIn(t, out, "KEY  RUN", "an answer to pay", "dead_letter", "compensation_failed", "completed")
	if n := strings.Count(out, "\n"); n != 5 {
		t.Errorf("%d lines:\n%s", n, out)
	}
	out = d.run("list", "checkout", "--stuck", "--limit", "1")
	wantIn(t, out, "\n2    1", "3h")
	_, token, ok := strings.Cut(lastLine(out), "more: --after ")
	if !ok {
		t.Fatalf("no more:\n%s", out)
	}
	wantIn(t, d.run("list", "checkout", "--stuck", "--after", token), "\n3    1")
	var page saga.Page
	if err := json.Unmarshal([]byte(d.run("list", "checkout", "--stuck", "--older", "2h", "--json")), &page); err != nil || len(page.Sagas) != 1 || page.Sagas[0].Key != "2" {
		t.Errorf("%v: %+v", err, page)
	}
	wantIn(t, d.run("list", "checkout", "--state", "compensated"), "no instances of checkout that fit\n")
	wantIn(t, d.run("list", "checkout", "--stuck"), "see also: daybook deadletter list\n")
	d.wantError(exitRefused, `no saga "chekout"; there is checkout`, "list", "chekout")
	d.wantError(1, "name the saga: daybook saga list SAGA; there is checkout", "list")
	d.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('saga-other', 1, 'saga'), ('saga-other-replies', 1, 'saga')`)
	if out := d.run("list", "other"); out != "no instances of other\n" {
		t.Errorf("%q", out)
	}
	d.wantError(1, "there are checkout, other", "list")
	if _, err := run(t, d.on("list", "checkout", "--schema", "none")...); err == nil || !strings.HasSuffix(err.Error(), "or call postgres.Migrate") {
		t.Errorf("without a store: %v", err)
	}
	d.exec(`UPDATE daybook.sagas SET paused_at = now() WHERE key = '2'`)
	wantIn(t, d.run("list", "checkout", "--reason-is", "paused"), "paused, dead_letter  ship  3h ")
	d.exec(`UPDATE daybook.sagas SET paused_at = NULL`)
	d.wantError(1, "Filter.State", "list", "checkout", "--state", "stuck")
	d.wantError(1, "--state is empty", "list", "checkout", "--state", "")
	d.wantError(1, "--limit", "list", "checkout", "--limit", "0")
	d.exec(`INSERT INTO daybook.timers (queue, name, due_at, visible_at) VALUES ('saga:checkout', 'x', now() - interval '1 hour', now() - interval '1 hour')`)
	out, err := run(t, "status", "--database", d.url)
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, out, "SAGA      RUNNING  COMPENSATING  STUCK  STUCK FOR  PAUSED  OVERDUE TIMERS  OVERDUE FOR\ncheckout  2        1             2      3h         0       1               1h\n",
		"some sagas are stuck: see daybook saga list SAGA --stuck")
	if capped(saga.CountsCap) != "10000+" || capped(9_999) != "9999" {
		t.Error(capped(saga.CountsCap))
	}
}

func TestSagaActionsBecomePlans(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for verb, args := range map[string][]string{
		"retry": {"retry", "checkout", "1"}, "answer": {"answer", "checkout", "1", "--step", "pay", "--event", "paid", "--payload", `{"receipt":"r"}`},
		"cancel": {"cancel", "checkout", "1"}, "mark": {"mark", "checkout", "1", "--step", "pay"}, "pause": {"pause", "checkout", "1"}, "resume": {"resume", "checkout", "1", "--shift"},
	} {
		out := d.run(append(args, "--reason", "it is "+verb, "--actor", "ann")...)
		wantIn(t, out, ": "+verb+" 1 instance of checkout\n", "it waits: no process runs the manager of checkout\n")
		id := strings.TrimSuffix(strings.Fields(out)[1], ":")
		wantIn(t, d.run("plans", id), "plan "+id+": "+verb, "by ann at ", "it is "+verb, "running: 0 of 1 done, 0 refused, 1 left; it waits: no process")
		wantIn(t, d.run("cancel-plan", id, "--reason", "too early"), "cancelled: 0 of 1 done, 0 refused, 1 left")
		d.wantError(exitRefused, "cancelled already", "cancel-plan", id, "--reason", "x")
		wantIn(t, d.run("plans", id), "cancelled by "+whoami(), "too early")
		d.wantError(exitPlan, "is cancelled, with 1 instance left", "plans", id, "--wait")
	}
	var arguments string
	if err := d.pool.QueryRow(t.Context(), `SELECT string_agg(convert_from(arguments, 'UTF8'), ' ' ORDER BY action) FROM daybook.saga_plans`).Scan(&arguments); err != nil ||
		arguments != `{"type":"paid","payload":{"receipt":"r"}} {} {} {} {"shift":true} {}` {
		t.Errorf("%s, %v", arguments, err)
	}
	wantIn(t, d.run("plans", "--saga", "checkout"), "PLAN ", "resume", "cancelled")
	wantIn(t, d.run("plans", "--running"), "no plans")
	wantIn(t, d.run("why", "checkout", "1"), "actions", "by ann: it is retry; cancelled")

	d.wantError(1, "--reason is missing", "retry", "checkout", "1")
	d.wantError(1, "--step is missing", "mark", "checkout", "1", "--reason", "x")
	d.wantError(1, "--step is empty", "retry", "checkout", "1", "--step", "", "--reason", "x")
	d.wantError(1, "not both", "retry", "checkout", "1", "--all-stuck", "--reason", "x")
	d.wantError(1, "HandAnswer.Payload", "answer", "checkout", "1", "--step", "pay", "--event", "paid", "--payload", "{", "--reason", "x")
	d.wantError(exitRefused, "nothing is selected", "retry", "checkout", "--reason", "x")
	d.wantError(exitRefused, "refused: 1 instance has ended", "retry", "checkout", "4", "--reason", "x")
	d.wantError(exitRefused, `no instance "9"`, "retry", "checkout", "9", "--reason", "x")
	d.wantError(exitRefused, "no such plan", "plans", uuid.NewString())
	d.wantError(1, "is not the id of a plan", "plans", "x")
	d.wantError(1, "--wait needs the plan", "plans", "--wait")
	if _, err := run(t, "saga", "wyh", "checkout"); err == nil || !strings.Contains(err.Error(), "wyh") {
		t.Errorf("an unknown command: %v", err)
	}
}

func TestManySagasAreAskedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	args := []string{"retry", "checkout", "--all-stuck", "--reason", "fixed", "--rate", "5"}
	d.wantError(exitRefused, "2 instances are selected, and there is no terminal to ask: give --yes to retry them all", args...)
	_, asked, err := person(t.Context(), "n\n", d.on(args...)...)
	if exitCode(err) != exitRefused || !errors.Is(err, errNotConfirmed) {
		t.Errorf("no: %v", err)
	}
	wantIn(t, asked, "Retry 2 instances of checkout? [y/N]")
	wantIn(t, d.run(append(args, "--dry-run")...), "2 instances of checkout\n", "  2 run 1, running dead_letter ship\n", "nothing was changed")
	wantIn(t, d.run("plans"), "no plans")
	out, _, err := person(t.Context(), "yes\n", d.on(args...)...)
	if err != nil {
		t.Fatal(err)
	}
	wantIn(t, out, ": retry 2 instances of checkout")
	d.wantError(exitRefused, "refused: 1 instance is in a plan that is running: see", "retry", "checkout", "--reason-is", "dead_letter", "--reason", "again")
	var plans []saga.Plan
	if err := json.Unmarshal([]byte(d.run("plans", "--json", "--running")), &plans); err != nil || len(plans) != 1 || plans[0].Rate != 5 || plans[0].Selection != `saga "checkout", stuck` {
		t.Fatalf("%v: %+v", err, plans)
	}
	id := plans[0].ID

	// Who stops waiting is told that the plan goes on.
	ctx, cancel := context.WithCancel(t.Context())
	cmd := command(&settings{out: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), errOut: io.Discard, every: time.Millisecond})
	cmd.SetArgs(d.on("plans", id.String(), "--wait"))
	if err := cmd.ExecuteContext(ctx); exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("interrupted: %v", err)
	}
	// Who waits sees the refusals, and how it ends.
	d.exec(`UPDATE daybook.saga_plan_items SET state = CASE item WHEN 1 THEN 'done' ELSE 'refused' END, result = CASE item WHEN 1 THEN '' ELSE E'no\x1b' END, done_at = now()`)
	d.exec(`UPDATE daybook.saga_plans SET state = 'done', done = 1, refused = 1, ended_at = now()`)
	wantIn(t, d.wantError(exitPlan, "1 of 2 instances refused", "plans", id.String(), "--wait"), "done: 1 of 2 done, 1 refused\nrefused: 3 run 1: no�\n")
	d.exec(`UPDATE daybook.saga_plans SET done = 2, refused = 0`)
	wantIn(t, d.run("plans", id.String(), "--wait"), "how that ends: daybook saga why checkout KEY\n")
}

// What cannot be part of a plan is told of.
func TestAPlanSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.run("retry", "checkout", "2", "--reason", "x")
	wantIn(t, d.run("retry", "checkout", "--all-stuck", "--dry-run"), "2 instances of checkout; left out: 1 instance is in a plan that is running\n")
	wantIn(t, d.run("retry", "checkout", "--all-stuck", "--yes", "--reason", "x"), ": retry 1 instance of checkout\nleft out: 1 instance is in a plan that is running\n")
	wantIn(t, d.run("retry", "checkout", "1", "2", "3", "4", "--dry-run"), "left out: 1 instance has ended, 2 are in plans that are running\n")
}

// Steps and commands by what has become of them.
func TestSagaWhyOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`UPDATE daybook.sagas SET state = 'compensated', progress = '{"steps":[{"name":"stock","state":"undone"},
		{"name":"pay","state":"refused","text":"failed (attempts_exhausted): the bank is away"},{"name":"compensated","state":"done"}]}' WHERE key = '4'`)
	d.exec(`INSERT INTO daybook.saga_commands (command, saga, key, run, step, direction, intent, type, target, content_type, data, closed)
		VALUES (gen_random_uuid(), 'checkout', '4', 1, 'pay', 'do', 1, 'TakePayment', '42', '', '', true)`)
	wantIn(t, d.run("why", "checkout", "4"), "because pay was given up (attempts_exhausted: the bank is away)", "\ndone         -\n", "\ncompensated  stock\n",
		"\nother        pay (given up: attempts_exhausted: the bank is away)\n", "; its step is over, and it is never carried out any more (")
}

// What decides for sagas never falls back to a server that nobody named.
func TestSagasAreNeverChangedInADatabaseThatNobodyNamed(t *testing.T) {
	t.Setenv(pgserver.RunVariable, "")
	d := newDesk(t)
	for _, args := range [][]string{{"retry", "checkout", "1", "--reason", "x"}, {"cancel-plan", uuid.NewString(), "--reason", "x"}} {
		const want = "no database: give --database URL or set DAYBOOK_DATABASE_URL"
		if _, err := runFinding(t, d.url, append([]string{"saga"}, args...)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if out, err := runFinding(t, d.url, "saga", "list", "checkout"); err != nil || !strings.Contains(out, "an answer to pay") {
		t.Errorf("list, which changes nothing: %v\n%s", err, out)
	}
}
