package timers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// grace is how long calls may go on after the runner was asked to end; then their contexts end. With lastWrite and
	// lastWait it stays below two seconds.
	grace     = time.Second
	lastWait  = 400 * time.Millisecond
	lastWrite = 400 * time.Millisecond
)

// Handler handles timers that are due. It finishes them, all in one transaction with their effects; see [Held] and
// [Finish]. ctx ends when the call has taken Config.Timeout, and a second after the runner was asked to end. Timers whose
// handler returns nil without having finished them come again when their leases pass. A panic is an error.
type Handler func(ctx context.Context, due []Timer) error

// Runner claims the timers of one queue and hands them to a handler when they are due. It is made by [NewRunner]. It is
// safe for concurrent use, but Run only once at a time.
type Runner struct {
	cfg     Config
	handle  Handler
	log     *slog.Logger
	running atomic.Bool

	woken chan struct{} // there may be something to claim
	moved chan struct{} // there may be something to hand out
	room  chan struct{} // there may be room for more
	quiet chan struct{} // the last call has ended

	all sync.WaitGroup // of what ends with Run

	mu       sync.Mutex
	run      *run
	held     queued
	calls    map[*call]struct{}
	total    int // in the hands of this process: held, and in calls that have not been given up
	stopping bool
	status   Status
	lines    lines
}

// run is what Run was called with. A call of the handler that outlives it keeps it.
type run struct {
	db   DB
	work context.Context // of calls and of statements; ends after that of Run
}

// NewRunner checks the configuration; it touches no database.
func NewRunner(cfg Config, handle Handler) (*Runner, error) {
	err := cfg.Validate()
	if handle == nil {
		err = errors.Join(err, errors.New("the handler is nil"))
	}
	if err != nil {
		return nil, fmt.Errorf("timers: new runner: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Runner{
		cfg: cfg, handle: handle, log: cfg.Logger.With("queue", cfg.Queue), calls: map[*call]struct{}{},
		woken: make(chan struct{}, 1), moved: make(chan struct{}, 1), room: make(chan struct{}, 1), quiet: make(chan struct{}, 1),
	}, nil
}

// Wake makes the runner look for due timers at once. Call it after a transaction that has set a timer that is due sooner
// than Config.Poll from now. It never blocks; many wake-ups are as good as one. Nothing depends on it: Config.Poll bounds
// how late a timer is.
func (r *Runner) Wake() { tell(r.woken) }

// Run claims and handles timers until ctx ends, and then returns within two seconds: calls have one second to end, then
// their contexts end; timers that are held are given back. A database that is away is waited for. The error is nil or a
// [*ShutdownError]. db is a pool.
func (r *Runner) Run(ctx context.Context, db DB) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("timers: run: the runner runs already: make another, or call Run once")
	}
	defer r.running.Store(false)
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	in := &run{db, work}
	r.begin(in)
	r.all.Go(func() { r.claims(ctx, in) })
	r.all.Go(func() { r.handsOut(ctx) })
	r.all.Go(func() { r.renews(ctx, in) })
	<-ctx.Done()
	r.stop()
	cut := time.AfterFunc(grace, end)
	defer cut.Stop()
	r.all.Wait() // a claim that is under way ends with work at the latest
	r.release(in, r.takeHeld())
	r.await(grace + lastWait)
	end()
	return r.close(in)
}

func (r *Runner) begin(in *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run, r.stopping = in, false
	r.status.become(Running, "")
}

func (r *Runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	if len(r.calls) == 0 {
		tell(r.quiet)
	}
}

// await waits until no call is at work.
func (r *Runner) await(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for r.busy() {
		select {
		case <-r.quiet:
		case <-timer.C:
			return
		}
	}
}

func (r *Runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls) > 0
}

// close gives back what is left, also what calls have that do not return: they cannot finish it any more.
func (r *Runner) close(in *run) error {
	left := r.takeHeld()
	r.mu.Lock()
	var hanging []string
	for c := range r.calls {
		hanging = append(hanging, c.names()...)
		left = append(left, c.give()...)
		c.abandoned = true
	}
	r.total = 0
	r.status.become(Stopped, "call Run")
	r.mu.Unlock()
	r.release(in, left)
	if len(hanging) > 0 {
		return &ShutdownError{Timers: hanging}
	}
	return nil
}

// takeHeld empties what waits in memory.
func (r *Runner) takeHeld() []Timer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Timer
	for _, e := range r.held {
		if !e.lost {
			list = append(list, e.Timer)
			r.total--
		}
	}
	r.held = nil
	return list
}

func (r *Runner) release(in *run, list []Timer) {
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.work), lastWrite)
	defer cancel()
	b := &pgx.Batch{}
	b.Queue(indexesSQL)
	Release(b, r.cfg.Schema, list)
	if err := in.db.SendBatch(ctx, b).Close(); err != nil {
		r.log.Warn("timers could not be given back: others have them when the leases pass", "timers", len(list), "error", err.Error())
	}
}

// now is the clock that is asked. The process's own is used for differences only.
func (r *Runner) now() time.Time {
	if r.cfg.Clock != nil {
		return r.cfg.Clock()
	}
	return time.Now()
}

// param is what statements are given for it.
func (r *Runner) param() *time.Time {
	if r.cfg.Clock == nil {
		return nil
	}
	now := r.cfg.Clock()
	return &now
}

// away notes that the database did not answer, or refused.
func (r *Runner) away(in *run, err error) {
	if in.work.Err() != nil {
		return
	}
	r.mu.Lock()
	changed := r.status.become(Waiting, err.Error())
	r.mu.Unlock()
	if changed {
		r.log.Warn("timers wait for the database", "reason", err.Error())
	}
}

// tell leaves a word for whoever waits.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
