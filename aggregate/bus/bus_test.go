package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

func TestSendFindsTheHandlerByGoType(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	reply, err := w.Send(t.Context(), payIn{"1", 100})
	if err != nil || reply.Version != 1 || reply.Stream != tillType.Stream("1") || reply.Attempts != 1 || reply.Token.IsZero() {
		t.Fatalf("got %+v, %v", reply, err)
	}
	reply, err = w.Send(t.Context(), payOut{"1", 101})
	if err != errEmpty || !reply.Refused || reply.Version != 1 {
		t.Fatalf("a refusal came back as %+v, %v", reply, err)
	}
	if got, want := w.Types(), []string{"test.anything", "till.pay-in", "till.pay-out"}; !cmp.Equal(got, want) {
		t.Fatalf("types %v, want %v", got, want)
	}
}

func TestWhatCannotBeRouted(t *testing.T) {
	w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
		return []bus.Middleware{func(bus.Handler) bus.Handler {
			return func(context.Context, *bus.Command) (bus.Reply, error) {
				t.Error("middleware saw a command without a handler")
				return bus.Reply{}, nil
			}
		}}
	})
	type stranger struct{}
	for name, tc := range map[string]struct {
		send func() error
		want error
		text string
	}{
		"an unknown Go type":  {func() error { _, err := w.Send(t.Context(), stranger{}); return err }, bus.ErrUnknownCommand, "bus_test.stranger"},
		"nil":                 {func() error { _, err := w.Send(t.Context(), nil); return err }, bus.ErrUnknownCommand, "nil"},
		"a pointer":           {func() error { _, err := w.Send(t.Context(), &payIn{}); return err }, bus.ErrUnknownCommand, "not a pointer"},
		"an unknown name":     {func() error { _, err := w.Dispatch(t.Context(), bus.Command{Type: "no.such"}); return err }, bus.ErrUnknownCommand, `"no.such"`},
		"no name":             {func() error { _, err := w.Dispatch(t.Context(), bus.Command{}); return err }, bus.ErrUnknownCommand, "no handler"},
		"encoding a stranger": {func() error { _, err := w.Encode(stranger{}); return err }, bus.ErrUnknownCommand, "stranger"},
		"another payload": {func() error {
			_, err := w.Dispatch(t.Context(), bus.Command{Type: "till.pay-in", Payload: payOut{}})
			return err
		}, bus.ErrInvalidCommand, "bus_test.payOut"},
		"an unknown content type": {func() error {
			_, err := w.Dispatch(t.Context(), bus.Command{Type: "till.pay-in", ContentType: "text/html", Data: []byte("x")})
			return err
		}, bus.ErrInvalidCommand, `"text/html"`},
		"data that do not decode": {func() error {
			_, err := w.Dispatch(t.Context(), bus.Command{Type: "till.pay-in", ContentType: "application/json", Data: []byte(`{"Cents":"much"}`)})
			return err
		}, bus.ErrInvalidCommand, "decode"},
		"no data": {func() error { _, err := w.Dispatch(t.Context(), bus.Command{Type: "till.pay-in"}); return err }, bus.ErrInvalidCommand, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.send()
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want one that is %v and names %s", err, tc.want, tc.text)
			}
		})
	}
}

func TestDataIsReadInEveryKnownForm(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	for i, contentType := range []string{"application/json", "Application/JSON; charset=utf-8", " application/json"} {
		reply, err := w.Dispatch(t.Context(), bus.Command{Type: "till.pay-in", ContentType: contentType, Data: []byte(`{"Till":"1","Cents":5}`)})
		if err != nil || int(reply.Version) != i+1 {
			t.Fatalf("%s: %+v, %v", contentType, reply, err)
		}
	}
}

