package schedule

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
)

// patience bounds every wait of these tests; none is expected to come near it.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" { // this process is the runner of a crash test
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// steps is a clock that goes on when it is told to.
type steps struct {
	mu  sync.Mutex
	now time.Time
}

func (s *steps) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *steps) to(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = t
}

func (s *steps) step(d time.Duration) { s.to(s.time().Add(d)) }

// off is the clock of a node that is wrong by d.
func (s *steps) off(d time.Duration) func() time.Time {
	return func() time.Time { return s.time().Add(d) }
}

// world is a store in a database of its own, with a stepped clock.
type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	clock *steps
}

var second0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return second0.Add(d) }

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{t, postgrestest.New(t, postgrestest.WithMaxConns(24)), &steps{now: second0}}
}

// config looks often. Its lease is longer than what tests step.
func (w *world) config() Config {
	return Config{Clock: w.clock.time, Poll: 10 * time.Millisecond, Lease: 24 * time.Hour, Refresh: 20 * time.Millisecond}
}

func (w *world) runner(cfg Config, jobs ...Job) *Runner {
	w.t.Helper()
	r, err := NewRunner(w.pool, cfg, jobs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// start runs r until stop is called, or the test ends.
func (w *world) start(r *Runner) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					w.t.Errorf("Run: %v", err)
				}
			case <-time.After(patience):
				w.t.Error("Run did not end")
			}
		})
	}
	w.t.Cleanup(stop)
	return stop
}

// registered waits until the store knows n schedules.
func (w *world) registered(n int) {
	w.t.Helper()
	w.eventually(fmt.Sprint(n, " schedules"), func() bool {
		return ask[int](w, `SELECT count(*) FROM daybook.schedules`) == n
	})
}

// settled waits until all that is due by the clock has been decided and has ended.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("all that is due has ended", func() bool {
		return ask[bool](w, `SELECT NOT EXISTS (SELECT FROM daybook.schedules WHERE next_slot <= $1) AND NOT EXISTS (SELECT FROM daybook.schedule_firings WHERE ended_at IS NULL)`, w.clock.time())
	})
}

// told returns what became of a job's slots, the first one first, each as seconds since second0 and its state.
func (w *world) told(job string) string {
	w.t.Helper()
	list, err := History(context.Background(), w.pool, job, AtMost(10_000))
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Reverse(list)
	var text []string
	for _, r := range list {
		text = append(text, fmt.Sprintf("%g:%s", r.Slot.Sub(second0).Seconds(), r.State))
	}
	return strings.Join(text, " ")
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("%s: not within %v; it is %s\n%s", what, patience, w.clock.time().Format(time.TimeOnly), w.state())
		}
	}
}

// state is for the texts of failures.
func (w *world) state() string {
	return ask[string](w, `SELECT concat_ws(E'\n', (SELECT string_agg(s::text, E'\n') FROM daybook.schedules s),
	 (SELECT string_agg(f::text, E'\n') FROM (SELECT * FROM daybook.schedule_firings ORDER BY slot DESC LIMIT 20) f),
	 (SELECT string_agg(t::text, E'\n') FROM (SELECT * FROM daybook.timers ORDER BY queue, name LIMIT 20) t))`)
}

func ask[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// calls notes what jobs were called for.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) note(f Firing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf("%s%s@%g#%d", f.Job, f.Tenant, f.Slot.Sub(second0).Seconds(), f.Attempt))
}

func (c *calls) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func (c *calls) text() string { return strings.Join(c.all(), " ") }

func (c *calls) run(_ context.Context, f Firing) error {
	c.note(f)
	return nil
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}
