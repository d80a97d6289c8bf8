package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
)

func TestAHandlerThatDoesNotUseTheKey(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, nil }
	_, err := w.Send(t.Context(), anything{})
	var unused *bus.KeyUnusedError
	if !errors.As(err, &unused) || unused.Type != "test.anything" || !strings.Contains(err.Error(), "bus.WithoutKey()") {
		t.Fatalf("got %v", err)
	}
	wantError(t, err, bus.ErrKeyUnused)
	// Its own errors are its own.
	mine := errors.New("mine")
	w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, mine }
	if _, err := w.Send(t.Context(), anything{}); err != mine {
		t.Fatalf("got %v", err)
	}
	// Transact uses it as well.
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		receipt, err := aggregate.Transact(ctx, w.store, func(work *aggregate.Work) error { return nil })
		return bus.Reply{Token: receipt.Token, Repeated: receipt.Repeated}, err
	}
	for i := range 2 {
		if reply, err := w.Send(t.Context(), anything{}, bus.WithKey("k")); err != nil || reply.Repeated != (i == 1) {
			t.Fatalf("%d: got %+v, %v", i, reply, err)
		}
	}
}
