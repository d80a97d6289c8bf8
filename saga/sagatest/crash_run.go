package sagatest

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/postgres"
	"github.com/daybook-go/daybook/eventstore/postgres/postgrestest"
	"github.com/daybook-go/daybook/internal/flow"
	"github.com/daybook-go/daybook/outbox/commands"
	"github.com/daybook-go/daybook/saga"
)

const (
	crashPatience = 60 * time.Second // bounds a run
	crashLease    = 300 * time.Millisecond
	slowFor       = 300 * time.Millisecond // a slow command waits no longer for another
)

// crashRun is one run of a scenario.
type crashRun struct {
	t    *testing.T
	def  saga.Definition
	s    Crashes
	d    disturbance
	w    World
	late atomic.Int64 // by how much the manager's clock is ahead, in nanoseconds

	mu      sync.Mutex
	count   map[string]int
	living  map[string]func() // ends the process
	carried int               // commands that were carried out
	timed   map[string]bool   // steps with a deadline
	sender  *holding
}

func newCrashRun(t *testing.T, def saga.Definition, s Crashes, d disturbance) *crashRun {
	return &crashRun{t: t, def: def, s: s, d: d, count: map[string]int{}, timed: map[string]bool{}, living: map[string]func(){}}
}

// The two processes of a run. Each has connections of its own, which go when it is killed.
const (
	managing    = "manager"
	dispatching = "dispatcher"
)

func (r *crashRun) run() result {
	r.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), crashPatience)
	defer stop()
	r.w.Pool = postgrestest.New(r.t)
	store, err := postgres.New(ctx, r.w.Pool, postgres.Config{})
	r.must("open the store", err)
	r.t.Cleanup(store.Close)
	r.w.Store = store
	r.must("install the saga", saga.Install(ctx, r.w.Pool, r.def))
	r.sender = &holding{r: r}

	running, end := context.WithCancel(ctx)
	var processes sync.WaitGroup
	processes.Go(func() { r.keep(running, managing, r.manage) })
	processes.Go(func() { r.keep(running, dispatching, r.dispatch) })
	defer processes.Wait()
	defer end()
	r.must("start", r.s.Start(ctx, r.w))
	r.settle(ctx)
	r.atTheEnd(ctx)
	return r.look(ctx)
}

func (r *crashRun) must(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("sagatest: %s: %v", what, err)
	}
}

// keep starts a process again when it was killed, until ctx ends.
func (r *crashRun) keep(ctx context.Context, name string, process func(context.Context, *pgxpool.Pool) error) {
	for ctx.Err() == nil {
		cfg := r.w.Pool.Config()
		cfg.ConnConfig.RuntimeParams["application_name"] = name
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return
		}
		life, kill := context.WithCancel(ctx)
		r.mu.Lock()
		r.living[name] = kill
		r.mu.Unlock()
		err = process(life, pool)
		killed := life.Err() != nil
		kill()
		pool.Close()
		if err != nil && !killed {
			r.t.Errorf("sagatest: the %s ended: %v", name, err)
			return
		}
	}
}

