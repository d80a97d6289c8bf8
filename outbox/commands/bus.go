package commands

import (
	"context"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// onceBy is the bus's Dispatch under the idempotency key of each command, so that what its handler appends is kept under
// the key also when bus.Idempotent was forgotten. That middleware sets the same key, for the same request, and sees to
// what a key alone does not: that a command which ended without effect can never have one.
func onceBy(b *bus.Bus) func(context.Context, bus.Command) (bus.Reply, error) {
	return func(ctx context.Context, c bus.Command) (bus.Reply, error) {
		request := append(append([]byte(c.Type), 0), c.Data...)
		ctx = aggregate.ContextWithIdempotencyKey(ctx, keyOf(c), aggregate.InScope(scopeOf(c)), aggregate.ForRequest(request))
		return b.Dispatch(ctx, c)
	}
}
