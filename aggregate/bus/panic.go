package bus

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// guard makes an error of a panic.
func (b *Bus) guard(ctx context.Context, c *Command, err *error) {
	value := recover()
	if value == nil {
		return
	}
	b.logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelError, "bus: panic", slog.String("type", c.Type), slog.String("id", c.ID.String()),
		slog.String("panic", described(value)), slog.String("stack", stack()))
	*err = &PanicError{Type: c.Type, ID: c.ID, Value: value}
}

// described is what may be logged of a panic's value: its type, since it may hold what was sent, and what the runtime
// itself says, which has types, indexes and lengths alone.
func described(value any) string {
	if _, ok := value.(runtime.Error); ok {
		return fmt.Sprintf("%T: %v", value, value)
	}
	return fmt.Sprintf("%T", value)
}

// stack is where the panic that is being recovered came from: functions and lines, without the words that functions were
// called with, which may be what was sent.
func stack() string {
	var text strings.Builder
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]) // above guard
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&text, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return text.String()
}
