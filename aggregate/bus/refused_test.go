package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A reply has the code of a refusal that is stored under the key, at the first call as at a repeat.
func TestTheCodeOfARefusalIsToldTheSameTwice(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	tired, odd := errors.New("tired"), errors.New("nobody declared this")
	b := bus.New(bus.Config{}, bus.Idempotent(store))
	for name, withoutKey := range map[string]bool{"till.pay-out": false, "till.pay-in": true} {
		handle := func(ctx context.Context, cents int64) (bus.Reply, error) {
			refusal := map[int64]error{1: tired, 2: odd, 3: nil}[cents]
			_, err := aggregate.Transact(ctx, store, func(*aggregate.Work) error { return refusal }, aggregate.Refuses("tired", tired))
			if err != nil {
				err = fmt.Errorf("pay: %w", err)
			}
			return bus.Reply{Refused: err != nil, Code: "own", Stored: true}, err
		}
		if withoutKey {
			bus.Handle(b, bus.TypeOf[payIn](name, bus.WithoutKey()), func(ctx context.Context, c payIn) (bus.Reply, error) { return handle(ctx, c.Cents) })
		} else {
			bus.Handle(b, bus.TypeOf[payOut](name), func(ctx context.Context, c payOut) (bus.Reply, error) { return handle(ctx, c.Cents) })
		}
	}
	for _, c := range []struct {
		payload any
		key     string
		code    string
		refused bool
		stored  bool
	}{
		{payOut{"1", 1}, "a", "tired", true, true},
		{payOut{"1", 2}, "b", "", true, true},
		{payOut{"1", 3}, "c", "own", false, false},
		{payIn{"1", 1}, "", "own", true, false},
	} {
		for i := range 2 {
			reply, err := b.Send(t.Context(), c.payload, bus.WithKey(c.key))
			if (err != nil) != c.refused || reply.Code != c.code || reply.Refused != c.refused || reply.Stored != c.stored {
				t.Errorf("%+v, call %d: %+v, %v", c.payload, i+1, reply, err)
			}
		}
	}
}

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
