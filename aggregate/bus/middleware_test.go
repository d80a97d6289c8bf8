package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

// documented is the middleware in the order that the package documents.
func documented(s *memory.Store) []bus.Middleware {
	gate, err := admission.New(admission.Config{})
	if err != nil {
		panic(err)
	}
	return inOrder(s, gate, slog.New(slog.DiscardHandler))
}

func inOrder(s *memory.Store, gate *admission.Gate, logger *slog.Logger) []bus.Middleware {
	return []bus.Middleware{
		bus.Log(logger),
		bus.Trace(func(ctx context.Context, _ *bus.Command) (context.Context, func(error)) { return ctx, nil }),
		bus.Authorize(func(_ context.Context, c *bus.Command) error {
			if c.Metadata.Actor == "mallory" {
				return errStranger
			}
			return nil
		}),
		bus.Validate(),
		bus.Admit(gate),
		bus.Retry(aggregate.Retry{Base: time.Nanosecond, Cap: time.Nanosecond}),
		bus.Idempotent(s),
	}
}

var errStranger = errors.New("a stranger")

func TestWhatIsTurnedAwayLeavesNoKey(t *testing.T) {
	gate, err := admission.New(admission.Config{Queue: 1, MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1, MaxWaitNormal: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	w := newWorld(t, bus.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, func(s *store) []bus.Middleware {
		return inOrder(s, gate, slog.New(slog.DiscardHandler))
	})
	key := []bus.SendOption{bus.WithKey("k"), bus.InScope("s")}
	full := func(t *testing.T) {
		pass, err := gate.Admit(t.Context(), admission.Request{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pass.Done(nil) })
	}
	for _, tc := range []struct {
		name    string
		before  func(t *testing.T)
		payload any
		opts    []bus.SendOption
		check   func(err error) bool
	}{
		{"unauthorised", nil, payOut{"1", -1}, []bus.SendOption{bus.WithMetadata(eventstore.Metadata{Actor: "mallory", Tenant: "acme"})}, func(err error) bool {
			var forbidden *bus.ForbiddenError
			return errors.As(err, &forbidden) && forbidden.Actor == "mallory" && forbidden.Tenant == "acme" &&
				errors.Is(err, bus.ErrForbidden) && errors.Is(err, errStranger)
		}},
		{"invalid", nil, payOut{"1", -1}, nil, func(err error) bool {
			var invalid *bus.InvalidCommandError
			return errors.As(err, &invalid) && invalid.Type == "till.pay-out" && errors.Is(err, bus.ErrInvalidCommand) && errors.Is(err, errNegative)
		}},
		{"shed", full, payIn{"1", 1}, nil, func(err error) bool { return errors.Is(err, admission.ErrOverloaded) }},
		{"unauthorised although there is no room", full, payIn{"1", 1}, []bus.SendOption{bus.WithMetadata(eventstore.Metadata{Actor: "mallory"})},
			func(err error) bool { return errors.Is(err, bus.ErrForbidden) }},
		{"panicking", nil, anything{Secret: "hunter2"}, nil, func(err error) bool {
			var panicked *bus.PanicError
			return errors.As(err, &panicked) && panicked.Value == "ouch" && panicked.Type == "test.anything" &&
				!strings.Contains(err.Error(), "ouch") && !strings.Contains(err.Error(), "goroutine")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.before != nil {
				tc.before(t)
			}
			w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
				_, err := w.tills.Handle(ctx, "1", func(till) ([]event, error) { panic("ouch") })
				return bus.Reply{}, err
			}
			reply, err := w.Send(t.Context(), tc.payload, append(tc.opts, key...)...)
			if !tc.check(err) || reply.Version != 0 || reply.Refused || !reply.Token.IsZero() {
				t.Fatalf("got %+v, %v", reply, err)
			}
			if n := len(events(t, w.store, "1")); n != 0 {
				t.Fatalf("%d events", n)
			}
			wantNoKey(t, w.store, "s", "k")
		})
	}
	if text := logged.String(); !strings.Contains(text, "panic=string ") || strings.Contains(text, "ouch") || !strings.Contains(text, "middleware_test.go") || strings.Contains(text, "hunter2") {
		t.Fatalf("the log of the bus: %s", text)
	}
	// The bus goes on, and the key is free.
	if reply, err := w.Send(t.Context(), payIn{"1", 1}, key...); err != nil || reply.Version != 1 {
		t.Fatalf("got %+v, %v", reply, err)
	}
}

// leak is a value of a panic that holds what was sent.
type leak struct{ payIn }

func (l leak) Error() string { return fmt.Sprint("no more than ", l.Cents) }

func pay(till string, cents int64) { panic(leak{payIn{till, cents}}) }

// Whatever is passed to panic may hold what was sent; what the runtime passes does not.
func TestWhatIsLoggedOfAPanic(t *testing.T) {
	var logged bytes.Buffer
	w := newWorld(t, bus.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, bare)
	for want, boom := range map[string]func(anything){
		"panic=string ":              func(c anything) { panic("cannot pay " + c.Secret) },
		"panic=*errors.errorString ": func(c anything) { panic(errors.New(c.Secret)) },
		"panic=bus_test.anything ":   func(c anything) { panic(c) },
		"panic=*bus_test.anything ":  func(c anything) { panic(&c) },
		"panic=bus_test.leak ":       func(anything) { pay("1", 987654321) },
		`panic="runtime.boundsError: runtime error: index out of range [12] with length 7" `: func(c anything) {
			_ = c.Secret[len(c.Secret)+5]
		},
		`panic="*runtime.TypeAssertionError: interface conversion: interface {} is bus_test.anything, not string" `: func(c anything) {
			_ = any(c).(string)
		},
		"panic=\"*runtime.PanicNilError: ": func(anything) { panic(nil) },
	} {
		logged.Reset()
		w.handle = func(_ context.Context, c anything) (bus.Reply, error) {
			boom(c)
			return bus.Reply{}, nil
		}
		_, err := w.Send(t.Context(), anything{Secret: "hunter2"})
		var panicked *bus.PanicError
		if !errors.As(err, &panicked) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", want, err)
		}
		if text := logged.String(); !strings.Contains(text, want) || !strings.Contains(text, "middleware_test.go") ||
			strings.Contains(text, "hunter2") || strings.Contains(text, "987654321") || strings.Contains(text, "0x") {
			t.Errorf("want %s, logged %s", want, text)
		}
	}
}

