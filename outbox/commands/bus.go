package commands

import (
	"context"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// onceBy is the bus's Dispatch under the idempotency key of each command, so that what its handler appends is kept under
// the key also when bus.Idempotent was forgotten. That middleware sets the same key, for the same request, and sees to
// what a key alone does not: that a command which ended without effect can never have one. bare is called when a handler
// took the key from here, which shows that the middleware is not there.
func onceBy(b *bus.Bus, bare func()) func(context.Context, bus.Command) (bus.Reply, error) {
	return func(ctx context.Context, c bus.Command) (bus.Reply, error) {
		request := append(append([]byte(c.Type), 0), c.Data...)
		ctx = aggregate.ContextWithIdempotencyKey(ctx, keyOf(c), aggregate.InScope(scopeOf(c)), aggregate.ForRequest(request))
		reply, err := b.Dispatch(ctx, c)
		if aggregate.KeyUsed(ctx) {
			bare()
		}
		return reply, err
	}
}
