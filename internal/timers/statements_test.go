package timers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/timers"
)

func namesOf(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return value[string](t, pool, `SELECT coalesce(string_agg(queue || '/' || name, ' ' ORDER BY queue, name), '') FROM daybook.timers`)
}

// affected sends a statement and returns its tag's count.
func affected(t testing.TB, db timers.DB, add func(b *pgx.Batch) *pgx.QueuedQuery) int64 {
	t.Helper()
	var n int64
	send(t, db, func(b *pgx.Batch) {
		add(b).Exec(func(tag pgconn.CommandTag) error {
			n = tag.RowsAffected()
			return nil
		})
	})
	return n
}

// What the statements do shows without a runner, in one database: each begins with no timers.
func TestStatements(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *pgxpool.Pool)
	}{
		{"lease known answer", leaseKnownAnswer},
		{"takeover known answer", takeoverKnownAnswer},
		{"polling known answer", pollingKnownAnswer},
		{"held leaves out what is gone", heldLeavesOutWhatIsGone},
		{"cancel is idempotent", cancelIsIdempotent},
		{"cancel waits for a handler", cancelWaitsForAHandler},
		{"setting anew replaces", settingAnewReplaces},
		{"same name is another timer", sameNameIsAnotherTimer},
		{"prefixes", prefixes},
		{"shift", shift},
		{"times are cut off", timesAreCutOff},
		{"spread", spread},
		{"overdue counts what is overdue", overdueCountsWhatIsOverdue},
		{"ahead cuts no lease", aheadCutsNoLease},
	} {
		execute(t, pool, `DELETE FROM daybook.timers`)
		t.Run(c.name, func(t *testing.T) { c.test(t, pool) })
	}
}

// R-ST05: an unknown name, a name twice, a timer that is being handled: no error, and the number tells.
func cancelIsIdempotent(t *testing.T, pool *pgxpool.Pool) {
	cancel := func(names ...string) int64 {
		return affected(t, pool, func(b *pgx.Batch) *pgx.QueuedQuery { return timers.Cancel(b, schema, queue, names) })
	}
	set(t, pool, at(0), timers.Setting{Name: "a"}, timers.Setting{Name: "b"}, timers.Setting{Queue: "other", Name: "a"})
	if n := cancel(); n != 0 {
		t.Errorf("no name: %d", n)
	}
	if n := cancel("unknown"); n != 0 {
		t.Errorf("an unknown name: %d", n)
	}
	if n := cancel("a", "a", "unknown"); n != 1 {
		t.Errorf("a name twice: %d", n)
	}
	if n := cancel("a"); n != 0 {
		t.Errorf("again: %d", n)
	}
	claimed := claim(t, pool, "A", at(1), time.Minute)
	if n := cancel("b"); n != 1 {
		t.Errorf("while it is handled: %d", n)
	}
	if err := finish(pool, claimed...); !timers.Lost(err) {
		t.Errorf("its handler finishes: %v", err)
	}
	if left := namesOf(t, pool); left != "other/a" {
		t.Errorf("left are %s", left)
	}
}