func TestPanicsOfMiddlewareAndPayloads(t *testing.T) {
	var logged, traced bytes.Buffer
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware {
		return []bus.Middleware{
			bus.Log(slog.New(slog.NewTextHandler(&logged, nil))),
			bus.Trace(func(ctx context.Context, _ *bus.Command) (context.Context, func(error)) {
				return ctx, func(err error) { traced.WriteString(text(err)) }
			}),
			func(bus.Handler) bus.Handler {
				return func(context.Context, *bus.Command) (bus.Reply, error) { panic(errStranger) }
			},
		}
	})
	_, err := w.Send(t.Context(), payIn{}, bus.WithID(id(3)))
	var panicked *bus.PanicError
	if !strings.Contains(logged.String(), "outcome=panicked") || !strings.Contains(traced.String(), "panicked") {
		t.Fatalf("those around a panic saw %s, %s", logged.String(), traced.String())
	}
	if !errors.As(err, &panicked) || panicked.Value != error(errStranger) || panicked.ID != id(3) || errors.Is(err, errStranger) {
		t.Fatalf("got %v", err)
	}
	bus.Handle(w.Bus, bus.TypeOf[probe]("test.probe", bus.Target(func(probe) string { panic("target") })), handler)
	if _, err := w.Encode(probe{}); !errors.As(err, &panicked) {
		t.Fatalf("got %v", err)
	}
	if _, err := w.Send(t.Context(), probe{}); !errors.As(err, &panicked) {
		t.Fatalf("got %v", err)
	}
}

func TestMiddlewareRunsFromTheFirstToTheLast(t *testing.T) {
	var order []string
	note := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
				order = append(order, name)
				return next(ctx, c)
			}
		}
	}
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware { return []bus.Middleware{note("a"), note("b"), note("c")} })
	if _, err := w.Send(t.Context(), payIn{}); err != nil {
		t.Log(err)
	}
	if got := strings.Join(order, ""); got != "abc" {
		t.Fatalf("order %s", got)
	}
}

