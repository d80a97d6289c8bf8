package bus

import (
	"context"
	"log/slog"

	"github.com/daybook-go/daybook/internal/panics"
)

// guard makes an error of a panic.
func (b *Bus) guard(ctx context.Context, c *Command, err *error) {
	value := recover()
	if value == nil {
		return
	}
	b.logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelError, "bus: panic", slog.String("type", c.Type), slog.String("id", c.ID.String()),
		slog.String("panic", panics.Describe(value)), slog.String("stack", panics.Stack()))
	*err = &PanicError{Type: c.Type, ID: c.ID, Value: value}
}