// A transaction that finishes a timer has it locked: who cancels meanwhile waits, and finds nothing.
func cancelWaitsForAHandler(t *testing.T, pool *pgxpool.Pool) {
	set(t, pool, at(0), timers.Setting{Name: "a"})
	claimed := claim(t, pool, "A", at(1), time.Minute)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if held, err := timers.Held(t.Context(), tx, schema, claimed); err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	// Renewals and claims do not wait for it.
	if held, err := timers.Renew(t.Context(), pool, schema, at(30), time.Minute, claimed); err != nil || len(held) != 1 {
		t.Errorf("renewed are %v, %v", held, err)
	}
	if taken := claim(t, pool, "B", at(90), time.Minute); len(taken) != 0 {
		t.Errorf("taken over from a transaction: %v", taken)
	}
	gone := make(chan int64, 1)
	go func() {
		gone <- affected(t, pool, func(b *pgx.Batch) *pgx.QueuedQuery { return timers.Cancel(b, schema, queue, []string{"a"}) })
	}()
	eventually(t, "the canceller waits", func() bool {
		return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE%timers%' AND datname = current_database())`)
	})
	if err := finish(tx, claimed...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-gone; n != 0 {
		t.Errorf("cancelled %d", n)
	}
}

// R-ST06: set twice in one statement, one transaction and two, and once in one that rolls back. It fires once, at the last time.
func settingAnewReplaces(t *testing.T, pool *pgxpool.Pool) {
	due := func() float64 {
		return value[time.Time](t, pool, `SELECT due_at FROM daybook.timers`).Sub(second0).Seconds()
	}
	set(t, pool, at(0), timers.Setting{Name: "reminder", After: 2 * time.Second}, timers.Setting{Name: "reminder", After: 4 * time.Second})
	if due() != 4 {
		t.Errorf("in one statement: due at %g", due())
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set(t, tx, at(0), timers.Setting{Name: "reminder", After: 2 * time.Second})
	set(t, tx, at(0), timers.Setting{Name: "reminder", After: 5 * time.Second})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if due() != 5 {
		t.Errorf("in one transaction: due at %g", due())
	}
	if tx, err = pool.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(t, tx, at(0), timers.Setting{Name: "reminder", After: 9 * time.Second})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(t, pool, at(1), timers.Setting{Name: "reminder", After: 6 * time.Second, Does: "reminds", Payload: []byte{1}})
	old := claim(t, pool, "A", at(8), time.Minute)
	if len(old) != 1 || old[0].Due.Sub(second0) != 7*time.Second || old[0].Does != "reminds" || len(old[0].Payload) != 1 {
		t.Fatalf("claimed %+v", old)
	}
	set(t, pool, at(9), timers.Setting{Name: "reminder", After: time.Second})
	if err := finish(pool, old...); !timers.Lost(err) {
		t.Errorf("the claim of one that was set anew finishes: %v", err)
	}
	again := claim(t, pool, "A", at(10), time.Minute)
	if len(again) != 1 || again[0].Token <= old[0].Token || again[0].Attempts != 0 || again[0].Does != "" || len(again[0].Payload) != 0 {
		t.Fatalf("claimed %+v", again)
	}
	if err := finish(pool, again...); err != nil {
		t.Fatal(err)
	}
	if left := claim(t, pool, "A", at(100), time.Minute); len(left) != 0 {
		t.Errorf("it fires again: %v", left)
	}
}

// Cancelled and set again while it is handled: the token of the new one is that of the old one, and fences all the same. And
// who finishes a timer may set the next of its name in the same transaction.
func sameNameIsAnotherTimer(t *testing.T, pool *pgxpool.Pool) {
	set(t, pool, at(0), timers.Setting{Name: "x"})
	old := claim(t, pool, "A", at(1), time.Minute)
	send(t, pool, func(b *pgx.Batch) {
		timers.Cancel(b, schema, queue, []string{"x"})
		timers.Set(b, schema, at(1), []timers.Setting{{Queue: queue, Name: "x"}})
	})
	next := claim(t, pool, "B", at(2), time.Minute)
	if len(next) != 1 || next[0].Token != old[0].Token || next[0].ID == old[0].ID {
		t.Fatalf("claimed %+v, before it %+v", next, old)
	}
	if err := finish(pool, old...); !timers.Lost(err) {
		t.Errorf("the old one finishes: %v", err)
	}
	send(t, pool, func(b *pgx.Batch) {
		timers.Finish(b, schema, next)
		timers.Set(b, schema, nil, []timers.Setting{{Queue: queue, Name: "x", From: next[0].Due, After: time.Minute}})
	})
	if due := value[time.Time](t, pool, `SELECT due_at FROM daybook.timers`); !due.Equal(next[0].Due.Add(time.Minute)) {
		t.Errorf("the next is due at %s, the last was at %s", due, next[0].Due)
	}
}

func prefixes(t *testing.T, pool *pgxpool.Pool) {
	all := []string{"4", "42", "42/", "42/a", "42/%", "42/_", "42/\u00e9", "42/\U0010FFFD", "420", "43", "42퟿", "42\ue000", "é/1", "ê/1"}
	for _, c := range []struct{ prefix string }{{"42/"}, {"42"}, {"4"}, {"42/%"}, {"42퟿"}, {"é/"}, {"é"}, {""}, {"nothing"}, {"42/\U0010FFFD"}} {
		execute(t, pool, `DELETE FROM daybook.timers`)
		var settings []timers.Setting
		want := 0
		for _, name := range all {
			settings = append(settings, timers.Setting{Name: name})
			if strings.HasPrefix(name, c.prefix) {
				want++
			}
		}
		set(t, pool, at(0), append(settings, timers.Setting{Queue: "other", Name: c.prefix + "x"})...)
		list, err := timers.List(t.Context(), pool, schema, queue, c.prefix, 100)
		if err != nil || len(list) != want {
			t.Errorf("%q: %d are listed, want %d: %v", c.prefix, len(list), want, err)
		}
		if n := affected(t, pool, func(b *pgx.Batch) *pgx.QueuedQuery { return timers.CancelPrefix(b, schema, queue, c.prefix) }); n != int64(want) {
			t.Errorf("%q: %d were cancelled, want %d", c.prefix, n, want)
		}
		if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE queue = $1 AND starts_with(name, $2)`, queue, c.prefix); n != 0 {
			t.Errorf("%q: %d are left", c.prefix, n)
		}
		if n := count(t, pool, "daybook.timers"); n != len(all)-want+1 {
			t.Errorf("%q: %d others are left", c.prefix, n)
		}
	}
}

// After a pause of an hour: what waits, what waits for another attempt, and what is claimed.
func shift(t *testing.T, pool *pgxpool.Pool) {
	set(t, pool, at(0), timers.Setting{Name: "i/claimed", After: 10 * time.Second}, timers.Setting{Name: "i/retried", After: 11 * time.Second},
		timers.Setting{Name: "i/waits", After: 20 * time.Second}, timers.Setting{Name: "j", After: 20 * time.Second})
	claimed := claim(t, pool, "A", at(12), time.Minute)
	send(t, pool, func(b *pgx.Batch) {
		timers.Retry(b, schema, at(13), []timers.Failure{{Timer: claimed[1], After: 5 * time.Second, Err: errors.New("no\x00t yet")}})
	})
	send(t, pool, func(b *pgx.Batch) { timers.Shift(b, schema, queue, "i/", time.Hour) })
	if err := finish(pool, claimed[0]); !timers.Lost(err) {
		t.Errorf("what was claimed before finishes: %v", err)
	}
	list, err := timers.List(t.Context(), pool, schema, queue, "i/", 10)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("%s due %g visible %g attempts %d %s%s", p.Name, p.Due.Sub(second0).Seconds(), p.Visible.Sub(second0).Seconds(), p.Attempts, p.Error, p.Owner))
	}
	want := []string{"i/claimed due 3610 visible 3610 attempts 0 ", "i/retried due 3611 visible 3618 attempts 1 no\ufffdt yet", "i/waits due 3620 visible 3620 attempts 0 "}
	if !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if early := claim(t, pool, "A", at(3609), time.Minute); len(early) != 1 || early[0].Name != "j" {
		t.Errorf("before the shifted times: %v", told(early))
	}
}

// R-PG05: what is below a microsecond is cut off, not rounded: the last instant of a day stays in it.
func timesAreCutOff(t *testing.T, pool *pgxpool.Pool) {
	last := time.Date(2030, 12, 31, 23, 59, 59, 999_999_900, time.UTC)
	set(t, pool, nil, timers.Setting{Name: "last", From: last})
	set(t, pool, nil, timers.Setting{Name: "after", From: last.Add(-time.Second), After: time.Second + 99})
	set(t, pool, &last, timers.Setting{Name: "now"})
	for _, x := range claim(t, pool, "A", &last, time.Minute+1) {
		if !x.Due.Equal(last.Truncate(time.Microsecond)) || x.Due.UTC().Day() != 31 || !x.ClaimedAt.Equal(x.Due) || x.LeasedUntil.Sub(x.Due) != time.Minute {
			t.Errorf("%s is due at %s, claimed at %s until %s", x.Name, x.Due, x.ClaimedAt, x.LeasedUntil)
		}
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE owner = 'A'`); n != 3 {
		t.Errorf("%d were claimed", n)
	}
}

// A herd that is set for one moment comes spread over the time, evenly, each at its place.
func spread(t *testing.T, pool *pgxpool.Pool) {
	const n, spread = 6000, time.Minute
	var settings []timers.Setting
	for i := range n {
		settings = append(settings, timers.Setting{Name: fmt.Sprintf("tenant-%d", i), Spread: spread})
	}
	set(t, pool, at(0), settings...)
	for minute, got := range map[string]int{
		"before": value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE due_at < $1`, at(0)),
		"after":  value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE due_at >= $1`, at(60)),
	} {
		if got != 0 {
			t.Errorf("%d %s", got, minute)
		}
	}
	// 100 a second on average; six standard deviations are 60.
	least := value[int](t, pool, `SELECT min(n) FROM (SELECT count(d.due_at) AS n FROM generate_series(0, 59) s LEFT JOIN daybook.timers d
		ON floor(extract(epoch FROM d.due_at - $1)) = s GROUP BY s) x`, at(0))
	most := value[int](t, pool, `SELECT max(n) FROM (SELECT count(*) AS n FROM daybook.timers GROUP BY floor(extract(epoch FROM due_at - $1))) x`, at(0))
	if least < 40 || most > 160 {
		t.Errorf("between %d and %d a second", least, most)
	}
	before := value[time.Time](t, pool, `SELECT due_at FROM daybook.timers WHERE name = 'tenant-7'`)
	set(t, pool, at(60), settings[7])
	if after := value[time.Time](t, pool, `SELECT due_at FROM daybook.timers WHERE name = 'tenant-7'`); after.Sub(before) != time.Minute {
		t.Errorf("set a minute later it comes %s later", after.Sub(before))
	}
}

// R-ST19: what waits for its due time, a pause or a handler is not overdue.
func overdueCountsWhatIsOverdue(t *testing.T, pool *pgxpool.Pool) {
	const grace = 10 * time.Second
	overdue := func(now float64) (int, time.Time) {
		t.Helper()
		n, since, err := timers.Overdue(t.Context(), pool, schema, queue, at(now), grace)
		if err != nil {
			t.Fatal(err)
		}
		return n, since
	}
	set(t, pool, at(0), timers.Setting{Name: "tomorrow", After: 24 * time.Hour}, timers.Setting{Queue: "other", Name: "x", After: -time.Hour})
	if n, since := overdue(1); n != 0 || !since.IsZero() {
		t.Errorf("one in 24 h: %d since %s", n, since)
	}
	set(t, pool, at(0), timers.Setting{Name: "handled"}, timers.Setting{Name: "retried"})
	claimed := claim(t, pool, "A", at(1), 10*time.Minute)
	send(t, pool, func(b *pgx.Batch) {
		timers.Retry(b, schema, at(2), []timers.Failure{{Timer: claimed[1], After: 10 * time.Minute}})
	})
	set(t, pool, at(0), timers.Setting{Name: "forgotten", After: 10 * time.Second})
	if n, _ := overdue(20); n != 0 {
		t.Errorf("within the grace: %d", n)
	}
	if n, since := overdue(310); n != 1 || !since.Equal(*at(10)) {
		t.Errorf("overdue by 5 minutes: %d since %s", n, since)
	}
	if n, _, err := timers.Overdue(t.Context(), pool, schema, queue, nil, 0); err != nil || n != 0 {
		t.Errorf("by the database's clock, which is far behind: %d, %v", n, err)
	}
}

// A timer is claimed ahead, a lease is not.
func aheadCutsNoLease(t *testing.T, pool *pgxpool.Pool) {
	set(t, pool, at(0), timers.Setting{Name: "a"}, timers.Setting{Name: "b", After: 30 * time.Second})
	mine := claim(t, pool, "A", at(0), 30*time.Second)
	ahead, err := timers.Claim(t.Context(), pool, timers.ClaimRequest{Schema: schema, Queue: queue, Owner: "B", Now: at(29), Ahead: 5 * time.Second, Limit: 10, Lease: time.Minute})
	if err != nil || !slices.Equal(told(ahead), []string{"b token 1 until 89"}) {
		t.Fatalf("claimed %v, %v", told(ahead), err)
	}
	send(t, pool, func(b *pgx.Batch) { timers.Release(b, schema, append(ahead, mine...)) })
	if err := finish(pool, ahead...); !timers.Lost(err) {
		t.Errorf("what was given back is finished: %v", err)
	}
	if list := claim(t, pool, "C", at(29), time.Minute); !slices.Equal(told(list), []string{"a token 3 until 89"}) {
		t.Errorf("given back: %v", told(list))
	}
	if list := claim(t, pool, "C", at(30), time.Minute); !slices.Equal(told(list), []string{"b token 3 until 90"}) {
		t.Errorf("given back: %v", told(list))
	}
}
