package projection

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// ReadOption changes how a view is read.
type ReadOption func(*readOptions)

type readOptions struct {
	token   eventstore.Token
	within  time.Duration
	lenient bool
}

// AtLeast waits until the view has seen token before it reads; the errors of the wait are those of [Waiter.WaitFor].
// The reader must not hold a snapshot: within a REPEATABLE READ transaction the wait cannot see progress.
func AtLeast(token eventstore.Token) ReadOption { return func(o *readOptions) { o.token = token } }

// Within bounds the wait of [AtLeast]; the error is then a [*StaleError]. Without it only the context does.
func Within(d time.Duration) ReadOption { return func(o *readOptions) { o.within = d } }

// Lenient reads what there is when the wait of [AtLeast] was too long or is in vain because a sequence is set aside, in
// place of a [*StaleError] or a [*ParkedError]. The row may then be older than the token, and nothing says so: who has to
// know reads without Lenient first.
func Lenient() ReadOption { return func(o *readOptions) { o.lenient = true } }

// Get returns the row of key, or [ErrNotFound].
func (v View[K, S]) Get(ctx context.Context, db Querier, key K, opts ...ReadOption) (S, error) {
	var state S
	t, err := v.forReading(ctx, db, opts)
	if err != nil {
		return state, err
	}
	at := reflect.ValueOf(&key).Elem()
	if err := settleAll(t.keys, at); err != nil {
		return state, err
	}
	args, _, err := collectAll(t.keys, 1, func(int) reflect.Value { return at })
	if err != nil {
		return state, err
	}
	for i := range args { // a column of one
		args[i] = reflect.ValueOf(args[i]).Index(0).Interface()
	}
	found := false
	err = probe(ctx, db, func(rows pgx.Rows) error {
		cells, targets := cellsFor(t.values)
		var one int
		for rows.Next() {
			found = true
			if err := rows.Scan(append(targets, &one)...); err != nil {
				return err
			}
			if err := restoreAll(t.values, cells, reflect.ValueOf(&state).Elem()); err != nil {
				return err
			}
		}
		return rows.Err()
	}, t.get, args...)
	if err != nil {
		return state, v.readError(err)
	}
	if !found {
		return state, fmt.Errorf("%w: %v in %q version %d", ErrNotFound, key, v.Name, v.Version)
	}
	return state, nil
}

// Row is one row of a view.
type Row[K comparable, S any] struct {
	Key   K
	State S
}

// All yields every row in the order of the keys; texts are ordered by their bytes. It is one query, so the rows are of
// one moment, and memory stays flat. An error is yielded once and ends the sequence.
func (v View[K, S]) All(ctx context.Context, db Querier, opts ...ReadOption) iter.Seq2[Row[K, S], error] {
	return func(yield func(Row[K, S], error) bool) {
		t, err := v.forReading(ctx, db, opts)
		if err != nil {
			yield(Row[K, S]{}, err)
			return
		}
		rows, err := db.Query(ctx, t.all)
		if err != nil {
			yield(Row[K, S]{}, v.readError(err))
			return
		}
		defer rows.Close()
		keys, targets := cellsFor(t.keys)
		values, valueTargets := cellsFor(t.values)
		targets = append(targets, valueTargets...)
		for rows.Next() {
			var r Row[K, S]
			err := rows.Scan(targets...)
			if err == nil {
				err = restoreAll(t.keys, keys, reflect.ValueOf(&r.Key).Elem())
			}
			if err == nil {
				err = restoreAll(t.values, values, reflect.ValueOf(&r.State).Elem())
			}
			if err != nil {
				yield(Row[K, S]{}, v.readError(err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Row[K, S]{}, v.readError(err))
		}
	}
}

func (v View[K, S]) forReading(ctx context.Context, db Querier, opts []ReadOption) (*table, error) {
	var o readOptions
	for _, opt := range opts {
		opt(&o)
	}
	waiting := ctx
	if o.within > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, o.within)
		defer cancel()
	}
	if err := NewWaiter(db, WaiterConfig{}).WaitFor(waiting, o.token, v); err != nil {
		var stale *StaleError
		var parked *ParkedError
		if !o.lenient || ctx.Err() != nil || !errors.As(err, &stale) && !errors.As(err, &parked) {
			return nil, err
		}
	}
	t, err := v.table()
	if err != nil {
		return nil, fmt.Errorf("projection: define %q version %d: %w", v.Name, v.Version, err)
	}
	return t, nil
}

func (v View[K, S]) readError(err error) error {
	if missing(err) {
		return &NotInstalledError{v.Name, v.Version, "its table is not there"}
	}
	return fmt.Errorf("projection: read %q version %d: %w", v.Name, v.Version, err)
}