func TestAuthorizeTellsARefusalFromAFailure(t *testing.T) {
	for _, failure := range []error{eventstore.ErrBusy, context.DeadlineExceeded, &bus.ForbiddenError{Type: "x"}, aggregate.Transient(errStranger)} {
		w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware {
			return []bus.Middleware{bus.Authorize(func(context.Context, *bus.Command) error { return failure })}
		})
		if _, err := w.Send(t.Context(), payIn{}); err != failure {
			t.Fatalf("got %v, want %v as it is", err, failure)
		}
	}
}

type pointerValidated struct{ Cents int64 }

func (c *pointerValidated) Validate() error { return errNegative }

func TestValidateOnThePointer(t *testing.T) {
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware { return []bus.Middleware{bus.Validate()} })
	bus.Handle(w.Bus, bus.TypeOf[pointerValidated]("test.pointer"), handler)
	_, err := w.Send(t.Context(), pointerValidated{})
	wantError(t, err, errNegative)
	if _, err := w.Send(t.Context(), payIn{"1", -1}); err != nil {
		t.Fatalf("a payload without Validate was refused: %v", err)
	}
}

// Commands within a command that was let in do not queue behind it.
func TestAdmitOnce(t *testing.T) {
	gate, err := admission.New(admission.Config{MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware { return []bus.Middleware{bus.Admit(gate)} })
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		if s := gate.Stats(); s.Running != 1 {
			t.Errorf("while it runs: %+v", s)
		}
		return w.Send(ctx, payIn{"1", 1})
	}
	if _, err := w.Send(t.Context(), anything{}); err != nil {
		t.Fatal(err)
	}
	if s := gate.Stats(); s.Running != 0 {
		t.Fatalf("a place was not given back: %+v", s)
	}
	w.handle = func(context.Context, anything) (bus.Reply, error) {
		if s := gate.Stats(); s.Running != 0 {
			t.Errorf("asked again: %+v", s)
		}
		return bus.Reply{}, nil
	}
	if _, err := w.Send(bus.Admitted(t.Context()), anything{}); err != nil {
		t.Fatal(err)
	}
}

// What is late is not sent away: it is stored that it never runs.
func TestAdmitLetsThroughWhatIsLate(t *testing.T) {
	gate, err := admission.New(admission.Config{MinConcurrency: 1, MaxConcurrency: 1, InitialConcurrency: 1, MaxWaitNormal: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	pass, err := gate.Admit(t.Context(), admission.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Done(nil)
	w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware { return inOrder(s, gate, slog.New(slog.DiscardHandler)) })
	_, err = w.Send(t.Context(), payIn{"1", 1}, bus.WithDeadline(noon))
	wantError(t, err, bus.ErrExpired)
}

func TestTrace(t *testing.T) {
	type span struct{}
	var ended []error
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware {
		return []bus.Middleware{bus.Trace(func(ctx context.Context, c *bus.Command) (context.Context, func(error)) {
			c.Metadata.Headers[eventstore.HeaderTraceparent] = "child of " + c.Metadata.Headers[eventstore.HeaderTraceparent]
			return context.WithValue(ctx, span{}, true), func(err error) { ended = append(ended, err) }
		})}
	})
	headers := map[string]string{eventstore.HeaderTraceparent: "root"}
	c, err := w.Encode(payIn{"1", 1}, bus.WithMetadata(eventstore.Metadata{Headers: headers}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Dispatch(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := events(t, w.store, "1")[0].Metadata.Headers[eventstore.HeaderTraceparent]; got != "child of root" {
		t.Fatalf("the event's trace is %q", got)
	}
	if headers[eventstore.HeaderTraceparent] != "root" || c.Metadata.Headers[eventstore.HeaderTraceparent] != "root" {
		t.Fatal("the sender's headers were changed")
	}
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		if ctx.Value(span{}) == nil {
			t.Error("the handler is not under the span")
		}
		return bus.Reply{}, errStranger
	}
	if _, err := w.Send(t.Context(), anything{}); err != errStranger {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "a stranger"}, []string{text(ended[0]), text(ended[1])}); diff != "" {
		t.Fatal(diff)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
