package bus

import (
	"context"
	"errors"
)

// ErrExpired: the command came too late to begin, and was not executed. Details are in [*ExpiredError].
var ErrExpired = errors.New("bus: command expired")

// handlerContext is the context of a handler.
func handlerContext(ctx context.Context, c *Command) context.Context {
	return context.WithValue(ctx, commandKey{}, c)
}
