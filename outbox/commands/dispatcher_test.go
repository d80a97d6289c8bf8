package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/livetest"
)

// Commands of several tills, by the queue and in transactions of others: each takes effect once, those of one till in
// the order in which they were sent.
func TestCommandsAreCarriedOutOnceAndInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(Config{BatchSize: 7})
	const tills, each = 5, 20
	var last []uuid.UUID
	for n := range each {
		for id := range tills {
			c, err := w.bus.Encode(add{fmt.Sprint(id), int64(n + 1)}, bus.ReplyTo("replies"))
			if err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 {
				w.inTx(func(tx pgx.Tx) error { return Enqueue(t.Context(), tx, c) })
			} else if _, err := w.queue.Enqueue(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if n == each-1 {
				last = append(last, c.ID)
			}
		}
	}
	for _, id := range last {
		o := w.ends(id, bus.OperationDone)
		if o.Version != each || o.Stream.Category != "till" || o.Token.IsZero() || o.Progress != 1 || o.FinishedAt.IsZero() || o.StartedAt.IsZero() {
			t.Errorf("its operation is %+v", o)
		}
	}
	for id := range tills {
		w.wantNumbers(fmt.Sprint(id), each)
	}
	replies := w.replies("replies")
	if len(replies) != tills*each {
		t.Errorf("%d ends were told, want %d", len(replies), tills*each)
	}
	for id, r := range replies {
		if r.State != bus.OperationDone || r.Stream == "" || r.Version == 0 || r.Token == "" {
			t.Errorf("the reply to %s is %+v", id, r)
		}
	}
}

