package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// empty takes all out of the till that it is addressed to.
type empty struct{ Reason string }

func (empty) Decide(s till) ([]event, error) {
	if s.Cents == 0 {
		return nil, errEmpty
	}
	return []event{paidOut{s.Cents}}, nil
}

// note has a target that its payload says, and label one of nobody's.
type (
	note  struct{ About string }
	label struct{ Text string }
)

var (
	emptyType = bus.TypeOf[empty]("till.empty")
	noteType  = bus.TypeOf[note]("test.note", bus.Target(func(c note) string { return "about-" + c.About }))
	labelType = bus.TypeOf[label]("test.label")
)

func newAddressed(t *testing.T) (*world, *bus.Command) {
	w := newWorld(t, bus.Config{}, bare)
	bus.HandleAddressed(w.Bus, emptyType, w.tills, empty.Decide)
	var got bus.Command
	keep := func(ctx context.Context) (bus.Reply, error) {
		got, _ = bus.CommandFrom(ctx)
		return bus.Reply{}, nil
	}
	bus.Handle(w.Bus, noteType, func(ctx context.Context, _ note) (bus.Reply, error) { return keep(ctx) })
	bus.Handle(w.Bus, labelType, func(ctx context.Context, _ label) (bus.Reply, error) { return keep(ctx) })
	return w, &got
}

// A command without an id in its payload reaches the aggregate that it is addressed to, as a value and as bytes.
func TestHandleAddressed(t *testing.T) {
	ctx := t.Context()
	for _, id := range []string{"1", "a-b", "ü/ 7"} {
		w, _ := newAddressed(t)
		send := func(payload any, opts ...bus.SendOption) (bus.Reply, error) { return w.Send(ctx, payload, opts...) }
		if _, err := send(payIn{Till: id, Cents: 5}); err != nil {
			t.Fatal(err)
		}
		if reply, err := send(empty{}, bus.To(id)); err != nil || reply.Version != 2 || reply.Stream != tillType.Stream(id) {
			t.Errorf("%q: %+v, %v", id, reply, err)
		}
		if _, err := send(payIn{Till: id, Cents: 7}); err != nil {
			t.Fatal(err)
		}
		c, err := w.Prepare(ctx, empty{}, bus.To(id))
		if err != nil || c.Target != "till-"+id || c.To != id {
			t.Fatalf("%q: prepared %+v, %v", id, c, err)
		}
		c.To = "" // does not travel
		if reply, err := w.Dispatch(ctx, c); err != nil || reply.Version != 4 {
			t.Errorf("%q: %+v, %v", id, reply, err)
		}
		if reply, err := w.Dispatch(ctx, bus.Command{Type: "till.empty", Payload: empty{}, To: id}); !errors.Is(err, errEmpty) || !reply.Refused {
			t.Errorf("%q: %+v, %v", id, reply, err)
		}
	}
}

// An address is what the payload says, or it is refused, by a text that names field, value and remedy.
func TestTo(t *testing.T) {
	w, got := newAddressed(t)
	for name, test := range map[string]struct {
		payload any
		to      string
		target  string
		fault   []string
	}{
		"addressed":                   {empty{}, "9", "till-9", nil},
		"addressed to nobody":         {empty{}, "", "", []string{"Command.To", "bus.To"}},
		"addressed to what cannot be": {empty{}, "a\x00b", "", []string{"Command.To", `"till-a\x00b"`}},
		"by the payload":              {payIn{Till: "9"}, "", "till-9", nil},
		"by both":                     {payIn{Till: "9"}, "9", "till-9", nil},
		"by both, not the same":       {payIn{Till: "9"}, "8", "", []string{"Command.To", `"8"`, `"9"`, "leave bus.To out"}},
		"with the stream":             {payIn{Till: "9"}, "till-9", "", []string{"Command.To", `"till-9"`}},
		"by a Target":                 {note{"x"}, "", "about-x", nil},
		"by a Target and so":          {note{"x"}, "about-x", "about-x", nil},
		"by a Target and otherwise":   {note{"x"}, "x", "", []string{"Command.To", `"x"`, `"about-x"`}},
		"plain":                       {label{}, "anything at all", "anything at all", nil},
		"plain, to nobody":            {label{}, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := w.Encode(test.payload, bus.To(test.to))
			if test.fault == nil {
				if err != nil || c.Target != test.target {
					t.Fatalf("prepared %+v, %v", c, err)
				}
				return
			}
			wantError(t, err, bus.ErrInvalidCommand)
			wantError(t, err, eventstore.ErrInvalid)
			for _, part := range test.fault {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\ndoes not name %s", err, part)
				}
			}
			if _, err := w.Send(t.Context(), test.payload, bus.To(test.to)); !errors.Is(err, bus.ErrInvalidCommand) {
				t.Errorf("it was sent: %v", err)
			}
		})
	}
	for _, c := range []bus.Command{
		{Type: "till.empty", Payload: empty{}, Target: "account-9"}, {Type: "till.empty", Payload: empty{}, Target: "nothing"},
		{Type: "till.empty", Payload: empty{}, Target: "till-9", To: "8"}, {Type: "test.label", Payload: label{}, Target: "a", To: "b"},
	} {
		if _, err := w.Dispatch(t.Context(), c); !errors.Is(err, bus.ErrInvalidCommand) || !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("target %q, to %q: %v", c.Target, c.To, err)
		}
	}
	// Handlers find the address in Target alone, and what is undone.
	first := uuid.New()
	if _, err := w.Send(t.Context(), label{}, bus.To("here"), bus.Undoes(first)); err != nil || got.Target != "here" || got.To != "" || got.Undoes != first {
		t.Errorf("the handler got %+v, %v", got, err)
	}
}

