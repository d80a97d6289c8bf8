package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
)

// A refusal goes through the bus once, and its end has its code and its text; what is stored under the key is told while
// the rest of the batch is at work.
func TestARefusalGoesThroughTheBusOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	seen := map[uuid.UUID]int{}
	w.bus = bus.New(bus.Config{Logger: slog.New(slog.DiscardHandler)}, func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
			mu.Lock()
			seen[c.ID]++
			mu.Unlock()
			return next(ctx, c)
		}
	}, bus.Idempotent(w.store))
	odd := errors.New("nobody declared this")
	release := make(chan struct{})
	bus.HandleAggregate(w.bus, addType, w.tills, func(c add) string { return c.Till }, func(c add, s till) ([]event, error) {
		if c.N == -2 {
			return nil, odd
		}
		return c.Decide(s)
	})
	bus.Handle(w.bus, putType, func(ctx context.Context, c put) (bus.Reply, error) {
		_, err := w.tills.Handle(ctx, c.Till, add(c).Decide)
		return bus.Reply{}, fmt.Errorf("put: %w", err)
	})
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) {
		switch c.Text {
		case "slow":
			select {
			case <-release:
			case <-ctx.Done():
			}
			return bus.Reply{}, nil
		case "passing": // what may pass is none, whatever the handler says
			return bus.Reply{Refused: true}, aggregate.Transient(odd)
		}
		return bus.Reply{Refused: true, Code: "own"}, odd
	})
	slow := w.send(anything{"slow"})
	type end struct {
		id           uuid.UUID
		code, reason string
	}
	early := []end{
		{w.send(add{"a", -1}), "negative", errNegative.Error()},
		{w.send(add{"b", -2}), "", odd.Error()},
		{w.send(put{"c", -1}), "negative", "put: " + errNegative.Error()},
	}
	own, passing := w.send(anything{"refuse"}), w.send(anything{"passing"})
	w.run(Config{Attempts: 2, Workers: 8, Timeout: 2 * patience, Lease: time.Minute})
	check := func(want end) {
		t.Helper()
		if o := w.ends(want.id, bus.OperationRefused); o.Code != want.code || o.Reason != want.reason {
			t.Errorf("it ended with code %q, reason %q, want %+v", o.Code, o.Reason, want)
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[want.id] != 1 {
			t.Errorf("%q went through the bus %d times", want.reason, seen[want.id])
		}
	}
	for _, want := range early {
		check(want)
	}
	close(release)
	w.ends(slow, bus.OperationDone)
	check(end{own, "own", odd.Error()})
	if o := w.ends(passing, bus.OperationFailed); o.Code != CodeExhausted {
		t.Errorf("what may pass ended with code %q", o.Code)
	}
}
