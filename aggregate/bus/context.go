package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// ErrExpired: the command came too late to begin, and was not executed. It is [aggregate.ErrExpired]. Details are in
// [*ExpiredError], or, when a command that expired before is sent again, in [*aggregate.ExpiredError].
var ErrExpired = aggregate.ErrExpired

// describe puts the command's metadata into ctx, as that of what it causes.
func (c *Command) describe(ctx context.Context) context.Context {
	m := c.Metadata
	m.CausationID = c.ID.String()
	if m.CorrelationID == "" {
		m.CorrelationID = m.CausationID
	}
	return eventstore.WithMetadata(ctx, m)
}

// handlerContext is the context of a handler. The key and the demands of a command around this one are not its own.
func handlerContext(ctx context.Context, c *Command) context.Context {
	_, nested := ctx.Value(commandKey{}).(*Command)
	switch {
	case c.Expected != nil:
		ctx = aggregate.ContextWithVersion(ctx, *c.Expected)
	case nested:
		ctx = aggregate.ContextWithVersion(ctx, eventstore.AnyVersion)
	}
	if !c.run.keyed && (nested || c.run.route.withoutKey) {
		ctx = aggregate.ContextWithIdempotencyKey(ctx, "")
	}
	return context.WithValue(c.describe(ctx), commandKey{}, c)
}

// outlive returns a context with the values of ctx that ends with base instead.
func outlive(ctx, base context.Context) (context.Context, context.CancelFunc) {
	living, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(base, func() { cancel(context.Cause(base)) })
	return living, func() { stop(); cancel(nil) }
}

// ended reports that ctx is over because its owner gave up, not because of a deadline.
func ended(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func notBegun(c *Command, cause error) error {
	return fmt.Errorf("bus: command %s did not begin: %w", name(c.Type, c.ID), cause)
}