// The key of a command that was addressed to one is no key of one addressed to another.
func TestAKeyIsForOneAddress(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	bus.HandleAddressed(w.Bus, emptyType, w.tills, empty.Decide)
	for _, id := range []string{"1", "2"} {
		if _, err := w.Send(t.Context(), payIn{Till: id, Cents: 5}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if reply, err := w.Send(t.Context(), empty{}, bus.To("1"), bus.WithKey("k")); err != nil || reply.Repeated != (i == 1) {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	_, err := w.Send(t.Context(), empty{}, bus.To("2"), bus.WithKey("k"))
	wantError(t, err, eventstore.ErrReusedKey)
}

func TestHandleAddressedRefuses(t *testing.T) {
	tills := aggregate.NewRepository(memory.New(memory.Config{}), tillType)
	withTarget := bus.TypeOf[empty]("till.empty", bus.Target(func(empty) string { return "x" }))
	for want, register := range map[string]func(b *bus.Bus){
		"the repository is nil": func(b *bus.Bus) { bus.HandleAddressed[empty, till, event](b, emptyType, nil, empty.Decide) },
		"decide is nil":         func(b *bus.Bus) { bus.HandleAddressed(b, emptyType, tills, nil) },
		"leave the option out":  func(b *bus.Bus) { bus.HandleAddressed(b, withTarget, tills, empty.Decide) },
		"has a handler already": func(b *bus.Bus) {
			bus.HandleAddressed(b, emptyType, tills, empty.Decide)
			bus.HandleAddressed(b, emptyType, tills, empty.Decide)
		},
		"the bus is nil":       func(*bus.Bus) { bus.HandleAddressed(nil, emptyType, tills, empty.Decide) },
		"the type has no name": func(b *bus.Bus) { bus.HandleAddressed(b, bus.CommandType[empty]{}, tills, empty.Decide) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("panicked with %q", text)
				}
			}()
			register(bus.New(bus.Config{}))
		})
	}
}

// Settled says that a command past its deadline has an outcome under its key, which is the only one that it can have.
func TestSettled(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	late := bus.WithDeadline(noon)
	if reply, err := w.Send(t.Context(), payIn{"a", 1}, bus.WithKey("late"), late); !errors.Is(err, bus.ErrExpired) || !reply.Settled {
		t.Errorf("late: %+v, %v", reply, err)
	}
	if reply, err := w.Send(t.Context(), payIn{"a", 1}, bus.WithKey("late")); !errors.Is(err, bus.ErrExpired) || reply.Settled {
		t.Errorf("again, in time: %+v, %v", reply, err)
	}
	if _, err := w.Send(t.Context(), payIn{"a", 1}, bus.WithKey("done")); err != nil {
		t.Fatal(err)
	}
	if reply, err := w.Send(t.Context(), payIn{"a", 1}, bus.WithKey("done"), late); err != nil || !reply.Settled || !reply.Repeated {
		t.Errorf("done before: %+v, %v", reply, err)
	}
	if reply, err := w.Send(t.Context(), payIn{"a", 1}, bus.WithKey("done")); err != nil || reply.Settled {
		t.Errorf("done before, in time: %+v, %v", reply, err)
	}
	loose := newWorld(t, bus.Config{}, bare)
	loose.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{Settled: true}, nil }
	if reply, err := loose.Send(t.Context(), anything{}, late); !errors.Is(err, bus.ErrExpired) || reply.Settled {
		t.Errorf("without keys: %+v, %v", reply, err)
	}
	if reply, err := loose.Send(t.Context(), anything{}); err != nil || reply.Settled {
		t.Errorf("what a handler says: %+v, %v", reply, err)
	}
}
