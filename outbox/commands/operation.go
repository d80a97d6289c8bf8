package commands

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// Operation returns the operation as it is now. One that is not there, was removed after its end, or belongs to another
// scope is a [*bus.NoOperationError]. A command that was sent in a transaction of its sender's, by the function
// [Enqueue], has an operation only from its end on.
func (q *Queue) Operation(ctx context.Context, scope string, id uuid.UUID) (bus.Operation, error) {
	o, err := q.operation(ctx, scope, id)
	if errors.Is(err, bus.ErrNoOperation) {
		return bus.Operation{}, err // which names it
	}
	if err != nil {
		return bus.Operation{}, fmt.Errorf("commands: operation %s: %w", id, err)
	}
	return o, nil
}

const (
	firstLook = 100 * time.Millisecond
	lastLook  = time.Second
	// watchPatience is how long a watcher waits for a database that is away.
	watchPatience = 30 * time.Second
)

// Watch yields the operation as it is now and after each change, and ends after the state that is an end. Changes in quick
// succession may come as one. It costs nothing but memory, and a look at the operation at each change that a dispatcher of this
// process makes, and otherwise from ten times a second, just after a change, down to once a second.
//
// An error is the last thing that it yields: that of ctx, a [*bus.NoOperationError] as Operation has it, or that of
// a database that has been away for 30 s.
func (q *Queue) Watch(ctx context.Context, scope string, id uuid.UUID) iter.Seq2[bus.Operation, error] {
	return func(yield func(bus.Operation, error) bool) {
		changes.watch(id)
		defer changes.leave(id)
		seen, pause, healthy := int64(0), firstLook, time.Now()
		for {
			changed := changes.next(id)
			o, err := q.Operation(ctx, scope, id)
			switch {
			case ctx.Err() != nil:
				yield(bus.Operation{}, ctx.Err())
				return
			case err != nil && (!consumer.Away(err) || time.Since(healthy) > watchPatience):
				yield(bus.Operation{}, err)
				return
			case err == nil && o.Revision != seen:
				if !yield(o, nil) || o.Finished() {
					return
				}
				seen, pause = o.Revision, firstLook
			}
			if err == nil {
				healthy = time.Now()
			}
			timer := time.NewTimer(pause/2 + rand.N(pause/2))
			select {
			case <-ctx.Done():
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
			pause = min(pause*3/2, lastLook)
		}
	}
}

func (q *Queue) operation(ctx context.Context, scope string, id uuid.UUID) (bus.Operation, error) {
	o := bus.Operation{ID: id, Scope: scope}
	var (
		progress                    float32
		state, stream, token        string
		started, finished, deadline *time.Time
	)
	err := q.pool.QueryRow(ctx, q.find, id.String(), scope).Scan(&o.Type, &state, &progress, &o.Note, &o.Code, &o.Reason, &o.ContentType, &o.Result,
		&stream, &o.Version, &token, &o.Revision, &o.AcceptedAt, &started, &o.ChangedAt, &finished, &deadline)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return o, &bus.NoOperationError{Scope: scope, ID: id}
	case err != nil:
		return o, err
	}
	o.State, o.Progress = bus.OperationState(state), float64(progress)
	if stream != "" {
		if o.Stream, err = eventstore.ParseStreamID(stream); err != nil {
			return o, err
		}
	}
	if token != "" {
		if o.Token, err = eventstore.ParseToken(token); err != nil {
			return o, err
		}
	}
	o.AcceptedAt, o.ChangedAt = o.AcceptedAt.UTC(), o.ChangedAt.UTC()
	for _, at := range []struct {
		from *time.Time
		to   *time.Time
	}{{started, &o.StartedAt}, {finished, &o.FinishedAt}, {deadline, &o.Deadline}} {
		if at.from != nil {
			*at.to = at.from.UTC()
		}
	}
	return o, nil
}

const findSQL = `
SELECT o.type, o.state, o.progress, o.note, o.code, o.reason, o.content_type, o.result, o.stream, o.version, o.token, o.revision,
       o.accepted_at, o.started_at, o.changed_at, o.finished_at, o.deadline
  FROM {schema}.operations o WHERE o.id = $1::uuid AND o.scope = $2`
