package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/parking"
	"github.com/daybook-go/daybook/internal/pgserver"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// person is somebody at a terminal, who answers.
func person(ctx context.Context, answer string, args ...string) (out, errOut string, err error) {
	var o, e bytes.Buffer
	s := &settings{in: strings.NewReader(answer), out: &o, errOut: &e, terminal: func() bool { return true }, every: 5 * time.Millisecond}
	cmd := command(s)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

// failed are letters as the owner of a consumer writes them: the rows of parked and letters, and no owner.
type failed struct {
	t     *testing.T
	pool  *pgxpool.Pool
	url   string
	owner parking.Owner
	set   *parking.Set
	ids   []uuid.UUID
}

func letters(t *testing.T, payloads ...string) *failed {
	t.Helper()
	pool := postgrestest.New(t)
	f := &failed{t: t, pool: pool, url: postgrestest.URL(pool), owner: parking.Owner{Schema: "daybook", Consumer: "orders", Version: 1}}
	f.exec(`INSERT INTO daybook.consumers (consumer, version, kind) VALUES ('orders', 1, 'projection')`)
	f.exec(`INSERT INTO daybook.segments (consumer, version, segment, first_partition, last_partition) VALUES ('orders', 1, 0, 0, 63)`)
	f.load()
	for i, payload := range payloads {
		f.park(int64(i+1), fmt.Sprintf("order-%d", i+1), payload, fmt.Sprintf("no such account %d", i+1))
	}
	return f
}

func (f *failed) load() {
	f.t.Helper()
	set, err := parking.Load(f.t.Context(), f.pool, f.owner, 0, 63)
	if err != nil {
		f.t.Fatal(err)
	}
	f.set = set
}

func (f *failed) park(position int64, sequence, payload, cause string) {
	f.t.Helper()
	stream, err := eventstore.ParseStreamID(sequence)
	if err != nil {
		f.t.Fatal(err)
	}
	at := eventstore.PositionAt(position)
	c := f.set.Change()
	c.Park(parking.Failure{
		Message: eventstore.RecordedEvent{
			EventData: eventstore.EventData{ID: uuid.New(), Type: "order.paid", SchemaVersion: 1, ContentType: "text/plain", Data: []byte(payload)},
			Stream:    stream, Version: 1, Position: at, PartitionKey: sequence, RecordedAt: time.Now(),
		},
		Kind: eventstore.Permanent, Handler: "orders", At: time.Now(), Err: fmt.Errorf("orders: book: %w", errors.New(cause)),
	})
	f.commit(c)
	f.ids = append(f.ids, parking.LetterID(f.owner, "", at))
}

func (f *failed) commit(c *parking.Changes) {
	f.t.Helper()
	var b pgx.Batch
	c.Queue(&b)
	if err := f.pool.SendBatch(f.t.Context(), &b).Close(); err != nil {
		f.t.Fatal(err)
	}
	c.Committed(time.Now())
}

func (f *failed) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *failed) state(id uuid.UUID) string {
	f.t.Helper()
	var state string
	if err := f.pool.QueryRow(f.t.Context(), `SELECT state FROM daybook.letters WHERE letter = $1`, id).Scan(&state); err != nil {
		f.t.Fatal(err)
	}
	return state
}

// on adds the database to what is run.
func (f *failed) on(args ...string) []string {
	return append(append([]string{"deadletter"}, args...), "--database", f.url)
}

func (f *failed) run(args ...string) string {
	f.t.Helper()
	out, err := run(f.t, f.on(args...)...)
	if err != nil {
		f.t.Errorf("%v: %v", args, err)
	}
	return out
}

func (f *failed) wantError(code int, text string, args ...string) {
	f.t.Helper()
	out, err := run(f.t, f.on(args...)...)
	if err == nil || exitCode(err) != code || !strings.Contains(err.Error(), text) {
		f.t.Errorf("%v: %v (exit %d), want %q (exit %d)\n%s", args, err, exitCode(err), text, code, out)
	}
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("lacks %q:\n%s", p, text)
		}
	}
}

