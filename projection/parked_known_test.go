package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/retry/retrytest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/outbox/deadletter"
)

// steppedLog is a log whose events arrive one after the other in a time that only moves when the worker has nothing to do:
// from one arrival, or attempt that is due, to the next. What is late is so by the worker's own decision.
type steppedLog struct {
	Source
	w        *world
	consumer string
	arrivals []arrival

	mu    sync.Mutex
	at    time.Time
	spins int
	idle  chan struct{} // closed when nothing is to come any more
}

type arrival struct {
	at       time.Time
	position eventstore.Position
}

func (l *steppedLog) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// arrived is how many have arrived.
func (l *steppedLog) arrived() int {
	now := l.now()
	n, _ := slices.BinarySearchFunc(l.arrivals, now, func(a arrival, now time.Time) int {
		if a.at.After(now) {
			return 1
		}
		return -1
	})
	return n
}

func (l *steppedLog) ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error) {
	page, err := l.Source.ReadPage(ctx, after, f, limit)
	n := l.arrived()
	if err != nil || n == len(l.arrivals) {
		return page, err
	}
	end := eventstore.PositionAt(l.arrivals[n].position.Ordinal() - 1)
	if page.Through.After(end) {
		page.Through = end
	}
	page.Events = slices.DeleteFunc(page.Events, func(e eventstore.RecordedEvent) bool { return e.Position.After(end) })
	return page, err
}

// Wait is called when the worker has nothing to do.
func (l *steppedLog) Wait(ctx context.Context, after eventstore.Position) error {
	var due *time.Time
	var busy bool
	err := l.w.pool.QueryRow(context.WithoutCancel(ctx), `SELECT min(due_at), coalesce(bool_or(state = 'draining'), false) FROM daybook.parked WHERE consumer = $1`, l.consumer).Scan(&due, &busy)
	if err != nil {
		return err
	}
	l.mu.Lock()
	next := time.Time{}
	for _, a := range l.arrivals {
		if a.at.After(l.at) {
			next = a.at
			break
		}
	}
	unread := l.at.IsZero() || slices.ContainsFunc(l.arrivals, func(a arrival) bool { return !a.at.After(l.at) && a.position.After(after) })
	if due != nil && (next.IsZero() || due.Before(next)) {
		next = due.Add(time.Microsecond) // the worker's own time is finer than the column
	}
	switch {
	case busy || unread || !next.IsZero() && !next.After(l.at): // there is something to do, now
		if l.spins++; l.spins > 10_000 {
			l.mu.Unlock()
			return errors.New("the worker does not do what is due")
		}
	case !next.IsZero():
		l.at, l.spins = next, 0
	default:
		select {
		case <-l.idle:
		default:
			close(l.idle)
		}
		l.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	l.mu.Unlock()
	return nil
}

func (l *steppedLog) looks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spins
}

func (l *steppedLog) rest(t *testing.T) {
	t.Helper()
	select {
	case <-l.idle:
	case <-time.After(4 * patience):
		t.Fatalf("the worker does not come to rest: it is %v, %d looks, %d events applied, %d set aside", l.now(), l.looks(),
			ask[int](l.w, "SELECT count(*)::int FROM "+l.consumer), ask[int](l.w, "SELECT count(*)::int FROM daybook.parked"))
	}
}

// attempts are what the handler was asked for: when each attempt at each message was.
type attempts struct {
	mu sync.Mutex
	at map[int]map[int]time.Time
}

func (a *attempts) note(message, attempt int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at[message] == nil {
		a.at[message] = map[int]time.Time{}
	}
	a.at[message][attempt] = at
}

// The known answers, with the worker and PostgreSQL as they are: every message has exactly the attempts that its fate asks
// for, none waits for longer than the policy lets it, and none waits for another. After a redrive what was only unlucky goes
// through, as its fate says.
func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seed       uint64
		classified bool
	}{"unclassified": {1, false}, "classified": {2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			knownAnswers(t, c.seed, c.classified)
		})
	}
}

