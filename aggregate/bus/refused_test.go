package bus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A refusal that is stored under the key is one at the first call, too, although the handler did not say so.
func TestARefusalOfAWorkIsToldTheSameTwice(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	odd := errors.New("nobody declared this")
	b := bus.New(bus.Config{}, bus.Idempotent(store))
	bus.Handle(b, bus.TypeOf[payOut]("till.pay_out"), func(ctx context.Context, c payOut) (bus.Reply, error) {
		_, err := aggregate.Transact(ctx, store, func(*aggregate.Work) error {
			if c.Cents > 100 {
				return aggregate.Transient(odd)
			}
			return odd
		})
		return bus.Reply{}, err
	})
	for i := range 2 {
		reply, err := b.Send(t.Context(), payOut{"1", 1}, bus.WithKey("k"))
		if err == nil || err.Error() != odd.Error() || !reply.Refused || reply.Repeated != (i == 1) || bus.StateOf(reply, err) != bus.OperationRefused {
			t.Errorf("call %d: %+v, %v", i+1, reply, err)
		}
		reply, err = b.Send(t.Context(), payOut{"1", 101}, bus.WithKey("l"))
		if err == nil || reply.Refused || reply.Repeated || bus.StateOf(reply, err) != bus.OperationFailed {
			t.Errorf("passing, call %d: %+v, %v", i+1, reply, err)
		}
	}
}
