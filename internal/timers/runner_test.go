package timers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/retry"
	"github.com/daybook-go/daybook/internal/testscale"
	"github.com/daybook-go/daybook/internal/timers"
)

// fired are the effects of timers, as rows: in the transaction that finishes them.
const firedSQL = `CREATE TABLE fired (name text, late double precision, runner text)`

// effects is a handler that writes a row for each timer that it still holds.
func effects(pool *pgxpool.Pool, runner string) timers.Handler {
	return func(ctx context.Context, due []timers.Timer) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			held, err := timers.Held(ctx, tx, schema, due)
			if err != nil {
				return err
			}
			return write(ctx, tx, runner, held)
		})
	}
}

func write(ctx context.Context, tx pgx.Tx, runner string, held []timers.Timer) error {
	b := &pgx.Batch{}
	names := make([]string, len(held))
	dues := make([]time.Time, len(held))
	for i, x := range held {
		names[i], dues[i] = x.Name, x.Due
	}
	b.Queue(`INSERT INTO fired SELECT name, extract(epoch FROM clock_timestamp() - due), $3 FROM unnest($1::text[], $2::timestamptz[]) AS f(name, due)`, names, dues, runner)
	timers.Finish(b, schema, held)
	return tx.SendBatch(ctx, b).Close()
}

// running is a runner at work. Its end is waited for when the test ends, or by stop.
type running struct {
	*timers.Runner
	stop func() error
}

func run(t testing.TB, db timers.DB, cfg timers.Config, handle timers.Handler) running {
	t.Helper()
	if cfg.Queue == "" {
		cfg.Queue = queue
	}
	runner, err := timers.NewRunner(cfg, handle)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx, db) }()
	stop := sync.OnceValue(func() error {
		cancel()
		begun := time.Now()
		err := <-done
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Run returned %s after its context ended", took)
		}
		return err
	})
	t.Cleanup(func() { _ = stop() })
	return running{runner, stop}
}

// eventually asks until it is so. The question is to the database, so that asking takes time.
func eventually(t testing.TB, what string, ask func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ask() {
			return
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
}

func count(t testing.TB, pool *pgxpool.Pool, table string) int {
	t.Helper()
	return value[int](t, pool, `SELECT count(*) FROM `+table)
}

// R-ST07: five runners and 1,000 timers that are due within a second: each has its effect once, on time.
func TestFiveRunnersFireEachOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	const n = 1000
	var settings []timers.Setting
	for i := range n {
		settings = append(settings, timers.Setting{Name: fmt.Sprint(i), After: time.Second, Spread: time.Second})
	}
	set(t, pool, nil, settings...)
	var runners []running
	for i := range 5 {
		runners = append(runners, run(t, pool, timers.Config{Batch: 50, Group: 10, Workers: 1}, effects(pool, fmt.Sprint(i))))
	}
	eventually(t, "all timers are gone", func() bool { return count(t, pool, "daybook.timers") == 0 })
	if all, names := count(t, pool, "fired"), value[int](t, pool, `SELECT count(DISTINCT name) FROM fired`); all != n || names != n {
		t.Errorf("%d effects of %d timers, want %d of each", all, names, n)
	}
	if early := value[int](t, pool, `SELECT count(*) FROM fired WHERE late < 0`); early != 0 {
		t.Errorf("%d were early", early)
	}
	t.Logf("by %d runners, at most %.3f s late", value[int](t, pool, `SELECT count(DISTINCT runner) FROM fired`), value[float64](t, pool, `SELECT max(late) FROM fired`))
	var total int64
	for _, r := range runners {
		total += r.Status().Fired
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	if total != n {
		t.Errorf("the runners say %d", total)
	}
}

// R-LB06: one handler that hangs for ever, alone or in a group, and 100 others that are due.
func TestHungHandlerStopsNoOthers(t *testing.T) {
	t.Parallel()
	for _, group := range []int{1, 200} {
		t.Run(fmt.Sprint("groups of ", group), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			execute(t, pool, firedSQL)
			var settings []timers.Setting
			for i := range 100 {
				settings = append(settings, timers.Setting{Name: fmt.Sprint(i)})
			}
			set(t, pool, nil, append(settings, timers.Setting{Name: "50-hangs"})...)
			for_ever := make(chan struct{})
			ok := effects(pool, "")
			r := run(t, pool, timers.Config{Group: group, Workers: 1, Timeout: 100 * time.Millisecond, Lease: time.Second}, func(ctx context.Context, due []timers.Timer) error {
				if slices.ContainsFunc(due, func(x timers.Timer) bool { return x.Name == "50-hangs" }) {
					<-for_ever
					return errors.New("late")
				}
				return ok(ctx, due)
			})
			eventually(t, "the others have fired", func() bool { return count(t, pool, "fired") == 100 })
			eventually(t, "the hung one is reported alone", func() bool {
				hung := r.Status().Hung
				return len(hung) > 0 && slices.ContainsFunc(hung, func(h timers.Hung) bool { return slices.Equal(h.Timers, []string{"50-hangs"}) })
			})
			if h := r.Health(t.Context()); !h.Ready || !strings.Contains(h.Reason, "ignore the end of their contexts") {
				t.Errorf("health: %+v", h)
			}
			// What is set later fires as well, and the lease of the hung one goes on.
			set(t, pool, nil, timers.Setting{Name: "later"})
			eventually(t, "a later one has fired", func() bool { return count(t, pool, "fired") == 101 })
			first := value[time.Time](t, pool, `SELECT visible_at FROM daybook.timers`)
			eventually(t, "its lease goes on", func() bool { return value[time.Time](t, pool, `SELECT visible_at FROM daybook.timers`).After(first) })
			var late *timers.ShutdownError
			if err := r.stop(); !errors.As(err, &late) || !slices.Contains(late.Timers, "50-hangs") {
				t.Errorf("Run returned %v", err)
			}
			if owner := value[string](t, pool, `SELECT owner FROM daybook.timers`); owner != "" {
				t.Errorf("the hung one was not given back: it is owned by %q", owner)
			}
			close(for_ever)
		})
	}
}

