package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/parking"
)

func TestStatusAndHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Fresh: time.Nanosecond})
	if h := w.letters.Health(t.Context()); !h.Ready || h.State != "ok" || h.Reason != "" || len(h.Parts) != 0 {
		t.Errorf("nothing failed: %+v", h)
	}
	orders, bills := w.worker("orders"), w.worker("bills")
	a, b := w.append("a", "x"), w.append("b", "x")
	orders.fail(a, "odd")
	orders.pass(w.append("a", "y"))
	f := orders.failure(b, "odd")
	f.Due = w.base.Add(time.Minute)
	c := orders.set.Change()
	c.Park(f)
	orders.mustCommit(orders.floor, c)
	id := bills.fail(a, "odd")
	must[Plan](t)(w.letters.Redrive(t.Context(), One(id), ann))

	status := must[[]ConsumerStatus](t)(w.letters.Status(t.Context()))
	want := []ConsumerStatus{
		{Consumer: "bills", Version: 1, Parked: 1, Oldest: w.base, OldestParked: w.base, Plans: 1},
		{Consumer: "orders", Version: 1, Parked: 1, Retrying: 1, Queued: 1, Oldest: w.base, OldestParked: w.base},
	}
	if fmt.Sprint(status) != fmt.Sprint(want) {
		t.Errorf("got\n%+v, want\n%+v", status, want)
	}
	h := w.letters.Health(t.Context())
	if !h.Ready || len(h.Parts) != 2 || h.Parts[1].State != "parked" || !h.Parts[1].Ready {
		t.Errorf("not for long: %+v", h)
	}
	w.exec(`UPDATE daybook.parked SET since = clock_timestamp() - interval '2 hours' WHERE consumer = 'orders' AND state = 'parked'`)
	h = w.letters.Health(t.Context())
	if h.Ready || h.State != "parked" || !h.Parts[0].Ready || h.Parts[1].Ready || time.Since(h.Since) < 2*time.Hour {
		t.Errorf("for too long: %+v", h)
	}
	wantText(t, h.Reason, "orders v1: 1 sequences wait for people", "deadletter groups")
	never := must[*Letters](t)(New(w.pool, Config{AlarmAfter: -1}))
	if h := never.Health(t.Context()); !h.Ready {
		t.Errorf("an alarm that was turned off: %+v", h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h := w.letters.Health(ctx); h.Ready || h.State != "unreachable" {
		t.Errorf("without a database: %+v", h)
	}
}

// Scrapes and probes within a moment share one query.
func TestStatusIsAskedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Fresh: time.Hour})
	k := w.worker("orders")
	if s := must[[]ConsumerStatus](t)(w.letters.Status(t.Context())); len(s) != 0 {
		t.Fatalf("%+v", s)
	}
	k.fail(w.append("a", "x"), "odd")
	if s := must[[]ConsumerStatus](t)(w.letters.Status(t.Context())); len(s) != 0 {
		t.Errorf("asked again: %+v", s)
	}
	fresh := must[*Letters](t)(New(w.pool, Config{}))
	if s := must[[]ConsumerStatus](t)(fresh.Status(t.Context())); len(s) != 1 {
		t.Errorf("another asks for itself: %+v", s)
	}
}

func TestPruneLeavesWhatIsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	open := k.fail(w.append("open", "x"), "odd")
	var closed []uuid.UUID
	for i := range 3 {
		closed = append(closed, k.fail(w.append(fmt.Sprint(i), "x"), "odd"))
	}
	for _, id := range closed {
		w.discard(id)
	}
	k.take()
	p := must[Plan](t)(w.letters.Redrive(t.Context(), One(open), ann))
	w.exec(`UPDATE daybook.letters SET closed_at = closed_at - interval '8 days' WHERE letter = ANY($1)`, closed[:2])
	// Damaged by hand: an open letter with a time of closing is still open.
	w.exec(`UPDATE daybook.letters SET closed_at = '1970-01-01' WHERE letter = $1`, open)
	if n := must[int64](t)(w.letters.Prune(t.Context(), 7*24*time.Hour)); n != 2 {
		t.Errorf("%d were removed, want 2", n)
	}
	for i, id := range append(closed, open) {
		_, err := w.letters.Show(t.Context(), id)
		if gone := err != nil; gone != (i < 2) {
			t.Errorf("letter %d: %v", i, err)
		}
	}
	if n := must[int64](t)(w.letters.Prune(t.Context(), 0)); n != 1 {
		t.Errorf("%d were removed, want the last closed one", n)
	}
	if n := get[int](w, `SELECT count(*)::int FROM daybook.redrives`); n != 1 {
		t.Error("a running plan was removed")
	}
	if err := w.letters.Cancel(t.Context(), p.ID, ann); err != nil {
		t.Fatal(err)
	}
	must[int64](t)(w.letters.Prune(t.Context(), 0))
	if n := get[int](w, `SELECT count(*)::int FROM daybook.redrives`); n != 0 {
		t.Error("a plan that ended was left")
	}
	if n := get[int](w, `SELECT count(*)::int FROM daybook.letter_actions`); n != 5 {
		t.Errorf("%d actions are on record, want 3 discards, a redrive and a cancel", n)
	}
	if _, err := w.letters.Prune(t.Context(), -1); err == nil {
		t.Error("an age below 0")
	}
}

