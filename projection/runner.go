package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Source is what projections follow. The logs of the engines, such as *postgres.Log, satisfy it, and so does
// *outbox.Subscription, whose messages a runner receives instead of reading them. It is an interface with the methods
//
//	// at most limit events after a position that f selects, and how far the page is complete
//	ReadPage(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.Page, error)
//	// returns when the log may have something beyond a position, or when ctx ends
//	Wait(ctx context.Context, after eventstore.Position) error
//
// An error of ReadPage that matches [eventstore.ErrHistory] stops the projection; any other is waited out.
type Source = consumer.Source

// Config of a [Runner]. The zero value works.
type Config struct {
	// Lease is how long a process that fell silent keeps the others from taking over its projections. A transaction
	// that rests longer is ended by the server. Default 10 s.
	Lease time.Duration
	// BatchSize is the greatest number of events that one transaction applies. Default 500.
	BatchSize int
	// OnFailure says what becomes of an event that fails. Default [Park].
	OnFailure OnFailure
	// Attempts is how often an event that fails is applied, with growing pauses, before its sequence is parked or, with
	// [Stop], its projection stops. Default 5.
	Attempts int
	// RetryBase and RetryCap bound the pauses of [Park]: each is random between nothing and a bound, which is RetryBase at
	// first and doubles up to RetryCap. Default 1 s and 60 s: five attempts take 15 s at most.
	RetryBase, RetryCap time.Duration
	// Classify judges what handlers return: whether another attempt may help, whether none does, or whether something is
	// away that all events need. Errors of the connection to the database, and events that cannot be decoded or have an
	// unknown type, are judged without it. Default: every other error is transient.
	Classify eventstore.Classifier
	// MaxParked is how many sequences a projection sets aside; before the next event that fails it stops. Default 10,000, at
	// most 100,000.
	MaxParked int
	// Timeout is how long handlers, or folds, may take for one transaction. Then the context that they got ends, and they have
	// failed. When they ignore that too, they are left to themselves: their transaction is rolled back, what they do takes no
	// effect any more, and everything else goes on. Events that took too long together are tried again one by one, each with a
	// time of its own. Health says which handlers still run; beyond 64 in a process the projection stops. Default 30 s.
	Timeout time.Duration
	// Clock says when what was set aside is tried again. Default [time.Now].
	Clock func() time.Time
	// Logger gets a line per change of state, never one per event. Default: none.
	// Besides there are one for each sequence that is parked, or released after that, and one for where a panic came from:
	// at most ten of a kind in a second, and one that counts what was left out.
	Logger *slog.Logger
	// Observer is told of each batch, of failures, and of what is set aside. Default: none.
	Observer eventstore.Observer

	probe func(place string)
}

// OnFailure says what becomes of an event that fails: [Park] or [Stop].
type OnFailure = consumer.OnFailure

const (
	// Park sets the event's sequence aside, which are the events with its partition key. It is tried again after a pause,
	// and when it has had its attempts, or when none can help, it waits for people. Everything else goes on; later events
	// of the sequence wait behind it, and are applied in order.
	Park = consumer.ParkSequence
	// Stop tries the event again in place while everything waits, and stops the projection just before it when it has had
	// its attempts.
	Stop = consumer.StopConsumer
)

// Runner follows the log and applies projections, each in its own transactions and at its own pace. Any number of
// processes may run the same projections: one of them works on each, the others wait to take over.
//
// An event that fails sets its sequence aside, which are the events with its partition key, and everything else goes on; see
// [Park]. A projection stops when it has set aside as many as Config.MaxParked, with [Stop] when an event has failed
// Config.Attempts times, and when the log is not the one it had read. The others go on. It is tried again by a process that
// starts later, or that was waiting to take over, but not by the one that gave up: deploying a fixed program is all that is
// needed.
//
// A Runner is safe for concurrent use, but Run only once at a time.
type Runner struct {
	pool    *pgxpool.Pool
	source  Source
	inner   consumer.Config
	defined []*definition
	workers []*consumer.Worker
	running atomic.Bool
}

// NewRunner checks definitions and configuration; it does not touch the database. The runner opens connections of its
// own with pool's settings: one per projection and two for leases. The errors of all faults are joined.
func NewRunner(pool *pgxpool.Pool, source Source, cfg Config, projections ...Definition) (*Runner, error) {
	inner := consumer.Config{
		Lease: cfg.Lease, BatchSize: cfg.BatchSize, OnFailure: cfg.OnFailure, Attempts: cfg.Attempts, RetryBase: cfg.RetryBase,
		RetryCap: cfg.RetryCap, Classify: cfg.Classify, MaxParked: cfg.MaxParked, Clock: cfg.Clock, Logger: cfg.Logger,
		Timeout: cmp.Or(cfg.Timeout, consumer.DefaultTimeout), Observer: cfg.Observer, Probe: cfg.probe, Home: pool,
	}
	var faults []error
	if pool == nil {
		faults = append(faults, errors.New("projection: new runner: pool is nil: pass the pool of the read models' database"))
	}
	if source == nil {
		faults = append(faults, errors.New("projection: new runner: source is nil: pass the store's Log, or an outbox.Subscription"))
	}
	if len(projections) == 0 {
		faults = append(faults, errors.New("projection: new runner: there are no projections: pass at least one"))
	}
	if err := inner.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("projection: new runner: %w", err))
	}
	defined, err := define(projections)
	faults = append(faults, err)
	for _, d := range defined {
		if d.inline {
			faults = append(faults, fmt.Errorf("projection: define %s: Inline: is true: pass it to the Inline hook, not to a Runner", d))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return newRunner(pool, source, inner, defined), nil
}

func newRunner(pool *pgxpool.Pool, source Source, inner consumer.Config, defined []*definition) *Runner {
	r := &Runner{pool: pool, source: source, inner: inner, defined: defined}
	for _, d := range defined {
		r.workers = append(r.workers, consumer.New(consumer.Spec{
			Ref: d.ref, Filter: eventstore.Filter{Types: d.types}, Applier: d.applier,
		}, source, inner))
	}
	return r
}

// Run works until ctx ends, and then returns nil within two seconds: a batch in hand may finish for one second. It
// returns at once with a [*NotInstalledError] or [*ShapeError] for each projection whose tables are missing or
// different, and with a [*ShutdownError] when a handler ignores the end of its context. A database that is away is
// waited for.
func (r *Runner) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("projection: run: the runner runs already: make another Runner, or call Run once")
	}
	defer r.running.Store(false)
	db, err := consumer.Pool(context.WithoutCancel(ctx), r.pool, len(r.workers))
	if err != nil {
		return fmt.Errorf("projection: run: %w", err)
	}
	err = consumer.Patiently(ctx, func(ctx context.Context) error {
		var faults []error
		for _, d := range r.defined {
			faults = append(faults, d.check(ctx, db))
		}
		return errors.Join(faults...)
	})
	if err != nil {
		db.Close()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return consumer.Run(ctx, db, r.workers...)
}