func TestDeadLettersAreListedWithoutTheirPayloads(t *testing.T) {
	t.Parallel()
	f := letters(t, "secret", "secret", "secret")
	f.park(9, "order-9", "secret", "evil \x1b[31mred\n")
	out := f.run("list")
	wantIn(t, out, "LETTER", f.ids[0].String(), "orders v1", "order-1", "parked", "permanent", "order.paid", "orders: book: no such account 1", `evil �[31mred`)
	if n := strings.Count(out, "\n"); n != 5 || strings.Contains(out, "\x1b") {
		t.Errorf("%d lines, or a control character:\n%s", n, out)
	}
	if out = f.run("list", "--limit", "2"); strings.Count(out, "\n") != 4 {
		t.Errorf("a page:\n%s", out)
	}
	_, token, ok := strings.Cut(lastLine(out), "more: --after ")
	if !ok {
		t.Fatalf("a page without its end:\n%s", out)
	}
	wantIn(t, f.run("list", "--after", token), f.ids[2].String(), f.ids[3].String())

	var page deadletter.Page
	text := f.run("list", "--json", "--sequence", "order-2", "--consumer", "orders")
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Letters) != 1 || page.Letters[0].ID != f.ids[1] {
		t.Errorf("%v: %s", err, text)
	}
	for _, out := range []string{text, f.run("list", "--json"), f.run("groups"), f.run("groups", "--json"), f.run("status")} {
		if strings.Contains(out, "secret") || strings.Contains(out, "c2VjcmV0") {
			t.Errorf("shows the payload:\n%s", out)
		}
	}
	wantIn(t, f.run("list", "--since", "1h", "--until", "0s", "--type", "order.paid"), f.ids[0].String())
	wantIn(t, f.run("list", "--until", "1h"), "no letters")
	wantIn(t, f.run("groups", "--consumer", "orders"), "GROUP", "orders v1  3 ", "no such account 3")
	wantIn(t, f.run("status"), "CONSUMER", "orders v1  0         4 ")
	f.wantError(1, "--since", "list", "--since", "yesterday")
	f.wantError(1, "name the consumer", "list", "--sequence", "x")
	f.wantError(1, "Filter.State", "list", "--state", "dead")
}

func TestShowIsSafeForATerminal(t *testing.T) {
	t.Parallel()
	f := letters(t, "plain text, ä\n", "\x00\x01\xffbinary", "evil \x1b[31m", strings.Repeat("ä", 40_000))
	wantIn(t, f.run("show", f.ids[0].String()), "orders v1", "permanent", "no such account 1", "order-1 version 1", "\n15 bytes:\nplain text, ä\n")
	wantIn(t, f.run("show", f.ids[1].String()), "00000000  00 01 ff 62 69 6e 61 72  79 ")
	wantIn(t, f.run("show", f.ids[2].String()), "00000000  65 76 69 6c 20 1b")
	wantIn(t, f.run("show", f.ids[3].String()), "80000 bytes:\n", "äää\n… 14464 bytes more: --raw FILE has them all\n")

	if out := f.run("show", f.ids[1].String(), "--raw", "-"); out != "\x00\x01\xffbinary" {
		t.Errorf("raw: %q", out)
	}
	file := filepath.Join(t.TempDir(), "letter")
	f.run("show", f.ids[1].String(), "--raw", file)
	data, err := os.ReadFile(file)
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || string(data) != "\x00\x01\xffbinary" || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %q, %v: %v, %v", data, info.Mode(), err, err2)
	}
	f.wantError(1, "exists", "show", f.ids[1].String(), "--raw", file)

	var got struct {
		ID   uuid.UUID
		Data []byte
	}
	if err := json.Unmarshal([]byte(f.run("show", f.ids[1].String(), "--json")), &got); err != nil || got.ID != f.ids[1] || string(got.Data) != "\x00\x01\xffbinary" {
		t.Errorf("JSON: %+v, %v", got, err)
	}
	f.wantError(exitRefused, "not found", "show", uuid.NewString())
	f.wantError(1, "is not the id of a letter", "show", "1")
}