// Everything that a command carries survives the way through bytes: whatever is sent, storing and dispatching it ends
// as sending does.
func TestDispatchFromBytesEqualsSend(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sent, stored := newWorld(t, bus.Config{}, idempotent), newWorld(t, bus.Config{}, idempotent)
		commands := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any {
			till, cents := rapid.SampledFrom([]string{"1", "2", ""}).Draw(rt, "till"), rapid.Int64Range(-3, 10).Draw(rt, "cents")
			if rapid.Bool().Draw(rt, "in") {
				return payIn{till, cents}
			}
			return payOut{till, cents}
		}), 1, 12).Draw(rt, "commands")
		for i, payload := range commands {
			var opts []bus.SendOption
			opts = append(opts, bus.WithID(id(byte(i))))
			if rapid.Bool().Draw(rt, "keyed") {
				opts = append(opts, bus.WithKey(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")))
			}
			if rapid.Bool().Draw(rt, "version") {
				opts = append(opts, bus.IfVersion(eventstore.Exactly(eventstore.Version(rapid.IntRange(1, 3).Draw(rt, "at")))))
			}
			if rapid.Bool().Draw(rt, "late") {
				opts = append(opts, bus.WithDeadline(noon))
			}
			if rapid.Bool().Draw(rt, "tenant") {
				opts = append(opts, bus.WithMetadata(eventstore.Metadata{Tenant: "t", Headers: map[string]string{"h": "v"}}))
			}
			one, oneErr := sent.Send(context.Background(), payload, opts...)
			command, err := stored.Encode(payload, opts...)
			if err != nil {
				rt.Fatal(err)
			}
			if command.Payload != nil || command.Data == nil || command.Target != "till-"+tillOf(payload) {
				rt.Fatalf("encoded as %+v", command)
			}
			other, otherErr := stored.Dispatch(context.Background(), command)
			got, want := endOf(other, otherErr), endOf(one, oneErr)
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("command %d, %+v: (-sent +dispatched)\n%s", i, payload, diff)
			}
		}
		for _, till := range []string{"1", "2"} {
			want, got := contents(t, sent.store, till), contents(t, stored.store, till)
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("till %s: (-sent +dispatched)\n%s", till, diff)
			}
		}
	})
}

func TestPrepareTakesDeadlineAndMetadataOfTheContext(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	at := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), at)
	defer cancel()
	ctx = eventstore.WithMetadata(ctx, eventstore.Metadata{Tenant: "acme", Actor: "ada", Headers: map[string]string{"a": "1"}})
	c, err := w.Prepare(ctx, payIn{"7", 1}, bus.WithMetadata(eventstore.Metadata{Actor: "bob"}), bus.WithClass(admission.Bulk), bus.ReplyTo("ends"),
		bus.WithDeadline(at.Add(time.Hour)), bus.IfVersion(eventstore.NoStream))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Deadline.Equal(at) || c.Scope != "acme/bob" || c.Key != c.ID.String() || c.Target != "till-7" || c.Class != admission.Bulk || c.ReplyTo != "ends" ||
		c.Metadata.Headers["a"] != "1" || *c.Expected != eventstore.NoStream || c.Type != "till.pay-in" || c.ContentType != "application/msgpack" {
		t.Fatalf("prepared %+v", c)
	}
	if c, err := w.Prepare(ctx, payIn{}, bus.InScope("mine"), bus.WithKey("k"), bus.WithDeadline(noon)); err != nil || c.Scope != "mine" || c.Key != "k" || !c.Deadline.Equal(noon) {
		t.Fatalf("prepared %+v, %v", c, err)
	}
	if headers := eventstore.MetadataFrom(ctx).Headers; len(headers) != 1 {
		t.Fatalf("the context's headers were changed: %v", headers)
	}
}

func TestEventsSayWhichCommandTheyComeFrom(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	ctx := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "acme", CausationID: "before"})
	var inner, outer bus.Command
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		outer, _ = bus.CommandFrom(ctx)
		return w.Send(ctx, payIn{"1", 1}, bus.WithID(id(2)))
	}
	bus.Handle(w.Bus, bus.TypeOf[probe]("test.probe"), func(ctx context.Context, _ probe) (bus.Reply, error) {
		inner, _ = bus.CommandFrom(ctx)
		return bus.Reply{}, nil
	})
	if _, err := w.Send(ctx, anything{}, bus.WithID(id(1))); err != nil {
		t.Fatal(err)
	}
	m := events(t, w.store, "1")[0].Metadata
	if m.Tenant != "acme" || m.CausationID != id(2).String() || m.CorrelationID != id(1).String() {
		t.Fatalf("the event has %+v", m)
	}
	if outer.ID != id(1) || outer.Metadata.CausationID != "before" {
		t.Fatalf("the handler saw %+v", outer)
	}
	if _, err := w.Send(ctx, probe{}); err != nil || inner.Type != "test.probe" {
		t.Fatalf("the handler saw %+v, %v", inner, err)
	}
	if _, ok := bus.CommandFrom(ctx); ok {
		t.Fatal("there is a command outside of a handler")
	}
}

func TestExpectedVersion(t *testing.T) {
	w := newWorld(t, bus.Config{}, bare)
	if _, err := w.Send(t.Context(), payIn{"1", 1}, bus.IfVersion(eventstore.NoStream)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Send(t.Context(), payIn{"1", 1}, bus.IfVersion(eventstore.NoStream))
	var version *aggregate.VersionError
	if !errors.As(err, &version) || version.Have != 1 {
		t.Fatalf("got %v", err)
	}
	// What a command demands is not demanded of the commands that its handler sends.
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) { return w.Send(ctx, payIn{"1", 1}) }
	if reply, err := w.Send(t.Context(), anything{}, bus.IfVersion(eventstore.Exactly(7))); err != nil || reply.Version != 2 {
		t.Fatalf("got %+v, %v", reply, err)
	}
}
