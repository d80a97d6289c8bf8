package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/internal/owner"
	"github.com/daybook-go/daybook/internal/retry"
)

var (
	errLost     = errors.New("consumer: another owner has taken over")
	errPaused   = errors.New("consumer: paused by an operator")
	errShutdown = errors.New("consumer: shutting down")
	errMoved    = errors.New("consumer: the segment falls to another process")
)

// grace is how long a batch may go on after its worker was asked to end; together with what the end itself needs it
// stays below two seconds.
const grace = time.Second

// Worker applies one consumer. It is made by [New] and run by [Run]; Status is safe for concurrent use.
type Worker struct {
	spec   Spec
	source Source
	cfg    Config
	owner  string
	log    *slog.Logger
	sql    statements
	loop   func(*Tenure) error // what the worker does while it owns the segment
	member *Member             // says whether the segment is this process's; nil: whoever takes it first has it

	// probing: something was away, and one event alone finds out whether it is back. Only the worker's goroutine uses it.
	probing bool
	// most is how many events are tried at once since some took too long; 0: any number. As probing.
	most int

	mu     sync.Mutex
	status Status
}

type statements struct{ settings, take, ahead, follow, renew, release, stop, commit string }

// New returns a worker that applies the events of source. It does nothing until it is run. cfg must be valid.
func New(spec Spec, source Source, cfg Config) *Worker {
	w := newWorker(spec, cfg, applyEvents)
	w.source = source
	w.sql.settings = settingsSQL(w.cfg.Lease, spec.Applier.Relaxed())
	return w
}

func newWorker(spec Spec, cfg Config, loop func(*Tenure) error) *Worker {
	cfg = cfg.withDefaults()
	schema := pgx.Identifier{spec.Store}.Sanitize()
	in := func(sql string) string { return strings.ReplaceAll(sql, "{schema}", schema) }
	w := &Worker{
		spec: spec, cfg: cfg, owner: owner.Name(), loop: loop,
		log: cfg.Logger.With("consumer", spec.Name, "version", spec.Version),
		sql: statements{
			take: in(takeSQL), ahead: in(aheadSQL), follow: in(followSQL), renew: in(renewSQL), release: in(releaseSQL),
			stop: in(stopSQL), commit: in(commitSQL),
		},
	}
	if spec.Applier == nil { // of several segments
		w.log = w.log.With("segment", spec.Segment)
	}
	w.status = Status{State: Standby, Since: time.Now()}
	return w
}

// Status returns what the worker is doing.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Hung, _ = w.cfg.calls.of(w)
	return s
}

// become notes a change of state, with one line in the log.
func (w *Worker) become(state State, reason string) {
	w.mu.Lock()
	old := w.status
	changed := old.State != state
	if changed {
		w.status.Since = time.Now()
	}
	w.status.State, w.status.Reason = state, reason
	w.mu.Unlock()
	if !changed {
		return
	}
	level := slog.LevelInfo
	switch state {
	case Waiting, Retrying:
		level = slog.LevelWarn
	case Stopped:
		level = slog.LevelError
	}
	w.log.Log(context.Background(), level, "consumer "+string(state), "from", string(old.State), "reason", reason)
}

// run owns the consumer whenever it can, until ctx ends or the consumer has stopped.
func (w *Worker) run(ctx context.Context, db *pgxpool.Pool) {
	var pauses backoff
	for w.turn(ctx) {
		l, state, why, err := w.enter(ctx, db)
		switch {
		case ctx.Err() != nil && l == nil:
			return
		case err != nil:
			w.become(Waiting, err.Error())
			pause(ctx, pauses.next())
			continue
		case l == nil:
			w.become(state, why)
			pause(ctx, jitter(min(w.cfg.Lease/4, time.Second)))
			continue
		}
		if l.resumed {
			w.log.Info("consumer resumed: it had stopped, and this process tries again", "position", l.applied.Floor())
		}
		w.cfg.Probe(ProbeTaken)
		err = w.tenure(ctx, db, l, pauses.reset)
		var stop *stopError
		switch {
		case errors.As(err, &stop):
			if !w.stop(ctx, db, l, stop.Error()) {
				continue
			}
			w.leave()
			return
		case ctx.Err() != nil:
			w.release(ctx, db, l)
			w.become(Standby, "shut down")
			return
		case errors.Is(err, errLost):
			w.become(Standby, err.Error())
		case errors.Is(err, errMoved):
			w.release(ctx, db, l)
			w.become(Standby, "")
		case errors.Is(err, errPaused):
			w.release(ctx, db, l)
			w.become(Paused, "")
		default:
			// The outcome of the last commit may be unknown: only the floor tells, and taking the lease again reads it.
			w.become(Waiting, err.Error())
			w.probing = true
			pause(ctx, pauses.next())
		}
	}
}

// stopError ends the consumer until it is run again.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }
func (e *stopError) Unwrap() error { return e.err }

// stop records the reason, also when the worker is asked to end meanwhile. While the database is away it tries on: the
// lease, not renewed any more, lets another process in, which comes to its own verdict. It reports false when
// another had taken over before: what a worker believes that was replaced means nothing, and it stands by.
func (w *Worker) stop(ctx context.Context, db *pgxpool.Pool, l *lease, reason string) bool {
	reason = retry.Text(reason)
	w.become(Stopped, reason)
	var pauses backoff
	for {
		switch err := w.writeStop(ctx, db, l, reason); {
		case err == nil:
			return true
		case errors.Is(err, errLost):
			w.become(Standby, err.Error())
			return false
		default:
			w.log.Warn("consumer could not record why it stopped", "error", err.Error())
		}
		if !pause(ctx, pauses.next()) {
			return true
		}
	}
}

// settingsSQL bounds what a process that stands still can hold, for this transaction only. lock_timeout is shorter
// than statement_timeout, so that waiting for somebody's lock is not taken for a statement that is too slow.
func settingsSQL(lease time.Duration, relaxed bool) string {
	ms := lease.Milliseconds()
	sql := fmt.Sprintf("SELECT set_config('idle_in_transaction_session_timeout', '%d', true), set_config('statement_timeout', '%d', true), "+
		"set_config('lock_timeout', '%d', true)", ms, ms, max(ms/2, 1))
	if relaxed {
		// Only for the tables of views: their plans must not turn into scans when a table was analysed while it was empty,
		// nor be made anew for each batch, which takes longer than running them, nor be compiled because what is off makes
		// them look dear (jit). And a commit that a crash takes back is applied again from the log.
		sql += ", set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
	}
	return sql
}

// commitSQL is the fence: it raises unless the worker still owns the segment and the progress is where it left it.
const commitSQL = `SELECT {schema}.commit_batch($1, $2, $3, $4, $5, $6, $7, $8::text[], $9::int[], $10::bigint[], $11::bigint[], $12)`

// unfencedSQL moves the checkpoint whoever asks; see Config.unfenced.
const unfencedSQL = `UPDATE {schema}.segments SET floor = greatest(floor, $3) WHERE consumer = $1 AND version = $2`