// R-ST08, R-ST09: how long is left is what the database says, as no statement and no wait has a time of the process in it.
func TestRunnerHoldsUntilDue(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	run(t, pool, timers.Config{Ahead: 10 * time.Second}, effects(pool, ""))
	set(t, pool, nil, timers.Setting{Name: "soon", After: 1500 * time.Millisecond}, timers.Setting{Name: "now"})
	eventually(t, "both have fired", func() bool { return count(t, pool, "fired") == 2 })
	late := value[float64](t, pool, `SELECT late FROM fired WHERE name = 'soon'`)
	if late < 0 || late > 0.75 {
		t.Errorf("%f s late, although it was claimed before it was due", late)
	}
}

// R-ST11: nothing wakes the runner of an idle system but its poll; a timer in 2 s and a retry in 3 s.
func TestIdleRunnerNeedsNoNews(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	set(t, pool, nil, timers.Setting{Name: "fails"})
	ok := effects(pool, "")
	run(t, pool, timers.Config{Poll: 200 * time.Millisecond, Ahead: -1, Retry: retry.Policy{Base: 2 * time.Second}}, func(ctx context.Context, due []timers.Timer) error {
		if due[0].Name == "fails" && due[0].Attempts == 0 {
			return errors.New("not the first time")
		}
		return ok(ctx, due)
	})
	eventually(t, "the first has failed", func() bool {
		return value[int](t, pool, `SELECT attempts FROM daybook.timers WHERE name = 'fails'`) == 1
	})
	set(t, pool, nil, timers.Setting{Name: "idle", After: 2 * time.Second})
	eventually(t, "both have fired", func() bool { return count(t, pool, "fired") == 2 })
	if late := value[float64](t, pool, `SELECT late FROM fired WHERE name = 'idle'`); late < 0 || late > 1.2 {
		t.Errorf("%f s late, with a poll of 200 ms", late)
	}
}

// R-ST04: one of many always fails. The others have their effects, and it comes again, alone, with pauses that grow.
func TestFailingTimerFailsNoOthers(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	var settings []timers.Setting
	for i := range 20 {
		settings = append(settings, timers.Setting{Name: fmt.Sprint(i)})
	}
	set(t, pool, nil, append(settings, timers.Setting{Name: "10-panics"}, timers.Setting{Name: "10-fails"})...)
	ok := effects(pool, "")
	var mu sync.Mutex
	var attempts []int
	r := run(t, pool, timers.Config{Poll: 10 * time.Millisecond, Retry: retry.Policy{Base: time.Millisecond, Cap: 2 * time.Millisecond}}, func(ctx context.Context, due []timers.Timer) error {
		for _, x := range due {
			switch x.Name {
			case "10-panics":
				if x.Attempts < 2 {
					panic("secret")
				}
			case "10-fails":
				if len(due) == 1 {
					mu.Lock()
					attempts = append(attempts, x.Attempts)
					mu.Unlock()
				}
				if x.Attempts < 4 {
					return errors.New("it always fails")
				}
			}
		}
		return ok(ctx, due)
	})
	eventually(t, "all have fired", func() bool { return count(t, pool, "fired") == 22 })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(attempts, []int{0, 1, 2, 3, 4}) {
		t.Errorf("the failing one was tried with %v failed attempts", attempts)
	}
	if s := r.Status(); s.Failed != 6 || s.Fired != 22 {
		t.Errorf("%+v", s)
	}
}

