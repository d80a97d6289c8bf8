package aggregate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
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

type handleConfig struct{ retry Retry }

// RetryOption is made by [WithRetry].
type RetryOption struct{ retry Retry }

func (o RetryOption) applyHandle(c *handleConfig)         { c.retry = o.retry }
func (o RetryOption) applyRepository(c *repositoryConfig) { c.retry = o.retry }

// WithRetry sets how a command is run again, for one call or, given to [NewRepository], for all calls of Handle.
func WithRetry(r Retry) RetryOption { return RetryOption{r} }

// Receipt says what a transaction did.
type Receipt struct {
	// Token is what a reader waits for to see what was written; see [eventstore.Token]. It is zero when nothing was.
	Token eventstore.Token
	// Versions holds the version of every stream that was touched: after the append, or as read when nothing was
	// written.
	Versions map[eventstore.StreamID]eventstore.Version
	// RecordedAt is the time stored in all events of the transaction; zero when nothing was written.
	RecordedAt time.Time
	// Attempts is how often the work was run, from 1.
	Attempts int
}

// Transact runs a unit of work over any number of aggregates, of any types, and stores everything that it decided in
// one append: all of it, or nothing.
//
// run gets a fresh [Work] and reaches aggregates through [Repository.In]. An aggregate that was read but has nothing to
// write is checked in the append: if it moved on since it was read, that is a conflict too, so what was decided holds
// for all that was read. After a conflict, or when the database was busy, everything is run again from the start, as
// [Retry] says; run must therefore have no effects but through the Work. When run writes nothing, nothing is checked
// and nothing sent.
//
// An error of run comes back as it is and nothing is written. When the retries are used up, the last error comes back
// wrapped: an [*eventstore.ConflictError], or one that matches [eventstore.ErrBusy]. An append whose answer was lost is
// sent again under the same event ids, so that the caller gets a certain answer; only if that fails too, the error
// matches [eventstore.ErrUnconfirmed]. A panic of run passes through, and nothing is written.
func Transact(ctx context.Context, store Store, run func(*Work) error, opts ...HandleOption) (Receipt, error) {
	var config handleConfig
	for _, opt := range opts {
		opt.applyHandle(&config)
	}
	return transact(ctx, store, run, config, "transact")
}

func transact(ctx context.Context, store Store, run func(*Work) error, config handleConfig, operation string) (Receipt, error) {
	retry := config.retry.withDefaults()
	for attempt := 1; ; attempt++ {
		receipt, err := attemptOnce(ctx, store, run, retry, operation)
		receipt.Attempts = attempt
		var again *retryableError
		if !errors.As(err, &again) {
			return receipt, err
		}
		if attempt > retry.Retries {
			return receipt, fmt.Errorf("aggregate: %s: gave up after %d attempts: %w", operation, attempt, again.err)
		}
		if err := retry.wait(ctx, attempt); err != nil {
			return receipt, fmt.Errorf("aggregate: %s: %w after %d attempts, the last: %w", operation, err, attempt, again.err)
		}
	}
}

// retryableError marks an error of the store after which the work is run again. An error of the domain never carries
// it, so a rule that happens to return a conflict of its own is not run again.
type retryableError struct{ err error }

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

// classify wraps an error of the store.
func classify(operation string, err error) error {
	if eventstore.IsRetryable(err) && !errors.Is(err, eventstore.ErrUnconfirmed) {
		return &retryableError{err}
	}
	return fmt.Errorf("aggregate: %s: %w", operation, err)
}

func attemptOnce(ctx context.Context, store Store, run func(*Work) error, retry Retry, operation string) (Receipt, error) {
	w := &Work{ctx: ctx, store: store, operation: operation, members: map[eventstore.StreamID]member{}}
	defer w.over.Store(true)
	err := run(w)
	w.over.Store(true)
	switch {
	case w.failed != nil:
		// Whatever run made of it: it decided without knowing what it wanted to know.
		return Receipt{}, w.failed
	case err != nil:
		return Receipt{}, err
	}
	return w.commit(ctx, retry)
}

// Work is one run of a unit of work. It is for the goroutine that runs it, and ends when run returns; using it later
// is an error that matches [ErrMisuse].
type Work struct {
	ctx       context.Context // of the Transact that made it; a Work lives no longer than that call
	store     Store
	operation string
	members   map[eventstore.StreamID]member
	order     []member // as first touched
	failed    error    // the first failure of the store, or misuse: the work cannot succeed any more
	over      atomic.Bool
}

// member is the part of an aggregate in a work that does not depend on its types.
type member interface {
	stream() eventstore.StreamID
	version() eventstore.Version // with what is pending
	write() (w eventstore.Write, touched bool)
	created() bool
	committed(ctx context.Context)
}

func (w *Work) fail(err error) error {
	if w.failed == nil {
		w.failed = err
	}
	return err
}

// commit stores what the members have pending. Writes are in the order in which the members were first touched.
func (w *Work) commit(ctx context.Context, retry Retry) (Receipt, error) {
	receipt := Receipt{Versions: map[eventstore.StreamID]eventstore.Version{}}
	var writes []eventstore.Write
	events := 0
	for _, m := range w.order {
		if write, touched := m.write(); touched {
			writes = append(writes, write)
			events += len(write.Events)
			receipt.Versions[m.stream()] = m.version()
		}
	}
	if events == 0 {
		return receipt, nil
	}
	result, err := appendCertain(ctx, w.store, retry, writes)
	if err != nil {
		return Receipt{}, w.explain(err)
	}
	for stream, version := range result.Versions {
		receipt.Versions[stream] = version
	}
	receipt.Token, receipt.RecordedAt = result.Token, result.RecordedAt
	for _, m := range w.order {
		m.committed(ctx)
	}
	return receipt, nil
}

// explain turns a conflict on an aggregate that was to be created into an [*ExistsError].
func (w *Work) explain(err error) error {
	var conflict *eventstore.ConflictError
	if errors.As(err, &conflict) && conflict.Actual > 0 {
		if m := w.members[conflict.Stream]; m != nil && m.created() {
			return &ExistsError{Stream: conflict.Stream, Version: conflict.Actual}
		}
	}
	return classify(w.operation, err)
}

// same reports whether two values are one store. What a repository has can be compared; what Transact was given may not.
func same(a, b any) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && (t == nil || t.Comparable()) && a == b
}
