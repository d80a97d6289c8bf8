package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// End ends a command for good, unexecuted, and calls no handler: its type may be unknown here, its data unreadable, its
// sender forbidden to give it. It is for who tells a sender that a command failed, and must know before that it has had no
// effect and never has one. The command must be as it is dispatched, with its Data, and with its id or key.
//
// The error tells how the command has ended. One that is [ErrExpired]: unexecuted, now or before. nil: it has another
// outcome, which it had before. That is so for good when Settled is set in the reply. It is not when the bus has no
// [Idempotent], or when the type is declared [WithoutKey] here: then the error is ErrExpired all the same, and nothing is
// stored. Any other error says what kept it from being ended.
//
// The command goes through the middleware with a deadline that has passed, and without Payload when there is none to be had;
// [Authorize], [Validate] and [Admit] let it pass, one of your own may keep it back. It is safe to call while the command
// is being executed, here or elsewhere: one of the two is stored.
func (b *Bus) End(ctx context.Context, command Command) (reply Reply, err error) {
	c := command
	defer b.guard(ctx, &c, &err)
	if c.ID == uuid.Nil && c.Key == "" {
		return Reply{}, &InvalidCommandError{Type: c.Type, Err: errors.New("it has neither id nor key: end the command that was dispatched")}
	}
	if c.Key == "" {
		c.Key = c.ID.String()
	}
	c.Metadata = c.Metadata.Merge(eventstore.MetadataFrom(ctx))
	if c.Scope == "" {
		c.Scope = aggregate.ScopeOf(c.Metadata)
	}
	route, known := b.routes.Load().byName[c.Type]
	if !known {
		route = unknown
	}
	if err := b.legible(&c, route, known); err != nil {
		return Reply{}, err
	}
	if now := b.clock(); !c.PastDeadline(now) {
		c.Deadline = now
	}
	c.To = ""
	c.run = &dispatch{bus: b, route: route, base: ctx, ending: true}
	return b.chain(c.describe(ctx), &c)
}

// legible gives the command the payload of its data, if there is one to be had, and sees to it that it has data.
func (b *Bus) legible(c *Command, r *route, known bool) (err error) {
	if c.Payload != nil {
		if !known {
			return &UnknownCommandError{Type: c.Type, GoType: fmt.Sprintf("%T", c.Payload), reason: "end it by its Data"}
		}
		if err := r.read(c); err != nil {
			return &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
		}
		return nil
	}
	if c.Data == nil {
		c.Data = []byte{}
	}
	if known && b.tryRead(c, r) != nil {
		c.Payload = nil
	}
	return nil
}

// tryRead is read, of which a panic is an error too.
func (b *Bus) tryRead(c *Command, r *route) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("decode: a panic with a %T", value)
		}
	}()
	return r.read(c)
}

// unknown stands for the types that have no handler.
var unknown = &route{
	codec:    eventstore.Msgpack,
	validate: func(any) error { return nil },
	handle: func(_ context.Context, c *Command) (Reply, error) {
		return Reply{}, &UnknownCommandError{Type: c.Type, reason: "register one with bus.Handle, or deploy the code that has it"}
	},
}

// ending reports that the command is only to be ended.
func (c *Command) ending() bool { return c.run != nil && c.run.ending }
