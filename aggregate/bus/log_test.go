package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

var errDeclined = errors.New("declined")

// How each error is logged, and what it says of the command.
func TestHowCommandsEnd(t *testing.T) {
	id := id(1).String()
	for _, tc := range []struct {
		reply   bus.Reply
		err     error
		outcome string
		level   string
		state   bus.OperationState
	}{
		{bus.Reply{}, nil, "done", "INFO", bus.OperationDone},
		{bus.Reply{Repeated: true}, nil, "repeated", "INFO", bus.OperationDone},
		{bus.Reply{Refused: true}, errStranger, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &aggregate.RefusedError{Text: "hunter2"}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &aggregate.ExistsError{}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &aggregate.VersionError{}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &eventstore.ReusedKeyError{Key: "hunter2"}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &eventstore.InvalidError{Value: "hunter2"}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &eventstore.ClosedError{}, "refused", "INFO", bus.OperationRefused},
		{bus.Reply{}, &bus.ForbiddenError{Err: errStranger}, "forbidden", "INFO", bus.OperationRefused},
		{bus.Reply{}, &bus.InvalidCommandError{Err: errNegative}, "invalid", "INFO", bus.OperationRefused},
		{bus.Reply{}, &bus.ExpiredError{}, "expired", "INFO", bus.OperationExpired},
		{bus.Reply{}, &aggregate.ExpiredError{Key: "hunter2"}, "expired", "INFO", bus.OperationExpired},
		{bus.Reply{}, &admission.OverloadedError{}, "overloaded", "INFO", bus.OperationFailed},
		{bus.Reply{}, &eventstore.InProgressError{Key: "hunter2"}, "in progress", "INFO", bus.OperationFailed},
		{bus.Reply{}, context.Canceled, "cancelled", "INFO", bus.OperationFailed},
		{bus.Reply{}, context.DeadlineExceeded, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{Refused: true}, eventstore.ErrBusy, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, &eventstore.ConflictError{}, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{Refused: true}, aggregate.Transient(errStranger), "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, eventstore.ErrUnconfirmed, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, aggregate.ErrMisuse, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, &bus.KeyUnusedError{}, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, errStranger, "failed", "ERROR", bus.OperationFailed},
		{bus.Reply{}, fmt.Errorf("no: %w", errDeclined), "refused", "INFO", bus.OperationFailed}, // known to Log alone
		{bus.Reply{}, &bus.PanicError{}, "panicked", "ERROR", bus.OperationFailed},
	} {
		t.Run(fmt.Sprintf("%s %v", tc.outcome, tc.err), func(t *testing.T) {
			var logged bytes.Buffer
			now := newClock(noon)
			w := newWorld(t, bus.Config{Clock: now.time}, func(*store) []bus.Middleware {
				return []bus.Middleware{bus.Log(slog.New(slog.NewJSONHandler(&logged, nil)), errDeclined)}
			})
			w.handle = func(context.Context, anything) (bus.Reply, error) {
				now.advance(3 * time.Millisecond)
				return tc.reply, tc.err
			}
			_, err := w.Send(t.Context(), anything{Secret: "hunter2"}, bus.WithKey("hunter2"), bus.InScope("hunter2"), bus.WithID([16]byte{15: 1, 6: 0x40, 8: 0x80}))
			if err != tc.err {
				t.Fatalf("got %v, want the handler's own error", err)
			}
			if got := bus.StateOf(tc.reply, tc.err); got != tc.state {
				t.Fatalf("state %s, want %s", got, tc.state)
			}
			line := map[string]any{}
			if err := json.Unmarshal(logged.Bytes(), &line); err != nil {
				t.Fatalf("not one line: %s", logged.String())
			}
			if strings.Contains(logged.String(), "hunter2") {
				t.Fatalf("a secret is in the log: %s", logged.String())
			}
			want := map[string]any{
				"level": tc.level, "msg": "bus: command", "type": "test.anything", "id": id, "outcome": tc.outcome, "duration": 3e6, "attempts": 1.0,
			}
			if tc.level == "ERROR" {
				want["error"] = tc.err.Error()
			}
			delete(line, "time")
			if fmt.Sprint(line) != fmt.Sprint(want) {
				t.Fatalf("logged %v, want %v", line, want)
			}
		})
	}
}

func TestLogCountsAttempts(t *testing.T) {
	var logged bytes.Buffer
	w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
		return []bus.Middleware{
			bus.Log(slog.New(slog.NewTextHandler(&logged, nil))),
			bus.Retry(aggregate.Retry{Base: time.Nanosecond, Cap: time.Nanosecond}),
		}
	})
	w.handle = func(context.Context, anything) (bus.Reply, error) {
		if w.ran.Load() == 1 {
			return bus.Reply{Attempts: 4}, eventstore.ErrConflict
		}
		return bus.Reply{Attempts: 2}, nil
	}
	if _, err := w.Send(t.Context(), anything{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "attempts=6") {
		t.Fatal(logged.String())
	}
	logged.Reset()
	if _, err := w.Send(t.Context(), anything{}, bus.WithDeadline(noon)); !errors.Is(err, bus.ErrExpired) || !strings.Contains(logged.String(), "outcome=expired") ||
		!strings.Contains(logged.String(), "attempts=0") {
		t.Fatalf("%v: %s", err, logged.String())
	}
}

// A refusal of a decision needs no declaration, a transient error of one is none.
func TestRefusalsOfAggregates(t *testing.T) {
	type flaky struct{}
	w := newWorld(t, bus.Config{}, bare)
	bus.HandleAggregate(w.Bus, bus.TypeOf[flaky]("till.flaky"), w.tills, func(flaky) string { return "1" },
		func(flaky, till) ([]event, error) { return nil, aggregate.Transient(errStranger) })
	reply, err := w.Send(t.Context(), flaky{})
	if !errors.Is(err, errStranger) || reply.Refused {
		t.Fatalf("got %+v, %v", reply, err)
	}
	if reply, err := w.Send(t.Context(), payOut{"1", 1}); err != errEmpty || !reply.Refused {
		t.Fatalf("got %+v, %v", reply, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if reply, err := w.Send(ctx, payOut{"1", 1}); !errors.Is(err, context.Canceled) || reply.Refused {
		t.Fatalf("got %+v, %v", reply, err)
	}
}
