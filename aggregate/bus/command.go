package bus

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

// Command is a request on its way to its handler: what is asked, by whom, under which name, and until when. It is a
// plain value that can be stored and sent; [Bus.Prepare] makes one, [Bus.Dispatch] carries it out. Middleware gets a
// pointer to a copy that belongs to the one dispatch.
type Command struct {
	// ID names the command. Zero: the bus makes one.
	ID uuid.UUID
	// Type is the wire name, such as "account.withdraw".
	Type string
	// Payload is the Go value of the type. With a Payload, Data is of no account; without, it is decoded from Data.
	Payload any
	// Data is the stored form of the payload, and ContentType says in which form it is: that of the type's own codec, or
	// that of [eventstore.Msgpack] or [eventstore.JSON]. Empty: that of the type's own codec.
	Data        []byte
	ContentType string

	// Key is the idempotency key, at most 255 bytes. Empty: the text of ID.
	Key string
	// Scope says whose key it is: keys of two scopes never meet; at most 200 bytes. Empty: tenant and
	// actor of the metadata, as in [aggregate.InScope].
	Scope string
	// Expected is what the stream's version must be for the command to be carried out; nil: any. It holds for what the
	// handler loads with Repository.Handle.
	Expected *eventstore.ExpectedVersion
	// Deadline is the time from which on the command must not begin to run. Zero: none.
	Deadline time.Time
	// Class is how important the command is when not all can be carried out.
	Class admission.Class
	// To is what the command is addressed to, for types whose payload does not say it; see the option [To]. It is for who
	// sends: Target follows from it, and is where handlers find it.
	To string
	// Target orders commands that travel through the outbox: those of one target are carried out in the order in which
	// they were sent. Usually the text of a stream. Empty: the command stands alone.
	Target string
	// Undoes is the id of the command that this one undoes; zero: none. See the option [Undoes].
	Undoes uuid.UUID
	// ReplyTo is the topic to which the end of a command that travels is published. Empty: it is not.
	ReplyTo string
	// Metadata says who gives the command and as part of what. Its headers carry the trace, see [Trace].
	Metadata eventstore.Metadata

	run *dispatch // what the bus knows about this dispatch; nil outside of one
}

// PastDeadline reports whether the command may not begin any more at time now.
func (c *Command) PastDeadline(now time.Time) bool {
	return !c.Deadline.IsZero() && !now.Before(c.Deadline)
}

// Reply is the answer to a command.
type Reply struct {
	// Result is what the handler returns beside the versions; often nil.
	Result any
	// Stream is the stream that the command was about, and Version its version afterwards. Zero when the handler does
	// not say.
	Stream  eventstore.StreamID
	Version eventstore.Version
	// Token is what a reader waits for to see the command's events; see [eventstore.Token].
	Token eventstore.Token
	// Repeated: the command had been carried out, or refused, before; this is the first answer again.
	Repeated bool
	// Refused: the error that comes with the reply is an answer of the domain, not a failure. The bus sets it when the
	// refusal is stored under the command's key, and [HandleAggregate] always; a handler of your own may.
	Refused bool
	// Code is the one under which [aggregate.Refuses] declares the error of a refusal, "" of one that is not declared. The
	// bus sets it when the refusal is stored under the command's key, first or repeated; of others a handler of your own may.
	Code string
	// Stored: the refusal is stored under the command's key, so that each repeat gets it again, with the same Code. Only the
	// bus knows; what a handler sets is of no account.
	Stored bool
	// Settled: the command came past its deadline, and there is an outcome under its key now, which it had before or which is
	// that it expired. It can have no other. Only [Idempotent] knows.
	Settled bool
	// Attempts is how often it was decided; 0 when the handler does not say.
	Attempts int
}

// Handler carries out a command. Middleware sees handlers in this form; those of commands are typed, see [Handle].
type Handler func(ctx context.Context, c *Command) (Reply, error)

// Middleware wraps a handler. It passes on the reply also when there is an error. It may run next more than once, or
// not at all, and is called from many goroutines at once.
type Middleware func(next Handler) Handler

// SendOption changes a command before it is sent.
type SendOption func(*Command)

// WithID names the command. Without it each Send makes a new id.
func WithID(id uuid.UUID) SendOption { return func(c *Command) { c.ID = id } }

// WithKey gives the command an idempotency key other than its id; see [Idempotent].
func WithKey(key string) SendOption { return func(c *Command) { c.Key = key } }

// InScope says whose key it is, instead of tenant and actor of the metadata.
func InScope(scope string) SendOption { return func(c *Command) { c.Scope = scope } }

// IfVersion lets the command be carried out only if the stream's version is as expected.
func IfVersion(expected eventstore.ExpectedVersion) SendOption {
	return func(c *Command) { c.Expected = &expected }
}

// WithDeadline sets the time from which on the command must not begin to run. An earlier deadline of the context wins.
func WithDeadline(t time.Time) SendOption { return func(c *Command) { c.Deadline = t } }

// WithClass says how important the command is.
func WithClass(class admission.Class) SendOption { return func(c *Command) { c.Class = class } }

// ReplyTo asks for the end of a command that travels to be published to a topic.
func ReplyTo(topic string) SendOption { return func(c *Command) { c.ReplyTo = topic } }

// WithMetadata sets metadata; fields that are empty in m stay those of the context.
func WithMetadata(m eventstore.Metadata) SendOption {
	return func(c *Command) { c.Metadata = m.Merge(c.Metadata) }
}

type commandKey struct{}

// CommandFrom returns the command that is being carried out under ctx, with its id, key and deadline, and false outside
// of a handler.
func CommandFrom(ctx context.Context) (Command, bool) {
	c, ok := ctx.Value(commandKey{}).(*Command)
	if !ok {
		return Command{}, false
	}
	found := *c
	found.run = nil
	return found, true
}