// More than one batch, several processes at once: all goes, and each letter once.
func TestPruneInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.worker("orders")
	const all = 2*pruneBatch + 10
	w.fill("orders", all, "applied", "clock_timestamp() - interval '31 days'")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var total int64
	for range 4 {
		wg.Go(func() {
			n, err := w.letters.Prune(t.Context(), 30*24*time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if total += n; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	total += must[int64](t)(w.letters.Prune(t.Context(), 30*24*time.Hour)) // who met another at work leaves it the rest
	if total != all || get[int](w, `SELECT count(*)::int FROM daybook.letters`) != 0 {
		t.Errorf("%d of %d were removed", total, all)
	}
}

// fill makes letters by SQL, in 20 groups of three types, each of its own sequence.
func (w *world) fill(consumer string, n int, state, closedAt string) {
	w.t.Helper()
	w.exec(fmt.Sprintf(`
INSERT INTO daybook.letters (letter, consumer, version, sequence, partition, position, state, kind, attempts, round, fingerprint, errors, first_errors,
    first_failed_at, last_failed_at, handler, program, closed_at, id, stream_id, stream_version, type, schema_version, flags, content_type, tenant,
    correlation_id, causation_id, actor, headers, data, recorded_at)
SELECT gen_random_uuid(), $1, 1, 'order-' || i, i %% 64, 1000 + i, $2, CASE i %% 2 WHEN 0 THEN 'transient' ELSE 'permanent' END, 1, 1, lpad((i %% 20)::text, 16, '0'),
    ARRAY['book order-' || i || ': no such account', 'no such account'], ARRAY['no such account'],
    at, at + i * interval '1 ms', 'orders', 'shop@v1', %s, gen_random_uuid(), 'order-' || i, 1, 'order.type' || i %% 3, 1, 0, 'text/plain', '',
    '', '', '', '', convert_to('payload ' || i, 'UTF8'), at
  FROM generate_series(1, $3::int) i, (SELECT clock_timestamp() - interval '1 day' AS at) x`, closedAt), consumer, state, n)
}

// Run removes what is old, says when something waits for too long and when that is over, and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	var log livetest.Lines
	w := newWorld(t, Config{Fresh: time.Nanosecond, Every: 5 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	k := w.worker("orders")
	w.fill("orders", 3, "applied", "clock_timestamp() - interval '31 days'")
	e := w.append("a", "x")
	id := k.fail(e, "odd")
	w.exec(`UPDATE daybook.parked SET since = clock_timestamp() - interval '2 hours'`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.letters.Run(ctx) }()
	says(t, &log, "sequences wait for people")
	w.until("old letters are removed", `SELECT count(*) = 1 FROM daybook.letters`)
	c := k.set.Change()
	l := must[parking.Letter](t)(parking.OpenLetter(ctx, w.pool, k.owner, parking.Key{Sequence: e.PartitionKey}))
	c.Applied(l, w.base)
	c.Release(l.Key)
	k.mustCommit(k.floor, c)
	says(t, &log, "for too long any more")
	w.exec(`ALTER TABLE daybook.letters RENAME TO hidden`)
	says(t, &log, "old dead letters cannot be removed")
	w.exec(`ALTER TABLE daybook.hidden RENAME TO letters`)
	says(t, &log, "are removed again")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), `msg="sequences wait for people"`); n != 1 {
		t.Errorf("%d alarms for one thing that waits", n)
	}
	must[Detail](t)(w.letters.Show(t.Context(), id))
}

// says waits until a text is in the log.
func says(t testing.TB, log *livetest.Lines, text string) {
	t.Helper()
	livetest.Eventually(t, "the log says "+text, func() bool { return strings.Contains(log.String(), text) }, log.String)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(nil, Config{Retention: -1, Every: -1, Fresh: -1, Timeout: -1, Schema: "a\x00"})
	if err == nil {
		t.Fatal("accepted")
	}
	wantText(t, err.Error(), "pool is nil", "Config.Retention", "Config.Every", "Config.Fresh", "Config.Timeout", "Config.Schema")
	w := newWorld(t, Config{Schema: "Not There"})
	_, err = w.letters.List(t.Context(), Filter{})
	if err == nil {
		t.Fatal("a schema that is not there")
	}
	wantText(t, err.Error(), `schema "Not There"`, "daybook migrate")
}
