package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/eventstore"
)

// dispatch is what the bus and its middleware know about one command under way. It is for one goroutine at a time.
type dispatch struct {
	bus   *Bus
	route *route
	// base is the caller's context, which does not end with the command's deadline.
	base context.Context
	// attempts is how often the command was decided.
	attempts int
	// keyed: Idempotent covers it, so that it may be tried again after an append without an answer.
	keyed bool
	// late: the last run did not begin, because the deadline had passed.
	late bool
	// settled: its outcome is stored; the handler runs past the deadline too, to bring the first answer.
	settled bool
	// ending: it is only to be ended, see End; no handler is called.
	ending bool
}

// Send carries out a command given as a Go value, in this process, and returns when it is done. It is Dispatch of what
// [Bus.Prepare] makes, without the way through bytes.
//
// A deadline of ctx becomes the command's: past it the command does not begin.
func (b *Bus) Send(ctx context.Context, payload any, opts ...SendOption) (reply Reply, err error) {
	c := Command{}
	defer b.guard(ctx, &c, &err)
	made, route, err := b.command(ctx, payload, opts)
	if err != nil {
		return Reply{}, err
	}
	c = made
	return b.through(ctx, &c, route)
}

// Dispatch carries out a command, in this process, and returns when it is done. Without a Payload it is decoded from
// Data. An error of the handler comes back as it is.
//
// A command that has no handler is an [*UnknownCommandError], one that cannot be read an [*InvalidCommandError]; neither
// reaches the middleware. A panic, wherever it happens, is a [*PanicError].
func (b *Bus) Dispatch(ctx context.Context, command Command) (reply Reply, err error) {
	c := command
	defer b.guard(ctx, &c, &err)
	c.run = nil
	route, known := b.routes.Load().byName[c.Type]
	if !known {
		return Reply{}, &UnknownCommandError{Type: c.Type, reason: "register one with bus.Handle, or deploy the code that has it"}
	}
	if err := route.read(&c); err != nil {
		return Reply{}, &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
	}
	c.Metadata = c.Metadata.Merge(eventstore.MetadataFrom(ctx))
	if err := c.complete(route); err != nil {
		return Reply{}, err
	}
	return b.through(ctx, &c, route)
}

// Prepare makes a command that can be stored, sent, and dispatched later, here or elsewhere: with its Data, and without
// Payload. The deadline and the metadata of ctx become the command's.
//
// A payload whose Go type has no handler is an [*UnknownCommandError], one that cannot be encoded, or is addressed to what
// it cannot be for, an [*InvalidCommandError].
func (b *Bus) Prepare(ctx context.Context, payload any, opts ...SendOption) (command Command, err error) {
	defer b.guard(ctx, &command, &err)
	c, route, err := b.command(ctx, payload, opts)
	if err != nil {
		return Command{}, err
	}
	if err := route.write(&c); err != nil {
		return Command{}, &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
	}
	c.Payload = nil
	return c, nil
}

// Encode is [Bus.Prepare] without a context.
func (b *Bus) Encode(payload any, opts ...SendOption) (Command, error) {
	return b.Prepare(context.Background(), payload, opts...)
}

func (b *Bus) command(ctx context.Context, payload any, opts []SendOption) (Command, *route, error) {
	route, err := b.routeOf(reflect.TypeOf(payload))
	if err != nil {
		return Command{}, nil, err
	}
	c := Command{Metadata: eventstore.MetadataFrom(ctx)}
	for _, opt := range opts {
		opt(&c)
	}
	c.Type, c.Payload, c.Data, c.ContentType, c.run = route.name, payload, nil, "", nil
	c.Metadata = c.Metadata.Merge(eventstore.Metadata{}) // headers of its own
	if deadline, ok := ctx.Deadline(); ok && (c.Deadline.IsZero() || deadline.Before(c.Deadline)) {
		c.Deadline = deadline
	}
	if err := c.complete(route); err != nil {
		return Command{}, nil, err
	}
	return c, route, nil
}

// complete fills what a command may leave to the bus.
func (c *Command) complete(r *route) error {
	if c.ID == uuid.Nil {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("bus: make an id for command %s: %w", shorten(c.Type), err)
		}
		c.ID = id
	}
	if c.Key == "" {
		c.Key = c.ID.String()
	}
	if c.Scope == "" {
		c.Scope = aggregate.ScopeOf(c.Metadata)
	}
	if err := r.direct(c); err != nil {
		return &InvalidCommandError{Type: c.Type, ID: c.ID, Err: err}
	}
	return nil
}

// read sees to it that the command has a payload of the route's type.
func (r *route) read(c *Command) error {
	if c.Payload != nil {
		if got := reflect.TypeOf(c.Payload); got != r.goType {
			return fmt.Errorf("its payload is a %s, where the handler takes a %s: pass that, or the data alone", got, r.goType)
		}
		c.Data, c.ContentType = nil, ""
		return nil
	}
	codec, ok := r.codecFor(c.ContentType)
	if !ok {
		return fmt.Errorf("its content type %s has no codec: send %s", shorten(c.ContentType), r.codec.ContentType())
	}
	payload, err := r.decode(codec, c.Data)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	c.Payload = payload
	return nil
}

// write sees to it that the command has the data of its payload.
func (r *route) write(c *Command) error {
	if c.Data != nil {
		return nil
	}
	data, err := r.codec.Marshal(c.Payload)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	c.Data, c.ContentType = data, r.codec.ContentType()
	return nil
}

// through sends a complete command through the middleware.
func (b *Bus) through(ctx context.Context, c *Command, r *route) (Reply, error) {
	c.To = "" // Target has it
	c.run = &dispatch{bus: b, route: r, base: ctx}
	ctx = c.describe(ctx)
	// A command that is late already keeps a living context: that it is late has yet to be stored.
	if left := c.Deadline.Sub(b.clock()); !c.Deadline.IsZero() && left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	return b.chain(ctx, c)
}

// execute is the end of the chain: it calls the handler.
func (b *Bus) execute(ctx context.Context, c *Command) (reply Reply, err error) {
	run := c.run
	now := b.clock()
	if run.late = run.ending || !run.settled && c.PastDeadline(now); run.late {
		return Reply{}, &ExpiredError{Type: c.Type, ID: c.ID, Deadline: c.Deadline, At: now}
	}
	if err := ctx.Err(); err != nil {
		return Reply{}, notBegun(c, err)
	}
	within := handlerContext(ctx, c)
	defer func() {
		run.attempts += max(1, reply.Attempts)
		reply.Stored, reply.Settled = false, false
		if errors.Is(err, aggregate.ErrRefused) {
			reply.Refused, reply.Repeated = true, true
		}
		if refused := new(aggregate.RefusedError); errors.As(err, &refused) {
			reply.Code, reply.Stored = refused.Code, true
		} else if code, stored := aggregate.KeyRefusal(within); err != nil && stored && !errors.As(err, new(*PanicError)) {
			reply.Refused, reply.Code, reply.Stored = true, code, true // as a repeat will be told
		}
	}()
	defer b.guard(ctx, c, &err)
	return run.route.handle(within, c)
}

// guarded makes an error of a panic at once, so that the middleware around sees all ends of a command in one form.
func (b *Bus) guarded(h Handler) Handler {
	return func(ctx context.Context, c *Command) (reply Reply, err error) {
		defer b.guard(ctx, c, &err)
		return h(ctx, c)
	}
}

// now is the time by the clock of the command's bus.
func (c *Command) now() time.Time {
	if c.run == nil {
		return time.Now()
	}
	return c.run.bus.clock()
}
