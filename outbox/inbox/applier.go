package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/consumer"
)

// applier runs the handler.
type applier struct {
	in     *Inbox
	handle Handler
}

// Relaxed implements [consumer.Applier]: what is acknowledged must not be lost by the database.
func (a *applier) Relaxed() bool { return false }

// Plan implements [consumer.Applier].
func (a *applier) Plan(_ context.Context, events []eventstore.RecordedEvent) (consumer.Plan, error) {
	for i, e := range events {
		if e.Type == typeForeign { // a letter, which somebody wants tried again
			return nil, &consumer.EventError{Index: i, Err: &UnreadableError{Message: e.ID.String(), Err: errors.New("it cannot be read, and trying again does not help: discard it")}}
		}
	}
	p := &plan{a: a, events: events}
	if a.in.cfg.Mode == Latest {
		return p.latest()
	}
	return p, nil
}

type plan struct {
	a      *applier
	events []eventstore.RecordedEvent
}

// Load implements [consumer.Plan].
func (p *plan) Load(*pgx.Batch) {}

// Apply implements [consumer.Plan].
func (p *plan) Apply(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	guarded := consumer.Guard(tx)
	for i := range p.events {
		if err := p.run(ctx, tx, guarded, i); err != nil {
			return &consumer.EventError{Index: i, Err: err}
		}
	}
	return nil
}

func (p *plan) run(ctx context.Context, tx, guarded pgx.Tx, i int) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.call(ctx, guarded, p.events[i]); err != nil {
		return err
	}
	return consumer.CheckOpen(tx)
}

func (p *plan) call(ctx context.Context, tx pgx.Tx, e eventstore.RecordedEvent) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = consumer.Panicked("inbox: the handler of "+p.a.in.ref.Name, r)
		}
	}()
	return p.a.handle(ctx, tx, Message{RecordedEvent: e, Topic: p.a.in.cfg.Topic})
}