// What changes letters never falls back to a server that nobody named.
func TestDeadLettersAreNeverChangedInADatabaseThatNobodyNamed(t *testing.T) {
	t.Setenv(pgserver.RunVariable, "")
	f := letters(t, "x")
	id := f.ids[0].String()
	for _, args := range [][]string{{"redrive", id}, {"discard", id, "--reason", "x"}, {"undo", id}, {"cancel", uuid.NewString()}} {
		const want = "no database: give --database URL or set DAYBOOK_DATABASE_URL"
		if _, err := runFinding(t, f.url, append([]string{"deadletter"}, args...)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if out, err := runFinding(t, f.url, "deadletter", "list"); err != nil || !strings.Contains(out, id) {
		t.Errorf("list, which changes nothing: %v\n%s", err, out)
	}
	t.Setenv(pgserver.RunVariable, f.url)
	if _, err := runFinding(t, f.url, "deadletter", "discard", id, "--reason", "x"); err != nil || f.state(f.ids[0]) != "discarded" {
		t.Errorf("discard with the variable: %v, %s", err, f.state(f.ids[0]))
	}
}

func TestMoreThanOneLetterIsAskedFor(t *testing.T) {
	t.Parallel()
	f := letters(t, "x", "x", "x")
	discard := []string{"discard", "--consumer", "orders", "--reason", "never mind"}
	all := f.on(discard...)
	f.wantError(exitRefused, "3 letters are selected, and there is no terminal to ask: give --yes to discard them all", discard...)
	for _, answer := range []string{"n\n", "\n", "", "yess\n"} {
		_, asked, err := person(t.Context(), answer, all...)
		if exitCode(err) != exitRefused || !errors.Is(err, errNotConfirmed) {
			t.Errorf("%q: %v", answer, err)
		}
		wantIn(t, asked, "Discard 3 letters of orders v1, with 0 messages queued behind them? [y/N]")
	}
	wantIn(t, f.run(append(discard, "--dry-run")...), "3 letters of orders v1", f.ids[0].String(), "nothing was changed")
	if f.state(f.ids[0]) != "parked" {
		t.Error("something was changed")
	}
	f.wantError(1, "--reason is missing", "discard", f.ids[0].String())
	f.wantError(exitRefused, "nothing is selected", "discard", "--reason", "x")
	f.wantError(1, "not both", "discard", f.ids[0].String(), "--consumer", "orders", "--reason", "x")
	f.wantError(1, "closed letters", "discard", "--consumer", "orders", "--state", "closed", "--reason", "x")

	// Ctrl-C at the question.
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	var errOut bytes.Buffer
	cmd := command(&settings{in: r, out: io.Discard, errOut: writerFunc(func(p []byte) (int, error) { cancel(); return errOut.Write(p) }), terminal: func() bool { return true }})
	cmd.SetArgs(all)
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, errNotConfirmed) {
		t.Errorf("Ctrl-C: %v", err)
	}

	out, _, err := person(t.Context(), "Yes\n", all...)
	if err != nil || !strings.Contains(out, "discarded 3 letters") || f.state(f.ids[2]) != "discarded" {
		t.Errorf("%v\n%s", err, out)
	}
	wantIn(t, f.run("list", "--state", "closed"), "discarded")
	wantIn(t, f.run("show", f.ids[0].String()), "by "+whoami(), "never mind")
	wantIn(t, f.run("undo", f.ids[0].String(), "--actor", "ann", "--reason", "a slip"), "waits again")
	wantIn(t, f.run("show", f.ids[0].String()), "undo by ann: a slip", "parked, 0 queued")
	f.wantError(exitRefused, "not discarded", "undo", f.ids[0].String())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRedriveAndItsPlans(t *testing.T) {
	t.Parallel()
	f := letters(t, "x", "x", "x")
	out := f.run("redrive", "--consumer", "orders", "--yes", "--rate", "10", "--canary", "1", "--max-failures", "0", "--reason", "fixed")
	id, ok := strings.CutPrefix(strings.Fields(out)[1], "")
	id = strings.TrimSuffix(id, ":")
	if !ok || !strings.Contains(out, "3 letters of orders v1") {
		t.Fatalf("redrive: %s", out)
	}
	wantIn(t, f.run("plans"), id, "running", "waits: no process works on orders v1", `consumer "orders", state "parked"`)
	wantIn(t, f.run("plans", id), "by "+whoami(), "fixed", "0 of 3 succeeded, 0 failed, 3 left, 1 of them before the others begin")
	var plan deadletter.Plan
	if err := json.Unmarshal([]byte(f.run("plans", id, "--json")), &plan); err != nil || plan.Rate != 10 || plan.Canary != 1 || plan.MaxFailures != 0 {
		t.Errorf("%v: %+v", err, plan)
	}
	f.wantError(exitRefused, id, "redrive", f.ids[0].String())
	f.wantError(exitRefused, "3 in plans that are running", "redrive", "--consumer", "orders", "--yes")
	f.wantError(exitRefused, "not found", "redrive", "--group", "none")
	f.wantError(1, "--max-failures", "redrive", f.ids[0].String(), "--max-failures", "-1")
	f.wantError(1, "--wait needs the plan", "plans", "--wait")
	for _, unknown := range []string{uuid.Nil.String(), uuid.NewString()} {
		f.wantError(exitRefused, unknown, "plans", unknown, "--wait")
		f.wantError(exitRefused, unknown, "plans", unknown)
		f.wantError(exitRefused, unknown, "cancel", unknown)
	}

	// Who stops waiting is told that the plan goes on.
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	cmd := command(&settings{out: writerFunc(func(p []byte) (int, error) { cancel(); return said.Write(p) }), errOut: io.Discard, every: time.Millisecond})
	cmd.SetArgs(f.on("plans", id, "--wait"))
	if err := cmd.ExecuteContext(ctx); exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("interrupted: %v", err)
	}
	wantIn(t, f.run("cancel", id, "--reason", "too early"), "cancelled: 0 of 3 succeeded")
	f.wantError(exitRefused, "cancelled already", "cancel", id)
	f.wantError(exitPlan, "is cancelled, 3 letters were not tried", "plans", id, "--wait")
	wantIn(t, f.run("plans", "--running"), "no plans")
}

// A plan that is waited for makes the exit code: what failed again is named.
func TestWaitEndsWithThePlan(t *testing.T) {
	t.Parallel()
	f := letters(t, "x", "x")
	tried := func(outcomes ...string) {
		for i := 0; i < len(outcomes); {
			look, err := parking.LookFor(f.t.Context(), f.pool, f.owner, 0, 0, 63, time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			if len(look.Items) == 0 { // the plan is not there yet
				continue
			}
			c := f.set.Change()
			c.Begin(look.Items[0], time.Now())
			c.End(look.Items[0], outcomes[i], time.Now())
			f.commit(c)
			i++
		}
	}
	go tried(parking.ItemSucceeded, parking.ItemFailed)
	out, _, err := person(t.Context(), "", f.on("redrive", "--consumer", "orders", "--yes", "--wait")...)
	if exitCode(err) != exitPlan || !strings.Contains(out, "stopped: 1 of 2 succeeded, 1 failed\nfailed again: letter "+f.ids[1].String()+", sequence order-2: orders: book: no such account 2") {
		t.Errorf("%v\n%s", err, out)
	}
	go tried(parking.ItemSucceeded)
	if out, _, err := person(t.Context(), "", f.on("redrive", f.ids[0].String(), "--wait")...); err != nil || !strings.HasSuffix(out, "done: 1 of 1 succeeded, 0 failed\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Who waits for a plan that is stopped also waits for what of it had begun, and nothing of that is called not tried.
func TestWaitEndsWithWhatHasBegun(t *testing.T) {
	t.Parallel()
	f := letters(t, "x", "x", "x")
	id := strings.TrimSuffix(strings.Fields(f.run("redrive", "--consumer", "orders", "--yes"))[1], ":")
	look, err := parking.LookFor(t.Context(), f.pool, f.owner, 0, 0, 63, time.Now())
	if err != nil || len(look.Items) != 3 {
		t.Fatalf("%+v, %v", look, err)
	}
	again := look.Items[0]
	letter, err := parking.OpenLetter(t.Context(), f.pool, f.owner, again.Key)
	if err != nil {
		t.Fatal(err)
	}
	failure := parking.Failure{Message: letter.Message, Kind: eventstore.Transient, Handler: "orders", At: time.Now(), Err: errors.New("away"), Due: time.Now().Add(time.Hour)}
	c := f.set.Change()
	c.Begin(again, time.Now())
	c.Failed(letter, failure, true)
	c.Begin(look.Items[1], time.Now())
	c.End(look.Items[1], parking.ItemFailed, time.Now())
	f.commit(c)
	wantIn(t, f.run("plans", id), "stopped: 0 of 3 succeeded, 1 failed, 1 being tried again, 1 left, time left: waits: no process works on orders v1")

	var said bytes.Buffer
	ended := false
	cmd := command(&settings{errOut: io.Discard, every: time.Millisecond, out: writerFunc(func(p []byte) (int, error) {
		if said.Write(p); !ended { // it waits: the last attempt ends now
			ended = true
			failure.Due = time.Time{}
			c := f.set.Change()
			c.Failed(letter, failure, false)
			c.End(again, parking.ItemFailed, time.Now())
			f.commit(c)
		}
		return len(p), nil
	})})
	cmd.SetArgs(f.on("plans", id, "--wait"))
	err = cmd.ExecuteContext(t.Context())
	if exitCode(err) != exitPlan || !strings.Contains(err.Error(), "is stopped, 1 letter was not tried") {
		t.Errorf("%v (exit %d)", err, exitCode(err))
	}
	wantIn(t, said.String(), "1 being tried again, 1 left", "stopped: 0 of 3 succeeded, 2 failed, 1 left\nfailed again: letter "+letter.ID.String())
}

// One is not many.
func TestOneLetterIsNotLetters(t *testing.T) {
	t.Parallel()
	f := letters(t, "x")
	wantIn(t, f.run("discard", f.ids[0].String(), "--reason", "x", "--dry-run"), "1 letter of orders v1, with 0 messages queued")
	wantIn(t, f.run("redrive", f.ids[0].String()), ": 1 letter of orders v1\n")
	wantIn(t, f.run("discard", f.ids[0].String(), "--reason", "x"), "discarded 1 letter;")
}

// The null device, which cron gives programs, is no terminal, though it is a character device.
func TestTheNullDeviceIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if isTerminal(null) {
		t.Error("somebody is asked there")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fmt.Errorf("x: %w", deadletter.ErrRefused), 2},
		{fmt.Errorf("x: %w", deadletter.ErrNotFound), 2},
		{fmt.Errorf("x: %w", &exitError{exitPlan, errors.New("y")}), 3},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	_, err := run(t, "deadletter", "list", "--database", postgrestest.URL(postgrestest.Empty(t)))
	if err == nil || !strings.Contains(err.Error(), "daybook migrate") {
		t.Errorf("without a store: %v", err)
	}
}

// A script whose variable is not set does not act on everything else instead.
func TestAFlagWithoutItsValueSelectsNothing(t *testing.T) {
	t.Parallel()
	f := letters(t, "one", "two")
	for _, flag := range []string{"sequence", "group", "topic", "type", "kind", "state", "since", "until"} {
		for _, verb := range []string{"discard", "redrive"} {
			f.wantError(1, "--"+flag+" is empty", verb, "--consumer", "orders", "--"+flag+"=", "--yes", "--reason", "x")
		}
	}
	f.wantError(1, "--consumer is empty", "groups", "--consumer", "")
}

// A command that does not exist has not been carried out.
func TestAnUnknownCommandIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := run(t, "deadletter", "discrad", "5a0c1a3e-6a52-5f0e-9d0c-0d7b3c0f6b11"); err == nil || !strings.Contains(err.Error(), "discrad") {
		t.Errorf("the error is %v", err)
	}
}
