package bus

import (
	"context"
	"errors"
	"maps"

	"github.com/daybook-go/daybook/eventstore"
)

// Trace calls begin before a command and what begin returned after it, with the command's error. begin returns the
// context that the command runs under; the function may be nil.
//
// The trace travels in the headers of the command's metadata, under [eventstore.HeaderTraceparent] and
// [eventstore.HeaderTracestate]: begin finds the sender's there, and may set its own, which then are those of the events
// that the command appends. The headers are never nil there.
func Trace(begin func(ctx context.Context, c *Command) (context.Context, func(error))) Middleware {
	mustHave(begin != nil, "trace", "begin is nil: pass the function that begins a span")
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (reply Reply, err error) {
			// Headers of its own: what is set here is no business of whoever holds the command outside.
			headers := make(map[string]string, len(c.Metadata.Headers)+2)
			maps.Copy(headers, c.Metadata.Headers)
			c.Metadata.Headers = headers
			traced, end := begin(ctx, c)
			if traced == nil {
				traced = ctx
			}
			if end != nil {
				defer func() { end(err) }()
			}
			return next(eventstore.WithMetadata(traced, eventstore.Metadata{Headers: c.Metadata.Headers}), c)
		}
	}
}

// Authorize lets a command pass only if check returns nil. Its error comes back in a [*ForbiddenError]; nothing is
// executed, and no key stored. That check could not be made is something else: an error of ctx, one that matches
// [eventstore.ErrBusy], and one that [aggregate.Transient] marked come back as they are. check is called from many
// goroutines. It is not asked about a command that is only to be ended ([Bus.End]), which whoever carries commands decides.
func Authorize(check func(ctx context.Context, c *Command) error) Middleware {
	mustHave(check != nil, "authorize", "check is nil: pass the function that says who may do what")
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) {
			if c.ending() {
				return next(ctx, c)
			}
			err := check(ctx, c)
			switch {
			case err == nil:
				return next(ctx, c)
			case transient(err) || errors.Is(err, ErrForbidden):
				return Reply{}, err
			}
			return Reply{}, &ForbiddenError{Type: c.Type, ID: c.ID, Actor: c.Metadata.Actor, Tenant: c.Metadata.Tenant, Err: err}
		}
	}
}

// Validate asks payloads that have a method Validate() error, on the value or on its pointer, whether they can be right
// at all. Their error comes back in an [*InvalidCommandError]; nothing is executed, and no key stored.
func Validate() Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) {
			if c.run == nil || c.run.ending {
				return next(ctx, c)
			}
			if err := c.run.route.validate(c.Payload); err != nil {
				return Reply{}, &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
			}
			return next(ctx, c)
		}
	}
}

func mustHave(given bool, middleware, fault string) {
	if !given {
		panic("bus: " + middleware + ": " + fault)
	}
}
