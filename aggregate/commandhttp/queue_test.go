package commandhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// queue keeps operations in memory, and carries them out when the test says so.
type queue struct {
	mu      sync.Mutex
	all     map[uuid.UUID]*queued
	byKey   map[string]uuid.UUID
	changed chan struct{} // closed with each change
	err     error
	watched int // how often Watch was called
	left    int // and how often it has ended
}

type queued struct {
	command bus.Command
	op      bus.Operation
}

func newQueue() *queue {
	return &queue{all: make(map[uuid.UUID]*queued), byKey: make(map[string]uuid.UUID), changed: make(chan struct{})}
}

var _ bus.Operations = (*queue)(nil)

func (q *queue) Enqueue(_ context.Context, c bus.Command) (uuid.UUID, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return uuid.Nil, q.err
	}
	name := c.Scope + "\x00" + c.Key
	if id, known := q.byKey[name]; known {
		if string(q.all[id].command.Data) != string(c.Data) {
			return uuid.Nil, &eventstore.ReusedKeyError{Scope: c.Scope, Key: c.Key}
		}
		return id, nil
	}
	if c.Data == nil || c.Payload != nil {
		return uuid.Nil, errors.New("not prepared")
	}
	now := time.Now()
	c.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) // not that of the call
	q.byKey[name] = c.ID
	q.all[c.ID] = &queued{command: c, op: bus.Operation{
		ID: c.ID, Scope: c.Scope, Type: c.Type, State: bus.OperationAccepted, Revision: 1, AcceptedAt: now, ChangedAt: now, Deadline: c.Deadline,
	}}
	return c.ID, nil
}

func (q *queue) Operation(_ context.Context, scope string, id uuid.UUID) (bus.Operation, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found, ok := q.all[id]
	if !ok || found.op.Scope != scope {
		return bus.Operation{}, &bus.NoOperationError{Scope: scope, ID: id}
	}
	return found.op, nil
}

func (q *queue) Watch(ctx context.Context, scope string, id uuid.UUID) iter.Seq2[bus.Operation, error] {
	return func(yield func(bus.Operation, error) bool) {
		q.count(&q.watched)
		defer q.count(&q.left)
		for seen := int64(0); ; {
			q.mu.Lock()
			changed := q.changed
			q.mu.Unlock()
			op, err := q.Operation(ctx, scope, id)
			if err != nil {
				yield(op, err)
				return
			}
			if op.Revision > seen {
				seen = op.Revision
				if !yield(op, nil) || op.Finished() {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(bus.Operation{}, ctx.Err())
				return
			}
		}
	}
}

// watches says how often Watch was called, and how often it has ended.
func (q *queue) watches() (began, ended int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.watched, q.left
}

// count counts and wakes who waits for it.
func (q *queue) count(n *int) { q.change(func() { *n++ }) }

func (q *queue) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	close(q.changed)
	q.changed = make(chan struct{})
}

// until waits until something is so.
func (q *queue) until(ctx context.Context, so func() bool) error {
	for {
		q.mu.Lock()
		done, changed := so(), q.changed
		q.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// edit changes an operation.
func (q *queue) edit(id uuid.UUID, f func(*bus.Operation)) {
	q.change(func() {
		op := &q.all[id].op
		f(op)
		op.Revision++
		op.ChangedAt = time.Now()
	})
}

// run carries an operation out, as a dispatcher does.
func (q *queue) run(ctx context.Context, b *bus.Bus, id uuid.UUID) {
	q.mu.Lock()
	c := q.all[id].command
	q.mu.Unlock()
	q.edit(id, func(op *bus.Operation) { op.State, op.StartedAt = bus.OperationRunning, time.Now() })
	reply, err := b.Dispatch(ctx, c)
	q.edit(id, func(op *bus.Operation) {
		op.State, op.FinishedAt = bus.StateOf(reply, err), time.Now()
		op.Stream, op.Version, op.Token = reply.Stream, reply.Version, reply.Token
		if reply.Result != nil {
			op.Result, _ = json.Marshal(reply.Result)
			op.ContentType = "application/json"
		}
		var refused *aggregate.RefusedError
		switch {
		case errors.Is(err, aggregate.ErrVersion):
			op.Code = "version"
		case errors.As(err, &refused):
			op.Code, op.Reason = refused.Code, refused.Text
		case errors.Is(err, errFunds):
			op.Code, op.Reason = "funds", err.Error()
		case err != nil:
			op.Code, op.Reason = "attempts_exhausted", err.Error()
		}
	})
}
