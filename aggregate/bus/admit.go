package bus

import (
	"context"

	"github.com/daybook-go/daybook/aggregate/admission"
)

type admittedKey struct{}

// Admitted marks a context as one whose work a gate has let in, so that [Admit] does not ask again: for who asks a gate
// before there is a command, such as an HTTP server before it reads a body.
func Admitted(ctx context.Context) context.Context {
	return context.WithValue(ctx, admittedKey{}, true)
}

// Admit lets a command pass when the gate does, by its class and the tenant of its metadata. A command that is sent away
// is an [*admission.OverloadedError]: it was not executed, and no key is stored.
//
// Commands that a handler sends while it is being executed pass, as they are part of work that was let in; so do those
// under [Admitted]. A command past its deadline passes too, since all that is left to do is to store that; one whose
// deadline comes while it waits is sent away.
func Admit(gate *admission.Gate) Middleware {
	mustHave(gate != nil, "admit", "the gate is nil: pass the one that admission.New made")
	return func(next Handler) Handler {
		return func(ctx context.Context, c *Command) (reply Reply, err error) {
			if ctx.Value(admittedKey{}) != nil || c.PastDeadline(c.now()) {
				return next(ctx, c)
			}
			pass, err := gate.Admit(ctx, admission.Request{Class: c.Class, Tenant: c.Metadata.Tenant})
			if err != nil {
				return Reply{}, err
			}
			defer func() { pass.Done(err) }()
			return next(Admitted(ctx), c)
		}
	}
}