func (r *crashRun) manage(ctx context.Context, pool *pgxpool.Pool) error {
	b := r.s.Bus(r.w)
	r.sender.set(commands.ForSagas(b, r.w.Store.Outbox()))
	m, err := saga.NewManager(pool, r.behind(r.w.Store.Log(), events), r.sender, saga.Config{
		Lease: crashLease, Poll: 20 * time.Millisecond, RetryBase: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond, BatchSize: 3,
		Clock: r.now, Wake: r.w.Store.Wake, Probe: func(place string) { r.reach(ctx, managing, place) },
	}, r.def)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func (r *crashRun) dispatch(ctx context.Context, pool *pgxpool.Pool) error {
	b := r.s.Bus(r.w, func(next bus.Handler) bus.Handler {
		return func(handling context.Context, c *bus.Command) (bus.Reply, error) {
			name := "command " + c.Type
			r.reach(ctx, dispatching, name+" comes")
			r.slow(handling, c)
			reply, err := next(handling, c)
			if r.d.amnesia {
				r.forget(handling)
			}
			r.reach(ctx, dispatching, name+" is done")
			return reply, err
		}
	})
	d, err := commands.NewDispatcher(pool, commands.Local(r.w.Store.Outbox()), b, commands.Config{
		Lease: crashLease, Wake: r.w.Store.Wake, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// now is the manager's time.
func (r *crashRun) now() time.Time { return time.Now().Add(time.Duration(r.late.Load())) }

// reach counts a visit of a place, and kills the process if it is the one to be killed at: its connections are ended by
// the server, so that nothing that is open commits, and it does not go on.
func (r *crashRun) reach(ctx context.Context, process, place string) {
	r.mu.Lock()
	r.count[place]++
	dies := r.d.crash[place] == r.count[place]
	kill := r.living[process]
	r.mu.Unlock()
	if !dies {
		return
	}
	r.end(process)
	if r.d.rewind && process == managing {
		r.rewind()
	}
	kill()
	<-ctx.Done()
}

// end ends the connections of a process.
func (r *crashRun) end(process string) {
	var n int
	err := r.w.Pool.QueryRow(context.Background(), `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database()`, process).Scan(&n)
	if err != nil {
		r.t.Errorf("sagatest: end connections: %v", err)
	}
}

// rewind loses the progress of the saga's consumers: everything comes again.
func (r *crashRun) rewind() {
	for _, sql := range [...]string{
		"DELETE FROM daybook.checkpoints WHERE consumer LIKE 'saga-%'",
		"UPDATE daybook.segments SET floor = 0, epoch = epoch + 1, expires_at = '-infinity' WHERE consumer LIKE 'saga-%'",
	} {
		if _, err := r.w.Pool.Exec(context.Background(), sql); err != nil {
			r.t.Errorf("sagatest: lose progress: %v", err)
		}
	}
}

// slow lets the command of a step wait until another was carried out, for a while, or until its step was given up.
func (r *crashRun) slow(ctx context.Context, c *bus.Command) {
	r.mu.Lock()
	before := r.carried
	r.carried++
	r.mu.Unlock()
	if r.d.name == undisturbed {
		r.notice(c)
	}
	is := func(step string) bool { return step != "" && c.ID == r.id(step) }
	switch {
	case is(r.d.slow):
		r.poll(ctx, slowFor, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.carried > before+1
		})
	case is(r.d.late) && !r.d.held:
		r.pass(ctx, r.d.late)
		// Not necessarily its own: that of another step may come first, and is not carried out before this command has ended.
		r.poll(ctx, crashPatience, func() bool { return r.ask("SELECT count(*) FROM daybook.saga_commands WHERE direction = 'undo'") > 0 })
	}
}

// notice remembers whether the step of a command has a deadline.
func (r *crashRun) notice(c *bus.Command) {
	for _, step := range r.steps() {
		if c.ID == r.id(step) && r.ask(deadlineSQL, step) > 0 {
			r.mu.Lock()
			r.timed[step] = true
			r.mu.Unlock()
		}
	}
}

func (r *crashRun) hasDeadline(step string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.timed[step]
}

// pass lets the deadline of a step pass.
func (r *crashRun) pass(ctx context.Context, step string) {
	r.poll(ctx, crashPatience, func() bool { return r.ask(deadlineSQL, step) > 0 })
	r.late.Store(r.ask(deadlineSQL, step) * int64(time.Millisecond))
}

// deadlineSQL is how far away a step's deadline is by the database's clock, in milliseconds, and a second more; 0: there is none.
const deadlineSQL = `SELECT coalesce(max(extract(epoch FROM t.due_at - clock_timestamp()) * 1000 + 1000), 0)::bigint
  FROM daybook.timers t WHERE t.name LIKE '%' || $1::text || '/deadline'`

// id is that of the first do of a step.
func (r *crashRun) id(step string) (id [16]byte) {
	var key string
	if err := r.w.Pool.QueryRow(context.Background(), "SELECT key FROM daybook.sagas WHERE saga = $1 LIMIT 1", r.def.Name()).Scan(&key); err != nil {
		return id
	}
	return flow.CommandID(flow.Ref{Saga: r.def.Name(), Key: key, Run: 1}, step, flow.Do, 1)
}

func (r *crashRun) ask(sql string, args ...any) (n int64) {
	if err := r.w.Pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		r.t.Errorf("sagatest: %s: %v", sql, err)
	}
	return n
}

func (r *crashRun) poll(ctx context.Context, limit time.Duration, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond) // most of what is asked costs several queries
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// visits are the places that were reached, and how often.
func (r *crashRun) visits() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.count)
}

func (r *crashRun) places() (n int) {
	for _, visits := range r.visits() {
		n += visits
	}
	return n
}

// steps are those that were begun.
func (r *crashRun) steps() (names []string) {
	rows, err := r.w.Pool.Query(context.Background(), "SELECT DISTINCT step FROM daybook.saga_commands WHERE direction = 'do' ORDER BY step")
	r.must("list the steps", err)
	defer rows.Close()
	for rows.Next() {
		var name string
		r.must("list the steps", rows.Scan(&name))
		names = append(names, name)
	}
	return names
}