// A handler sleeps through its lease as a process that is stopped would: another has taken over, and its finish is refused.
func TestFrozenHandlerIsRefused(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	clock := &steps{now: second0}
	set(t, pool, at(0), timers.Setting{Name: "x"})
	began, thaw, refused := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	// Its renewals are by its clock, which stands still: to them no time passes.
	run(t, pool, timers.Config{Owner: "A", Clock: func() time.Time { return second0 }}, func(ctx context.Context, due []timers.Timer) error {
		close(began)
		<-thaw
		err := pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error { return write(context.Background(), tx, "A", due) })
		refused <- err
		return err
	})
	<-began
	clock.step(31 * time.Second)
	run(t, pool, timers.Config{Owner: "B", Clock: clock.time, Poll: 10 * time.Millisecond}, effects(pool, "B"))
	eventually(t, "B has it", func() bool { return count(t, pool, "fired") == 1 })
	close(thaw)
	if err := <-refused; !timers.Lost(err) {
		t.Errorf("A commits: %v", err)
	}
	if by := value[string](t, pool, `SELECT string_agg(runner, ',') FROM fired`); by != "B" {
		t.Errorf("effects by %s", by)
	}
}

// What is held is given back at the end, and another runner has it at once.
func TestShutdownGivesBack(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	execute(t, pool, firedSQL)
	set(t, pool, nil, timers.Setting{Name: "held", After: time.Minute}, timers.Setting{Name: "slow"})
	before := value[time.Time](t, pool, `SELECT visible_at FROM daybook.timers WHERE name = 'held'`)
	r := run(t, pool, timers.Config{Lease: 5 * time.Minute, Ahead: 2 * time.Minute}, func(ctx context.Context, _ []timers.Timer) error {
		<-ctx.Done()
		return ctx.Err()
	})
	eventually(t, "one is held, one handled", func() bool { s := r.Status(); return s.Held == 1 && s.Handling == 1 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if after := value[time.Time](t, pool, `SELECT visible_at FROM daybook.timers WHERE name = 'held'`); !after.Equal(before) {
		t.Errorf("visible at %s, before the claim at %s", after, before)
	}
	if n := value[int](t, pool, `SELECT count(*) FROM daybook.timers WHERE owner = '' AND attempts = 0`); n != 2 {
		t.Errorf("%d were given back", n)
	}
	run(t, pool, timers.Config{}, effects(pool, "B"))
	eventually(t, "another has it", func() bool { return count(t, pool, "fired") == 1 })
}

// A herd that is due at one moment drains at full rate, none twice, and a timer of another queue is on time meanwhile.
func TestHerdStarvesNoOtherQueue(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t, postgrestest.WithMaxConns(8))
	execute(t, pool, firedSQL)
	n := max(testscale.N(100_000)/2, 5000)
	if testscale.Factor() >= 1 {
		n = 100_000
	}
	setMany(t, pool, queue, "herd-", n, "'2030-01-01'::timestamptz - interval '10 years'")
	set(t, pool, nil, timers.Setting{Queue: "other", Name: "other", After: 300 * time.Millisecond})
	for range 2 {
		run(t, pool, timers.Config{Workers: 2}, effects(pool, "herd"))
	}
	run(t, pool, timers.Config{Queue: "other"}, effects(pool, "other"))
	begun := time.Now()
	eventually(t, "the herd is gone", func() bool { return !value[bool](t, pool, `SELECT EXISTS (SELECT FROM daybook.timers)`) })
	t.Logf("%d in %s", n, time.Since(begun))
	if all, names := count(t, pool, "fired"), value[int](t, pool, `SELECT count(DISTINCT name) FROM fired`); all != n+1 || names != n+1 {
		t.Errorf("%d effects of %d timers, want %d of each", all, names, n+1)
	}
	if late := value[float64](t, pool, `SELECT late FROM fired WHERE name = 'other'`); late > 1 {
		t.Errorf("the other queue's timer was %f s late", late)
	}
}
