package bus_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// What the bus adds to a handler that does nothing.
func BenchmarkSend(b *testing.B) {
	gate, err := admission.New(admission.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for name, middleware := range map[string][]bus.Middleware{
		"bare": nil,
		"all but keys": {
			bus.Log(slog.New(slog.DiscardHandler)), bus.Trace(func(ctx context.Context, _ *bus.Command) (context.Context, func(error)) { return ctx, nil }),
			bus.Authorize(func(context.Context, *bus.Command) error { return nil }), bus.Validate(), bus.Admit(gate), bus.Retry(aggregate.Retry{}),
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, bus.Config{}, func(*store) []bus.Middleware { return middleware })
			w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, nil }
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Send(ctx, anything{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