func knownAnswers(t *testing.T, seed uint64, classified bool) {
	messages := testscale.N(1000)
	start := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	seen := attempts{at: map[int]map[int]time.Time{}}
	var source *steppedLog
	p := logged("fated", func(ctx context.Context, _ pgx.Tx, e Event[added]) error {
		seen.note(int(e.Payload.N), Attempt(ctx), source.now())
		return retrytest.Fate(seed, int(e.Payload.N), Attempt(ctx))
	})
	w := newWorld(t, p)
	source = &steppedLog{Source: w.store.Log(), w: w, consumer: "fated", idle: make(chan struct{}), at: start.Add(-time.Second)}
	for m := range messages {
		token := w.append(fmt.Sprint("m", m), added{int64(m)})
		source.arrivals = append(source.arrivals, arrival{start.Add(time.Duration(m) * 100 * time.Millisecond), token.Marks()[0].Position})
	}
	cfg := Config{Clock: source.now}
	if classified {
		cfg.Classify = retrytest.Classify
	}
	r, err := NewRunner(w.pool, source, cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	stop := w.start(r)
	source.rest(t)

	delivered := map[int]int{}
	for _, n := range values(w, "fated") {
		delivered[int(n)]++
	}
	letters := map[int]deadletter.Letter{}
	people, err := deadletter.New(w.pool, deadletter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for after := ""; ; {
		page, err := people.List(t.Context(), deadletter.Filter{Consumer: "fated", State: deadletter.Parked, After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Letters {
			var m int
			if _, err := fmt.Sscanf(l.Sequence, "test-m%d", &m); err != nil {
				t.Fatal(err)
			}
			letters[m] = l
		}
		if after = page.Next; after == "" {
			break
		}
	}
	var tally retrytest.Tally
	for m := range messages {
		want, ok := retrytest.Outcome(seed, m, 5, classified)
		got := len(seen.at[m])
		extra := seen.at[m][got].Sub(source.arrivals[m].at)
		l, parked := letters[m]
		if got != want || parked == ok || (delivered[m] == 1) != ok || delivered[m] > 1 || parked && l.Attempts != want {
			t.Fatalf("message %d: %d attempts, %d rows, letter %+v; its fate is %d attempts, delivered %v", m, got, delivered[m], l, want, ok)
		}
		if first := seen.at[m][1]; !first.Equal(source.arrivals[m].at) {
			t.Fatalf("message %d is first tried %v after it came", m, first.Sub(source.arrivals[m].at))
		}
		if ok {
			tally.Delivered(m, got, extra)
		} else {
			tally.Parked(m, got, extra)
		}
	}
	if err := tally.Check(retry.Policy{}, classified, time.Millisecond); err != nil && messages == 1000 {
		t.Error(err)
	}
	if longest := tally.Longest(); longest > 15*time.Second+time.Millisecond {
		t.Errorf("a message waited %v", longest)
	}
	t.Logf("%.1f %.1f %.1f %.1f %.1f %% at attempt 1 to 5, %.2f %% parked, %.3f attempts, p50 %v, p99 %v, longest %v", 100*tally.Succeeded(1),
		100*tally.Succeeded(2), 100*tally.Succeeded(3), 100*tally.Succeeded(4), 100*tally.Succeeded(5), 100*tally.ParkedShare(), tally.PerMessage(),
		tally.Delay(0.5), tally.Delay(0.99), tally.Longest())
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked"); n != len(letters) {
		t.Errorf("%d sequences are set aside, for %d letters", n, len(letters))
	}
	if t.Failed() {
		return
	}

	// One round more for each.
	source.mu.Lock()
	source.idle, source.spins = make(chan struct{}), 0
	source.mu.Unlock()
	plan, err := people.Redrive(t.Context(), deadletter.Matching(deadletter.Filter{Consumer: "fated"}), deadletter.Options{Actor: "test", MaxFailures: -1})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Eventually(t, "the plan ends", func() bool {
		plan, err = people.Plan(t.Context(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		return !plan.Running()
	})
	stop()
	unlucky := 0
	rows := map[int]bool{}
	for _, n := range values(w, "fated") {
		rows[int(n)] = true
	}
	for m, l := range letters {
		want, ok := l.Attempts, false
		for round := 1; round <= 5 && !ok; round++ {
			want++
			err := retrytest.Fate(seed, m, want)
			if ok = err == nil; !ok && classified && retrytest.Classify(err) == eventstore.Permanent {
				break
			}
		}
		if !retrytest.Poison(seed, m) {
			unlucky++
		}
		again, err := people.Show(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		state := deadletter.Parked
		if ok {
			state = deadletter.Applied
		}
		if again.Attempts != want-boolInt(ok) || again.State != state || rows[m] != ok {
			t.Errorf("message %d after the redrive: %d failures, %s, a row: %v; want %d attempts, delivered %v", m, again.Attempts, again.State, rows[m], want, ok)
		}
	}
	t.Logf("%d of %d were only unlucky; the plan: %d succeeded, %d failed", unlucky, len(letters), plan.Succeeded, plan.Failed)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