// Every way in which a command may end, in its operation and in the reply.
func TestEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log livetest.Lines
	errService := errors.New("the service did not answer")
	w.handles(func(_ context.Context, c anything) (bus.Reply, error) {
		switch c.Text {
		case "panic":
			panic("a secret")
		case "transient":
			return bus.Reply{}, aggregate.Transient(errService)
		case "not valid":
			return bus.Reply{}, fmt.Errorf("anything: %w", &bus.InvalidCommandError{Type: "test.anything", Err: errors.New("cents must be positive")})
		case "unstorable":
			return bus.Reply{}, &eventstore.InvalidError{Field: "event.Data", Reason: "is too long"}
		case "refuse":
			return bus.Reply{Refused: true}, errors.New("not today")
		case "result":
			return bus.Reply{Result: struct{ A int }{7}}, nil
		case "bytes":
			return bus.Reply{Result: []byte{1, 2}}, nil
		case "hostile":
			return bus.Reply{Refused: true}, errors.New("nul \x00, broken \xff, " + strings.Repeat("é", 10_000))
		case "bad stream":
			return bus.Reply{Stream: eventstore.StreamID{Category: "a\x00", ID: "\xff"}}, nil
		case "huge":
			return bus.Reply{Result: make([]byte, 2<<20)}, nil
		}
		return bus.Reply{}, nil
	})
	w.run(Config{Attempts: 3, Logger: log.Logger()})
	raw := func(change func(*bus.Command)) uuid.UUID {
		t.Helper()
		c, err := w.bus.Encode(add{"raw", 1}, bus.ReplyTo("replies"))
		if err != nil {
			t.Fatal(err)
		}
		change(&c)
		id, err := w.queue.Enqueue(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for name, test := range map[string]struct {
		send         func() uuid.UUID
		state        bus.OperationState
		code, reason string
		result       string
	}{
		"refused": {func() uuid.UUID { return w.send(add{"a", -1}, bus.ReplyTo("replies")) }, bus.OperationRefused, "negative", errNegative.Error(), ""},
		"expired": {func() uuid.UUID { return w.send(add{"b", 1}, bus.WithDeadline(time.Now()), bus.ReplyTo("replies")) }, bus.OperationExpired, "", "expired", ""},
		"version": {func() uuid.UUID {
			return w.send(add{"c", 1}, bus.IfVersion(eventstore.Exactly(9)), bus.ReplyTo("replies"))
		}, bus.OperationRefused, CodeVersion, "version", ""},
		"unknown":    {func() uuid.UUID { return raw(func(c *bus.Command) { c.Type = "till.unknown" }) }, bus.OperationFailed, CodeUnknownType, "till.unknown", ""},
		"garbage":    {func() uuid.UUID { return raw(func(c *bus.Command) { c.Data = []byte("garbage") }) }, bus.OperationFailed, CodeInvalid, "", ""},
		"codec":      {func() uuid.UUID { return raw(func(c *bus.Command) { c.ContentType = "text/x" }) }, bus.OperationFailed, CodeInvalid, "text/x", ""},
		"panic":      {func() uuid.UUID { return w.send(anything{"panic"}, bus.ReplyTo("replies")) }, bus.OperationFailed, CodePanic, "", ""},
		"transient":  {func() uuid.UUID { return w.send(anything{"transient"}, bus.ReplyTo("replies")) }, bus.OperationFailed, CodeExhausted, errService.Error(), ""},
		"not valid":  {func() uuid.UUID { return w.send(anything{"not valid"}, bus.ReplyTo("replies")) }, bus.OperationFailed, CodeInvalid, "^cents must be positive", ""},
		"unstorable": {func() uuid.UUID { return w.send(anything{"unstorable"}, bus.ReplyTo("replies")) }, bus.OperationFailed, CodeUnstorable, "event.Data", ""},
		"by itself":  {func() uuid.UUID { return w.send(anything{"refuse"}, bus.ReplyTo("replies")) }, bus.OperationRefused, "", "not today", ""},
		"result":     {func() uuid.UUID { return w.send(anything{"result"}, bus.ReplyTo("replies")) }, bus.OperationDone, "", "", `{"A":7}`},
		"bytes":      {func() uuid.UUID { return w.send(anything{"bytes"}, bus.ReplyTo("replies")) }, bus.OperationDone, "", "", "\x01\x02"},
		"hostile":    {func() uuid.UUID { return w.send(anything{"hostile"}, bus.ReplyTo("replies")) }, bus.OperationRefused, "", "broken", ""},
		"bad stream": {func() uuid.UUID { return w.send(anything{"bad stream"}, bus.ReplyTo("replies")) }, bus.OperationDone, "", "", ""},
		"huge":       {func() uuid.UUID { return w.send(anything{"huge"}, bus.ReplyTo("replies")) }, bus.OperationDone, "", "more than 1 MiB", ""},
	} {
		t.Run(name, func(t *testing.T) {
			id := test.send()
			o := w.ends(id, test.state)
			if o.Code != test.code || !strings.Contains("^"+o.Reason, test.reason) || string(o.Result) != test.result {
				t.Errorf("it ended with code %q, reason %q, result %q", o.Code, o.Reason, o.Result)
			}
			if strings.Contains(o.Reason, "secret") || len(o.Reason) > maxReason {
				t.Errorf("its reason has what it must not have: %.200q", o.Reason)
			}
			r, told := w.replies("replies")[id]
			if !told || r.State != o.State || r.Code != o.Code || r.Reason != o.Reason || string(r.Result) != string(o.Result) || r.Version != o.Version {
				t.Errorf("told was %+v, and it ended %+v", r, o)
			}
		})
	}
	if got := w.numbers("b"); len(got) != 0 {
		t.Errorf("an expired command has added %v", got)
	}
	if !strings.Contains(log.String(), CodePanic) {
		t.Errorf("the log does not name what failed:\n%s", log.String())
	}
}

// A dispatcher says what is wrong with what it is given.
func TestNewDispatcherRefuses(t *testing.T) {
	t.Parallel()
	_, err := NewDispatcher(nil, Local(nil), nil, Config{Workers: -1, Attempts: -1, Timeout: -1, Lease: 1})
	if err == nil {
		t.Fatal("it was made")
	}
	for _, part := range []string{"pool is nil", "source is nil", "bus is nil", "Config.Workers", "Config.Attempts", "Config.Timeout", "Config.Lease"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not name %s", err, part)
		}
	}
}

// A bus without the middleware: commands take effect once all the same, and Health says what is missing.
func TestABusWithoutIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := bus.New(bus.Config{})
	bus.HandleAggregate(b, addType, w.tills, func(c add) string { return c.Till }, add.Decide)
	d, err := NewDispatcher(w.pool, Local(w.store.Outbox()), b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Encode(add{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.inTx(func(tx pgx.Tx) error { return Enqueue(t.Context(), tx, c) })
	}
	last := w.send(add{"a", 2})
	w.start(d)
	w.ends(last, bus.OperationDone)
	w.wantNumbers("a", 2)
	if h := d.Health(t.Context()); h.Ready || h.Reason != noIdempotent {
		t.Errorf("health is %+v", h)
	}
}

// A handler that succeeds without its key is told from one that is covered.
func TestAHandlerWithoutItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type loose struct{ A int }
	looseType := bus.TypeOf[loose]("test.loose")
	bus.Handle(w.bus, looseType, func(context.Context, loose) (bus.Reply, error) { return bus.Reply{}, nil })
	d := w.dispatcher(nil, Config{})
	w.start(d)
	if o := w.ends(w.send(loose{1}), bus.OperationFailed); o.Code != CodeKeyUnused {
		t.Errorf("it failed with code %q: %s", o.Code, o.Reason)
	}
	w.ends(w.send(add{"a", 1}), bus.OperationDone)
	if d.bare.Load() {
		t.Error("its bus is taken for one without the middleware")
	}
}
