package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/eventstore"
)

// Store is what an aggregate needs of an event store; every engine has it.
type Store interface {
	eventstore.Appender
	eventstore.StreamReader
}

// HandleOption changes one call of [Repository.Handle] or [Transact].
type HandleOption interface{ applyHandle(*handleConfig) }

type handleConfig struct {
	retry     Retry
	key       *IdempotencyOption
	want      *eventstore.ExpectedVersion
	refusals  []Refusal
	exclusive bool
	observer  eventstore.Observer
}

// RetryOption is made by [WithRetry].
type RetryOption struct{ retry Retry }

func (o RetryOption) applyHandle(c *handleConfig)         { c.retry = o.retry }
func (o RetryOption) applyRepository(c *repositoryConfig) { c.retry = o.retry }

// WithRetry sets how a command is tried again, for one call or, given to [NewRepository], for all calls of Handle.
func WithRetry(r Retry) RetryOption { return RetryOption{r} }

// ObserverOption is made by [WithObserver].
type ObserverOption struct{ observer eventstore.Observer }

func (o ObserverOption) applyHandle(c *handleConfig)         { c.observer = o.observer }
func (o ObserverOption) applyRepository(c *repositoryConfig) { c.observer = o.observer }

// WithObserver tells o about commands, for one call or, given to [NewRepository], about all loads, commands and snapshots
// of the repository. Default: [eventstore.NopObserver].
func WithObserver(o eventstore.Observer) ObserverOption { return ObserverOption{o} }

// Receipt says what a transaction did.
type Receipt struct {
	// Token is what a reader waits for to see what was written; see [eventstore.Token]. It is zero when nothing was.
	Token eventstore.Token
	// Versions holds the version of every stream that was touched: after the append, or as read when nothing was
	// written.
	Versions map[eventstore.StreamID]eventstore.Version
	// RecordedAt is the time stored in all events of the transaction; zero when nothing was written.
	RecordedAt time.Time
	// Result is what [Work.SetResult] was given.
	Result []byte
	// Repeated: the command's key was known, and this is the outcome of the first call, which wrote what is told here.
	Repeated bool
	// Attempts is how often the work was run, from 1; 0 when a repeat was recognised before.
	Attempts int
	// Merged is how often what was decided was put behind events that left it right; see [Unaffected].
	Merged int

	events map[eventstore.StreamID]int // of the whole command, by stream
}

// Transact runs a unit of work over any number of aggregates, of any types, and stores everything that it decided in
// one append: all of it, or nothing.
//
// run gets a fresh [Work] and reaches aggregates through [Repository.In]. An aggregate that was read but has nothing to
// write is checked in the append: if it moved on since it was read, that is a conflict too, so what was decided holds
// for all that was read. After a conflict, or when the database was busy, everything is run again from the start, as
// [Retry] says; run must therefore have no effects but through the Work. When run writes nothing, nothing is checked
// and nothing sent, but for the outcome of a command with a key.
//
// An error of run comes back as it is and nothing is written. When the tries are used up, the last error comes back
// wrapped: an [*eventstore.ConflictError], or one that matches [eventstore.ErrBusy]. An append whose answer was lost is
// sent again under the same event ids, so that the caller gets a certain answer; only if that fails too, the error
// matches [eventstore.ErrUnconfirmed]. A panic of run passes through, and nothing is written.
//
// See [WithIdempotencyKey] for commands that may be sent more than once, and [Exclusive] for streams that are written
// all the time.
func Transact(ctx context.Context, store Store, run func(*Work) error, opts ...HandleOption) (Receipt, error) {
	c := command{store: store, operation: "transact", name: "transact", run: run}
	for _, opt := range opts {
		opt.applyHandle(&c.config)
	}
	if c.config.want != nil {
		return Receipt{}, misuse("IfVersion was given to Transact, which does not know the aggregate that is meant: compare Member.Version in the work")
	}
	return c.execute(ctx)
}

// execute carries the command out and tells the observer.
func (c *command) execute(ctx context.Context) (Receipt, error) {
	start := time.Now()
	receipt, err := c.carryOut(ctx)
	c.observe(time.Since(start), receipt, err)
	return receipt, err
}

// carryOut is a command from its key to its outcome.
func (c *command) carryOut(ctx context.Context) (receipt Receipt, err error) {
	c.retry = c.config.retry.WithDefaults()
	if c.config.key == nil {
		c.config.key = keyOfContext(ctx)
	}
	if c.config.key != nil {
		if c.key, err = newKeyed(ctx, c.store, c.config.key, c.operation, c.config.refusals); err != nil {
			return Receipt{}, err
		}
		leave, waited, err := enterGate(ctx, c.key.store, c.key.claim, c.config.key.tell)
		if err != nil {
			return Receipt{}, fmt.Errorf("aggregate: %s: %w", c.operation, err)
		}
		c.key.doubtful = waited || recentKeys.has(c.key.claim) || repeats.high()
		defer func() {
			if err == nil || receipt.Repeated || c.key.refused {
				recentKeys.add(c.key.claim)
			}
			leave(err == nil || receipt.Repeated)
			repeats.note(receipt.Repeated)
		}()
	}
	defer c.leaveLanes()
	for try := 1; ; try++ {
		receipt, err = c.try(ctx, try > 1 && try > c.retry.Retries)
		receipt.Attempts, receipt.Merged = c.attempts, c.merged
		var again *retryableError
		if !errors.As(err, &again) {
			return receipt, err
		}
		if try > c.retry.Retries {
			return receipt, fmt.Errorf("aggregate: %s: gave up after %d attempts: %w", c.operation, try, again.err)
		}
		if c.hurries() {
			continue
		}
		if err := c.retry.Wait(ctx, try); err != nil {
			return receipt, fmt.Errorf("aggregate: %s: %w after %d attempts, the last: %w", c.operation, err, try, again.err)
		}
	}
}

// try is one try of the command: look whether it was carried out before if there is reason to, decide (or find that what
// was decided stands), append.
func (c *command) try(ctx context.Context, last bool) (receipt Receipt, err error) {
	if c.key != nil && (c.key.doubtful || c.attempts > 0) {
		outcome, known, err := c.key.first(ctx)
		if err != nil {
			return Receipt{}, classify(c.operation, err)
		}
		if known {
			return c.repeat(outcome)
		}
	}
	defer func() {
		if p := recover(); p != nil {
			receipt, err = c.panicked(ctx, p)
		}
	}()
	succeeded := false
	defer func() {
		if !succeeded && c.work != nil { // also when a decision panics
			c.work.forget()
		}
	}()
	locker := c.locker(last)
	switch {
	case locker != nil:
		if err := c.enterLanes(ctx); err != nil {
			return Receipt{}, err
		}
		receipt, err = c.exclusively(ctx, locker)
	case c.stands(ctx):
		c.merged++
		receipt, err = c.append(ctx)
	default:
		if err := c.enterLanes(ctx); err != nil {
			return Receipt{}, err
		}
		if refusal := c.decide(ctx); refusal != nil {
			return c.refuse(ctx, refusal)
		}
		receipt, err = c.append(ctx)
	}
	succeeded = err == nil && !receipt.Repeated
	return receipt, err
}

// append stores what was decided.
func (c *command) append(ctx context.Context) (Receipt, error) {
	if !c.hasToSend() {
		return c.committed(ctx, stored{})
	}
	done, err := certain(ctx, c.retry, func() (stored, error) { return c.send(ctx, c.plainly()) })
	if err != nil {
		return c.failed(ctx, err)
	}
	return c.committed(ctx, done)
}
