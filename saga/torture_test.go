//go:build unix

package saga_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/livetest"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/saga"
)

const (
	workers      = 3
	tortureOften = time.Second      // on average, between kills
	stopOften    = 4 * time.Second  // on average, between stops
	stopFor      = 3 * tortureLease // a worker that was stopped has lost everything when it wakes
	calmPatience = 10 * time.Minute // bounds an undisturbed run
)

// tortureWorld is a store with workers.
type tortureWorld struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
	logs  livetest.Lines
	env   []string // of workers that are processes

	alive        []*tortured
	kills, stops int
	chance       *rand.Rand
	nextKill     time.Time
	nextStop     time.Time
	often        time.Duration // on average, between kills
	shares       int           // see released
}

// tortured is a worker that is a process.
type tortured struct {
	*livetest.Process
	wakes time.Time   // not zero: it is stopped until then
	up    atomic.Bool // it has begun to work
}

func newTortureWorld(t testing.TB) *tortureWorld {
	t.Helper()
	w := &tortureWorld{t: t, pool: postgrestest.New(t), chance: rand.New(rand.NewPCG(1, 2))}
	store, err := postgres.New(t.Context(), w.pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w.store = store
	if err := saga.Install(t.Context(), w.pool, orderSaga); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *tortureWorld) spawn(env ...string) *tortured {
	w.t.Helper()
	p := new(tortured)
	p.Process = livetest.Spawn(w.t, livetest.Child{
		Env: append([]string{tortureURL + "=" + postgrestest.URL(w.pool)}, append(slices.Clone(w.env), env...)...),
		Takes: func(line string) bool {
			if line == isUp {
				p.up.Store(true)
			}
			_, _ = fmt.Fprintln(&w.logs, line)
			return true
		},
		Input: func(in io.WriteCloser) { w.t.Cleanup(func() { _ = in.Close() }) },
	})
	return p
}

// place appends orders from to, of so many.
func (w *tortureWorld) place(from, to, of int) {
	w.t.Helper()
	var writes []eventstore.Write
	for i := from; i < to; i++ {
		e, err := orderEvents.Encode(orderOf(i, of))
		if err != nil {
			w.t.Fatal(err)
		}
		writes = append(writes, eventstore.To(eventstore.NewStreamID("order", keyOf(i)), eventstore.NoStream, e))
	}
	if _, err := w.store.Append(w.t.Context(), writes...); err != nil {
		w.t.Fatal(err)
	}
	w.store.Wake()
}

// page is how many orders are placed at once.
const page = 25

// through places n orders, at most half of them under way at a time, and waits until all have ended, calling tick meanwhile.
// It returns how long that took, and false when it was not within the limit.
func (w *tortureWorld) through(n int, limit time.Duration, tick func()) (took time.Duration, ended bool) {
	w.t.Helper()
	began := time.Now()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	window := max(page, n/2)
	for placed, over := 0, 0; over < n; <-ticker.C {
		for may := w.released(n); placed < may && placed-over+page <= window; {
			next := min(may, placed+page)
			w.place(placed, next, n)
			placed = next
		}
		tick()
		if took = time.Since(began); took > limit {
			return took, false
		}
		if err := w.pool.QueryRow(w.t.Context(), overSQL).Scan(&over); err != nil {
			w.t.Fatal(err)
		}
	}
	took = time.Since(began)
	// The last replies of what was closed may be on their way.
	livetest.Eventually(w.t, "everything is heard", func() bool {
		return livetest.Ask[int](w.t, w.pool, "SELECT count(*)::int FROM daybook.saga_commands WHERE replied_at IS NULL AND NOT closed") == 0
	})
	return took, true
}

// released is how many of n orders may be placed: all; or where they would be over before anybody is killed, a share more with
// each kill, and the last one behind a stop.
func (w *tortureWorld) released(n int) int {
	if w.shares == 0 {
		return n
	}
	may := n * min(w.kills+1, w.shares) / w.shares
	if w.stops == 0 {
		may = min(may, n*(w.shares-1)/w.shares)
	}
	return may
}

const overSQL = "SELECT count(*) FROM daybook.sagas WHERE ended_at IS NOT NULL"

// look fails when a worker has ended by itself.
func (w *tortureWorld) look() {
	w.t.Helper()
	for _, p := range w.alive {
		select {
		case <-p.Ended():
			w.t.Fatalf("a worker has ended by itself:\n%s", w.logs.String())
		default:
		}
	}
}

func (w *tortureWorld) within(mean time.Duration) time.Time {
	return time.Now().Add(mean/2 + time.Duration(w.chance.Int64N(int64(mean))))
}

// disturb kills one worker a second, and stops one for longer than its lease now and then. One that has not begun to work is
// spared: on a machine with too much to do nothing would be done between its start and its death.
func (w *tortureWorld) disturb() {
	w.t.Helper()
	w.look()
	now := time.Now()
	var standing []int
	for i, p := range w.alive {
		if !p.wakes.IsZero() && now.After(p.wakes) {
			p.wakes = time.Time{}
			p.Signal(syscall.SIGCONT)
		}
		if p.wakes.IsZero() && p.up.Load() {
			standing = append(standing, i)
		}
	}
	if now.After(w.nextKill) && len(standing) > 0 {
		i := standing[w.chance.IntN(len(standing))]
		w.alive[i].Kill()
		w.alive[i] = w.spawn()
		w.kills++
		standing = nil
		w.nextKill = w.within(w.often)
	}
	if now.After(w.nextStop) && len(standing) > 1 {
		p := w.alive[standing[w.chance.IntN(len(standing))]]
		p.Signal(syscall.SIGSTOP)
		p.wakes = now.Add(stopFor)
		w.stops++
		w.nextStop = w.within(w.often * stopOften / tortureOften)
	}
}

// end kills whoever is left.
func (w *tortureWorld) end() {
	for _, p := range w.alive {
		p.Kill()
		<-p.Ended()
	}
	w.alive = nil
}

// working waits until there is somebody for each part of the work, so that no measured time is that of the start.
func (w *tortureWorld) working() {
	w.t.Helper()
	livetest.Eventually(w.t, "the workers work", func() bool {
		return livetest.Ask[int](w.t, w.pool, "SELECT count(*)::int FROM daybook.segments WHERE owner <> ''") == 3
	})
}

// sound fails with what is wrong, if anything is, and returns the time of the slowest order.
func (w *tortureWorld) sound(n int) time.Duration {
	w.t.Helper()
	faults, slowest, err := w.audit(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(faults) > 0 {
		w.t.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
	if logs := w.logs.String(); strings.Contains(logs, "deadlock") {
		w.t.Errorf("a worker says deadlock:\n%s", logs)
	}
	return slowest
}

// slower is by how much disturbed sagas may be slower than undisturbed ones. Those that take less than twenty leases are
// compared as if they took these: a saga is handed on twenty times, and each time may have to wait for a lease.
const (
	slower = 10
	least  = 20 * tortureLease
)

// Ten thousand sagas, whose workers are killed every second and stopped for longer than their leases now and then: each ends
// as it must, within ten times the time that it takes without that, and nothing has happened twice. Leases are half a second, so that what a
// worker had in hand when it was killed waits about as long as there is between two kills.
func TestTorture(t *testing.T) {
	n, often, shares := testscale.N(10_000), tortureOften, 0
	if testscale.Factor() < 1 { // processes and leases do not shrink with it, but it must not be over before it is disturbed
		n, often, shares = testscale.N(1_500), tortureOften/2, 6
	}
	run := func(limit time.Duration, shares int, tick func(*tortureWorld)) (w *tortureWorld, took, slowest time.Duration) {
		t.Helper()
		w = newTortureWorld(t)
		w.often, w.shares = often, shares
		for range workers {
			w.alive = append(w.alive, w.spawn())
		}
		w.working()
		w.nextKill, w.nextStop = w.within(w.often), w.within(w.often*stopOften/tortureOften)
		took, ended := w.through(n, limit, func() { tick(w) })
		w.end()
		if !ended {
			t.Errorf("it does not end within %v, %d kills: %s", limit, w.kills, w.unended())
		}
		return w, took, w.sound(n)
	}
	_, calm, calmest := run(calmPatience, 0, (*tortureWorld).look)
	if t.Failed() {
		return
	}
	w, took, slowest := run(slower*max(calm, least), shares, (*tortureWorld).disturb)
	t.Logf("%d sagas: undisturbed in %v, the slowest in %v; with %d kills and %d stops in %v (%.1f times), the slowest in %v (%.1f times)", n,
		calm.Round(time.Millisecond), calmest.Round(time.Millisecond), w.kills, w.stops, took.Round(time.Millisecond), float64(took)/float64(calm),
		slowest.Round(time.Millisecond), float64(slowest)/float64(calmest))
	if slowest > slower*max(calmest, least) {
		t.Errorf("a saga took %v, the slowest undisturbed one %v", slowest, calmest)
	}
	if want := int(took / (4 * tortureOften)); w.kills < max(shares-1, want) || w.stops == 0 {
		t.Errorf("only %d kills and %d stops in %v", w.kills, w.stops, took)
	}
}

// unended are some of those that have not ended, for people.
func (w *tortureWorld) unended() string {
	rows, err := w.pool.Query(context.Background(), `SELECT key || ' is ' || state || ' ' || stuck || ' and waits for ' || awaits
 FROM daybook.sagas WHERE ended_at IS NULL ORDER BY changed_at LIMIT 10`)
	if err != nil {
		return err.Error()
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	return strings.Join(all, "\n")
}
