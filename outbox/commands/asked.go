package commands

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate/bus"
)

// CodeSagaOver: the step of a saga that sent the command is over, so it is not carried out, also when it is delivered late or
// again. It is a refusal.
const CodeSagaOver = "saga_over"

// WasCarriedOut tells the handler of a saga's undo whether the command that it undoes had taken effect in the store: if not,
// it never will. It is not known outside of such a handler, and when the type of that command is declared
// [bus.WithoutKey], when its handler does not bring its outcome, or, unless it was carried out, when none is registered here. An effect that
// is older than the store keeps keys, and of which the saga was never told, counts as none. What its handler did outside of
// the store is not covered: there something may have happened although done is false.
func WasCarriedOut(ctx context.Context) (done, known bool) {
	u, _ := ctx.Value(undoneKey{}).(undone)
	return u.done, u.known
}

type undoneKey struct{}

// undone is what is known of a command that is undone.
type undone struct{ done, known bool }

// standing is what a saga has stored about a command.
type standing struct {
	closed       bool
	state        bus.OperationState // "sent" before the saga knows of an end
	code, reason string
	done         bool        // somebody has been told that it was carried out
	command      bus.Command // of one that is undone, else nothing
}

// ask finds out, in one query, how the commands of sagas in a batch stand. A step that is closed while its command waits in
// the batch is not noticed here, and need not be: a step is closed together with the sending of its undo, which seals
// the command under its key before it does anything, or because its command can have had no effect; when it has one all
// the same, its answer comes to the saga as a late one. A batch that has the undo has been read after its step was closed.
func (b *batch) ask(ctx context.Context) error {
	if len(b.asking) == 0 {
		return nil
	}
	var ids, undone []string
	for _, e := range b.asking {
		ids = append(ids, e.command.ID.String())
		if e.command.Undoes != uuid.Nil {
			undone = append(undone, e.command.Undoes.String())
		}
	}
	found, err := b.standings(ctx, ids, undone)
	if err != nil {
		return fmt.Errorf("commands: ask how the commands of sagas stand: %w", err)
	}
	for _, e := range b.asking {
		e.standing, e.undoes = found[e.command.ID], found[e.command.Undoes]
	}
	return nil
}

func (d *Dispatcher) standings(ctx context.Context, ids, undone []string) (map[uuid.UUID]*standing, error) {
	rows, err := d.db.Query(ctx, d.sql.standing, ids, append([]string{}, undone...)) // nil would be NULL
	if err != nil {
		return nil, err
	}
	found := make(map[uuid.UUID]*standing, len(ids)+len(undone))
	var id, saga string
	var s standing
	_, err = pgx.ForEachRow(rows, []any{
		&id, &s.closed, &s.state, &s.code, &s.reason, &s.done, &saga, &s.command.Type, &s.command.Target, &s.command.ContentType, &s.command.Data,
	}, func() error {
		one := s
		var err error
		if one.command.ID, err = uuid.Parse(id); err != nil {
			return err
		}
		one.command.Scope = sagaScope(saga)
		found[one.command.ID], s.command.Data = &one, nil
		return nil
	})
	return found, err
}

// over is the end of a command that must not be carried out, or not again.
func (s *standing) over() (verdict, bool) {
	switch {
	case s == nil:
		return verdict{state: bus.OperationRefused, code: CodeSagaOver, reason: "its saga is over and was removed; it is not carried out"}, true
	case s.closed:
		return verdict{state: bus.OperationRefused, code: CodeSagaOver, reason: "its step is over; it is not carried out"}, true
	case s.state.Finished():
		return verdict{state: s.state, code: s.code, reason: s.reason}, true
	}
	return verdict{}, false
}

// carryOutForSaga is carryOut for a command of a saga. It is not carried out when its step is over. An undo makes sure first
// that what it undoes takes no effect any more.
func (b *batch) carryOutForSaga(ctx context.Context, e *entry, left allowance) (verdict, error) {
	if v, over := e.standing.over(); over {
		return v, nil
	}
	if e.command.Undoes != uuid.Nil && left.each > 0 {
		u, fault, err := b.settleUndone(ctx, e.undoes, e.command)
		switch {
		case err != nil:
			return verdict{}, err
		case fault != nil:
			return b.seal(ctx, e.command, verdict{
				state: bus.OperationFailed, code: CodeExhausted, reason: "the command that it undoes could not be ended for good: " + fault.Error(),
			})
		}
		ctx = context.WithValue(ctx, undoneKey{}, u)
	}
	v, err := b.Dispatcher.carryOut(ctx, e.command, left.each)
	if err != nil || !v.ended {
		return v, err
	}
	// Somebody has ended it under its key: its undo, or who gave it up.
	for {
		found, err := b.standings(ctx, []string{e.command.ID.String()}, nil)
		if err == nil {
			if late, over := found[e.command.ID].over(); over {
				return late, nil
			}
			return v, nil
		}
		if waited, err := b.waitOut(ctx, err); err != nil || !waited {
			return v, err
		}
	}
}

// settleUndone ends a command for good, so that it takes no effect any more if it has had none: not when it comes late, and
// not in a process that stands still in its midst. The first error says why that cannot be; the second is that of ctx.
func (d *Dispatcher) settleUndone(ctx context.Context, do *standing, undo bus.Command) (u undone, fault, err error) {
	switch {
	case do == nil: // removed: nobody carries it out any more
		return undone{}, nil, nil
	case do.done || do.state == bus.OperationDone:
		return undone{done: true, known: true}, nil, nil
	}
	c := do.command
	c.Metadata = undo.Metadata
	s, err := d.settle(context.WithValue(ctx, progressKey{}, &progress{}), c)
	switch v := s.verdict; {
	case err != nil:
		return undone{}, nil, err
	case s.ok && v.state == bus.OperationDone:
		return undone{done: true, known: true}, nil, nil
	case s.ok && s.stored && (v.state == bus.OperationExpired || v.state == bus.OperationRefused && v.stored):
		return undone{known: true}, nil, nil
	case s.stored: // its handler does not bring the outcome
		return undone{}, nil, nil
	case s.ok && v.code != CodePanic: // this bus would not carry it out either, or its type has no key
		d.log.Debug("a command that is undone has no key to be ended under", "type", c.Type, "id", c.ID, "state", v.state, "code", v.code)
		return undone{}, nil, nil
	}
	return undone{}, s.err, nil
}

// standingSQL reads what is to be carried out ($1), and with its bytes what is undone ($2). The operation may know earlier
// than the saga that a command was carried out.
const standingSQL = `
SELECT c.command::text, c.closed, c.state, c.code, c.reason,
       u.undone AND EXISTS (SELECT FROM {schema}.operations o WHERE o.id = c.command AND o.state = 'done'),
       c.saga, c.type, c.target, c.content_type, CASE WHEN u.undone THEN c.data ELSE '' END
  FROM {schema}.saga_commands c, LATERAL (SELECT c.command = ANY ($2::text[]::uuid[]) AS undone) u
 WHERE c.command = ANY ($1::text[]::uuid[] || $2::text[]::uuid[])`
