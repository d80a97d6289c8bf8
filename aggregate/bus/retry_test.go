package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

func TestRetry(t *testing.T) {
	busy := errors.Join(errors.New("deadlock"), eventstore.ErrBusy)
	for _, tc := range []struct {
		name    string
		err     error
		keyed   bool
		retries int
		runs    int32
	}{
		{"a conflict", &eventstore.ConflictError{}, false, 0, 4},
		{"busy", busy, false, 2, 3},
		{"none wanted", busy, false, -1, 1},
		{"unconfirmed without a key", eventstore.ErrUnconfirmed, false, 0, 1},
		{"unconfirmed with a key", eventstore.ErrUnconfirmed, true, 0, 4},
		{"the domain's", errStranger, true, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var naps []time.Duration
			retry := bus.Retry(aggregate.Retry{Retries: tc.retries, Base: 4, Cap: 10, Sleep: func(ctx context.Context, d time.Duration) error {
				naps = append(naps, d)
				return ctx.Err()
			}})
			w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
				if tc.keyed {
					return []bus.Middleware{retry, bus.Idempotent(s)}
				}
				return []bus.Middleware{retry}
			})
			w.handle = func(context.Context, anything) (bus.Reply, error) { return bus.Reply{}, tc.err }
			if _, err := w.Send(t.Context(), anything{}); err != tc.err {
				t.Fatalf("got %v", err)
			}
			if n := w.ran.Load(); n != tc.runs || len(naps) != int(tc.runs)-1 {
				t.Fatalf("%d runs, %d naps, want %d runs", n, len(naps), tc.runs)
			}
			for i, nap := range naps {
				if longest := []time.Duration{4, 8, 10}[i]; nap < 0 || nap > longest {
					t.Fatalf("nap %d took %d, longest is %d", i, nap, longest)
				}
			}
		})
	}
}

func TestRetryEndsInSuccess(t *testing.T) {
	w := newWorld(t, bus.Config{}, documented)
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		if w.ran.Load() < 3 {
			return bus.Reply{}, eventstore.ErrBusy
		}
		result, err := w.tills.Handle(ctx, "any", payIn{Cents: 1}.Decide)
		return bus.Reply{Version: result.Version}, err
	}
	if reply, err := w.Send(t.Context(), anything{}); err != nil || reply.Version != 1 || w.ran.Load() != 3 {
		t.Fatalf("got %+v, %v after %d runs", reply, err, w.ran.Load())
	}
}

// A refusal that happens to look like a conflict is an answer.
func TestRetryLeavesRefusalsAlone(t *testing.T) {
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware { return []bus.Middleware{bus.Retry(aggregate.Retry{})} })
	w.handle = func(context.Context, anything) (bus.Reply, error) {
		return bus.Reply{Refused: true}, eventstore.ErrConflict
	}
	if _, err := w.Send(t.Context(), anything{}); err != eventstore.ErrConflict || w.ran.Load() != 1 {
		t.Fatalf("got %v after %d runs", err, w.ran.Load())
	}
}

func TestRetryEndsWithTheContext(t *testing.T) {
	w := newWorld(t, bus.Config{}, func(*store) []bus.Middleware {
		return []bus.Middleware{bus.Retry(aggregate.Retry{Base: time.Hour, Cap: time.Hour})}
	})
	ctx, cancel := context.WithCancel(t.Context())
	w.handle = func(context.Context, anything) (bus.Reply, error) {
		cancel()
		return bus.Reply{}, eventstore.ErrBusy
	}
	_, err := w.Send(ctx, anything{})
	wantError(t, err, context.Canceled)
	wantError(t, err, eventstore.ErrBusy)
}
