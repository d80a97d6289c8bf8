package bus

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/eventstore"
)

// Log writes one line for each command, when it has ended: its type and id, the outcome, how long it took by the bus's
// clock, and how often it was decided. What was refused, or came too late, is at level Info; a fault is at level Error,
// with its text. Payload, key and scope are never written, and of refusals not even the text, which may quote them.
//
// refusals are errors of the domain, sentinels that errors.Is finds, which are refusals and no faults. Those of
// [HandleAggregate], and those that the packages below declare, need not be named.
//
// A nil logger is slog.Default().
func Log(logger *slog.Logger, refusals ...error) Middleware {
	if logger == nil {
		logger = slog.Default()
	}
	for _, err := range refusals {
		mustHave(err != nil, "log", "one of the refusals is nil: pass the domain's sentinel errors")
	}
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (Reply, error) {
			began := c.now()
			reply, err := next(ctx, c)
			for _, refusal := range refusals {
				reply.Refused = reply.Refused || err != nil && !transient(err) && errors.Is(err, refusal)
			}
			logEnd(context.WithoutCancel(ctx), logger, c, c.now().Sub(began), reply, err)
			return reply, err
		}
	}
}

func logEnd(ctx context.Context, logger *slog.Logger, c *Command, took time.Duration, reply Reply, err error) {
	outcome, fault := endOf(reply, err)
	level := slog.LevelInfo
	attributes := []slog.Attr{
		slog.String("type", c.Type), slog.String("id", c.ID.String()), slog.String("outcome", outcome),
		slog.Duration("duration", took),
	}
	if c.run != nil {
		attributes = append(attributes, slog.Int("attempts", c.run.attempts))
	}
	if fault {
		level = slog.LevelError
		attributes = append(attributes, slog.String("error", err.Error()))
	}
	logger.LogAttrs(ctx, level, "bus: command", attributes...)
}

// endOf says in a word how a command ended, and whether that is a fault.
func endOf(reply Reply, err error) (outcome string, fault bool) {
	if err == nil {
		if reply.Repeated {
			return "repeated", false
		}
		return "done", false
	}
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return "panicked", true
	}
	for _, known := range [...]struct {
		sentinel error
		outcome  string
	}{
		{ErrExpired, "expired"}, {ErrForbidden, "forbidden"}, {ErrInvalidCommand, "invalid"},
		{admission.ErrOverloaded, "overloaded"}, {eventstore.ErrInProgress, "in progress"}, {context.Canceled, "cancelled"},
	} {
		if errors.Is(err, known.sentinel) {
			return known.outcome, false
		}
	}
	if refused(reply, err) {
		return "refused", false
	}
	return "failed", true
}

// refused reports an error that is an answer: sending the same command again brings it again.
func refused(reply Reply, err error) bool {
	if transient(err) {
		return false
	}
	for _, answer := range [...]error{
		aggregate.ErrRefused, aggregate.ErrVersion, aggregate.ErrExists, ErrForbidden, ErrInvalidCommand, eventstore.ErrReusedKey,
		eventstore.ErrInvalid, eventstore.ErrStreamClosed,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return reply.Refused
}

// StateOf says what became of a command, given what Dispatch or Send returned: [OperationDone], [OperationRefused] when
// the error is an answer that the same command would get again, [OperationExpired], or [OperationFailed]. A failure may
// pass: [eventstore.IsRetryable], the end of a context, and [admission.ErrOverloaded] say so.
func StateOf(reply Reply, err error) OperationState {
	switch {
	case err == nil:
		return OperationDone
	case errors.Is(err, ErrExpired):
		return OperationExpired
	case refused(reply, err):
		return OperationRefused
	}
	return OperationFailed
}
