package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// A command is ended for good whatever keeps this bus from carrying it out, unless it had an outcome before.
func TestEnd(t *testing.T) {
	forbidden := errors.New("not you")
	w := newWorld(t, bus.Config{}, idempotent)
	gate, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stopped := []bus.Middleware{
		bus.Log(slog.New(slog.DiscardHandler)), bus.Authorize(func(context.Context, *bus.Command) error { return forbidden }), bus.Validate(),
		bus.Admit(gate), bus.Idempotent(w.store),
	}
	for name, tc := range map[string]struct {
		b       *bus.Bus
		payload any
		data    []byte
	}{
		"itself":      {b: w.Bus, payload: payIn{"a", 1}},
		"unknown":     {b: bus.New(bus.Config{}, bus.Idempotent(w.store)), payload: payIn{"b", 1}},
		"not allowed": {b: newStopped(stopped), payload: payIn{"c", 1}},
		"not valid":   {b: newStopped(stopped), payload: payOut{"d", -1}},
		"unreadable":  {b: w.Bus, payload: payIn{"e", 1}, data: []byte{0xc1}},
		"empty":       {b: w.Bus, payload: payIn{"f", 1}, data: []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := w.Encode(tc.payload)
			if err != nil {
				t.Fatal(err)
			}
			if tc.data != nil {
				c.Data = tc.data
			}
			for range 2 {
				reply, err := tc.b.End(t.Context(), c)
				if wantError(t, err, bus.ErrExpired); !reply.Settled {
					t.Error("it is not settled")
				}
			}
			if tc.data == nil {
				_, err = w.Dispatch(t.Context(), c)
				wantError(t, err, bus.ErrExpired)
			}
			if n := len(events(t, w.store, tillOf(tc.payload))); n != 0 {
				t.Errorf("%d events", n)
			}
			// One that had an outcome keeps it.
			done, err := w.Encode(payIn{name, 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Dispatch(t.Context(), done); err != nil {
				t.Fatal(err)
			}
			if reply, err := tc.b.End(t.Context(), done); err != nil || !reply.Settled {
				t.Errorf("got %+v, %v", reply, err)
			}
			if again, err := w.Dispatch(t.Context(), done); err != nil || !again.Repeated {
				t.Errorf("got %+v, %v", again, err)
			}
		})
	}
	if w.ran.Load() != 0 {
		t.Error("a handler was called")
	}
}

func newStopped(middleware []bus.Middleware) *bus.Bus {
	b := bus.New(bus.Config{}, middleware...)
	bus.Handle(b, payInType, handler)
	bus.Handle(b, payOutType, handler)
	return b
}

// What cannot be ended says so.
func TestEndWithoutAKey(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	c, err := w.Encode(payIn{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	keyless := bus.New(bus.Config{}, bus.Idempotent(memory.New(memory.Config{})))
	bus.Handle(keyless, bus.TypeOf[payIn](payInType.Name(), bus.WithoutKey()), handler)
	for _, b := range []*bus.Bus{w.Bus, keyless} {
		reply, err := b.End(t.Context(), c)
		if wantError(t, err, bus.ErrExpired); reply.Settled {
			t.Error("it is settled")
		}
	}
	_, err = w.End(t.Context(), bus.Command{Type: c.Type})
	wantError(t, err, bus.ErrInvalidCommand)
	_, err = w.End(t.Context(), bus.Command{Type: "strange", ID: id(1), Payload: payIn{}})
	wantError(t, err, bus.ErrUnknownCommand)
	_, err = w.End(t.Context(), bus.Command{Type: c.Type, ID: id(1), Payload: payOut{}})
	wantError(t, err, bus.ErrInvalidCommand)
	// A panic in the middleware is an error here too.
	careless := bus.New(bus.Config{Logger: slog.New(slog.DiscardHandler)}, func(bus.Handler) bus.Handler {
		return func(_ context.Context, c *bus.Command) (bus.Reply, error) {
			return bus.Reply{}, errors.New(c.Payload.(payIn).Till)
		}
	})
	var panicked *bus.PanicError
	if _, err = careless.End(t.Context(), c); !errors.As(err, &panicked) {
		t.Errorf("got %v", err)
	}
}
