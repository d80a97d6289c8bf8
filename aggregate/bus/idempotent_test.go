package bus_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestARepeatGetsTheFirstAnswer(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	first, err := w.Send(t.Context(), payIn{"1", 100}, bus.WithID(id(1)))
	if err != nil || first.Repeated {
		t.Fatalf("got %+v, %v", first, err)
	}
	if _, err := w.Send(t.Context(), payIn{"1", 1}); err != nil {
		t.Fatal(err)
	}
	again, err := w.Send(t.Context(), payIn{"1", 100}, bus.WithID(id(1)))
	if err != nil || !again.Repeated || again.Version != 1 || again.Stream != first.Stream {
		t.Fatalf("the repeat got %+v, %v", again, err)
	}
	if n := len(events(t, w.store, "1")); n != 2 {
		t.Fatalf("%d events, want 2", n)
	}
	_, err = w.Send(t.Context(), payIn{"1", 99}, bus.WithID(id(1)))
	wantError(t, err, eventstore.ErrReusedKey)
	_, err = w.Send(t.Context(), payOut{"1", 100}, bus.WithID(id(1)))
	wantError(t, err, eventstore.ErrReusedKey)
	// The same key of somebody else is another key.
	if reply, err := w.Send(t.Context(), payIn{"1", 99}, bus.WithID(id(1)), bus.InScope("other")); err != nil || reply.Repeated {
		t.Fatalf("got %+v, %v", reply, err)
	}
}

func TestARepeatedRefusal(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	_, err := w.Send(t.Context(), payOut{"1", 5}, bus.WithKey("k"))
	if err != errEmpty {
		t.Fatalf("got %v", err)
	}
	if _, err := w.Send(t.Context(), payIn{"1", 5}); err != nil {
		t.Fatal(err)
	}
	reply, err := w.Send(t.Context(), payOut{"1", 5}, bus.WithKey("k"))
	wantError(t, err, aggregate.ErrRefused)
	if !reply.Refused || !reply.Repeated || bus.StateOf(reply, err) != bus.OperationRefused {
		t.Fatalf("the repeat got %+v", reply)
	}
}

// A command without a scope has the one that a key without a scope has.
func TestScopeIsThatOfKeysWithoutOne(t *testing.T) {
	for _, m := range []eventstore.Metadata{
		{}, {Tenant: "acme"}, {Actor: "ada"}, {Tenant: "a/b", Actor: "c d"}, {Tenant: strings.Repeat("ü", 90), Actor: "x"},
	} {
		w := newWorld(t, bus.Config{}, idempotent)
		var c bus.Command
		w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
			c, _ = bus.CommandFrom(ctx)
			_, err := w.tills.Handle(ctx, "1", payIn{Cents: 1}.Decide)
			return bus.Reply{}, err
		}
		ctx := eventstore.WithMetadata(t.Context(), m)
		if _, err := w.Send(ctx, anything{}, bus.WithKey("k")); err != nil {
			t.Fatal(err)
		}
		request := append([]byte(c.Type+"\x00"), c.Data...)
		result, err := w.tills.Handle(ctx, "1", payIn{Cents: 1}.Decide, aggregate.WithIdempotencyKey("k", aggregate.ForRequest(request)))
		if err != nil || !result.Repeated {
			t.Fatalf("%+v: %+v, %v", m, result, err)
		}
	}
}

func TestALateCommandNeverRuns(t *testing.T) {
	for name, order := range map[string]func(*memory.Store) []bus.Middleware{"alone": idempotent, "as documented": documented} {
		t.Run(name, func(t *testing.T) {
			now := newClock(noon)
			w := newWorld(t, bus.Config{Clock: now.time}, order)
			late := func() error {
				_, err := w.Send(t.Context(), anything{}, bus.WithKey("k"), bus.InScope("s"), bus.WithDeadline(noon), bus.WithID(id(1)))
				return err
			}
			var expired *bus.ExpiredError
			if err := late(); !errors.As(err, &expired) || !expired.Deadline.Equal(noon) || expired.Type != "test.anything" || expired.ID != id(1) {
				t.Fatalf("got %v", err)
			}
			wantError(t, expired, aggregate.ErrExpired)
			now.advance(-time.Hour) // as in another process, whose clock is behind
			wantError(t, late(), bus.ErrExpired)
			if n := len(events(t, w.store, "any")); n != 0 {
				t.Fatalf("it ran: %d events", n)
			}
		})
	}
}

func TestLateTwiceAtOnce(t *testing.T) {
	now := newClock(noon)
	w := newWorld(t, bus.Config{Clock: now.time}, documented)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			_, err := w.Send(t.Context(), anything{}, bus.WithKey("k"), bus.WithDeadline(noon))
			if !errors.Is(err, bus.ErrExpired) {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	if n := w.ran.Load(); n != 0 {
		t.Fatalf("the handler ran %d times", n)
	}
}

// One of two that come at once is late: either both get the answer of the one that ran, or it takes no effect.
func TestLateWhileItRuns(t *testing.T) {
	now := newClock(noon.Add(-time.Minute))
	w := newWorld(t, bus.Config{Clock: now.time}, idempotent)
	deciding, goOn := make(chan struct{}), make(chan struct{})
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		_, err := w.tills.Handle(ctx, "any", func(till) ([]event, error) {
			close(deciding)
			<-goOn
			return []event{paidIn{1}}, nil
		})
		return bus.Reply{}, err
	}
	send := func() error {
		_, err := w.Dispatch(t.Context(), bus.Command{Type: "test.anything", Payload: anything{}, Key: "k", Deadline: noon})
		return err
	}
	ran := make(chan error)
	go func() { ran <- send() }()
	<-deciding
	now.advance(time.Hour)
	late := send()
	close(goOn)
	wantError(t, late, bus.ErrExpired)
	wantError(t, <-ran, bus.ErrExpired)
	if n := len(events(t, w.store, "any")); n != 0 {
		t.Fatalf("a command that had expired took effect: %d events", n)
	}
}

func TestLateButDoneBefore(t *testing.T) {
	now := newClock(noon.Add(-time.Minute))
	w := newWorld(t, bus.Config{Clock: now.time}, documented)
	c, err := w.Encode(payIn{"1", 5}, bus.WithDeadline(noon))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Dispatch(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	refusing, err := w.Encode(payOut{"1", 6}, bus.WithDeadline(noon))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Dispatch(t.Context(), refusing); err != errEmpty {
		t.Fatal(err)
	}
	now.advance(time.Hour)
	reply, err := w.Dispatch(t.Context(), c)
	if err != nil || !reply.Repeated || reply.Version != 1 {
		t.Fatalf("got %+v, %v", reply, err)
	}
	reply, err = w.Dispatch(t.Context(), refusing)
	if !errors.Is(err, aggregate.ErrRefused) || !reply.Refused {
		t.Fatalf("got %+v, %v", reply, err)
	}
}

// The deadline passes on the way to the handler.
func TestLateBehindTheKey(t *testing.T) {
	now := newClock(noon.Add(-time.Minute))
	w := newWorld(t, bus.Config{Clock: now.time}, func(s *store) []bus.Middleware {
		return append(idempotent(s), func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
				now.advance(time.Hour)
				return next(ctx, c)
			}
		})
	})
	send := func() error {
		_, err := w.Dispatch(t.Context(), bus.Command{Type: "test.anything", Payload: anything{}, Key: "k", Deadline: noon})
		return err
	}
	wantError(t, send(), bus.ErrExpired)
	now.advance(-5 * time.Hour)
	wantError(t, send(), bus.ErrExpired)
	if n := len(events(t, w.store, "any")); n != 0 {
		t.Fatalf("it ran: %d events", n)
	}
}

// In process, the deadline is that of the context, which is over when there is something to store.
func TestTheContextsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
			return append([]bus.Middleware{func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
					<-ctx.Done()
					return next(ctx, c)
				}
			}}, documented(s)...)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Send(ctx, anything{}, bus.WithKey("k"), bus.InScope("s"))
		wantError(t, err, bus.ErrExpired)
		outcome, found, err := w.store.FirstOutcome(t.Context(), eventstore.Claim{Scope: "s", Key: "k", Request: []byte("x")})
		if !errors.Is(err, eventstore.ErrReusedKey) {
			t.Fatalf("it was not stored: %+v, %v, %v", outcome, found, err)
		}
		// One that its sender gave up is not stored.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		go cancel()
		_, err = w.Send(ctx, anything{}, bus.WithKey("l"), bus.InScope("s"))
		wantError(t, err, context.Canceled)
		wantNoKey(t, w.store, "s", "l")
	})
}

// The deadline passes on the way to the handler of a command that was done before.
func TestLateOnTheWayButDoneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
			return append(idempotent(s), func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, c *bus.Command) (bus.Reply, error) {
					if wait, ok := ctx.Value(probe{}).(time.Duration); ok {
						<-time.After(wait) // by the bubble's clock
					}
					return next(ctx, c)
				}
			})
		})
		c, err := w.Encode(payIn{"1", 1}, bus.WithDeadline(time.Now().Add(time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Dispatch(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		reply, err := w.Dispatch(context.WithValue(t.Context(), probe{}, 2*time.Second), c)
		if err != nil || !reply.Repeated || reply.Version != 1 {
			t.Fatalf("got %+v, %v", reply, err)
		}
	})
}

// For a sender who has gone nothing is begun, and nothing stored.
func TestTheSenderHasGone(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, opts := range [][]bus.SendOption{{bus.WithDeadline(noon)}, nil} {
		_, err := w.Send(ctx, anything{}, append(opts, bus.WithKey("k"), bus.InScope("s"))...)
		wantError(t, err, context.Canceled)
		wantNoKey(t, w.store, "s", "k")
	}
	if n := w.ran.Load(); n != 0 {
		t.Fatalf("the handler ran %d times", n)
	}
}

// With a payload, data are of no account.
func TestThePayloadIsTheRequest(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	if _, err := w.Send(t.Context(), payIn{"1", 1}, bus.WithID(id(1))); err != nil {
		t.Fatal(err)
	}
	reply, err := w.Dispatch(t.Context(), bus.Command{ID: id(1), Type: "till.pay-in", Payload: payIn{"1", 1}, Data: []byte("else"), ContentType: "text/plain"})
	if err != nil || !reply.Repeated {
		t.Fatalf("got %+v, %v", reply, err)
	}
}

func TestTheHandlerHasTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bus.Config{}, bare)
		w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
			<-ctx.Done()
			return bus.Reply{}, ctx.Err()
		}
		reply, err := w.Dispatch(t.Context(), bus.Command{Type: "test.anything", Payload: anything{}, Deadline: time.Now().Add(time.Second)})
		wantError(t, err, context.DeadlineExceeded)
		if errors.Is(err, bus.ErrExpired) || bus.StateOf(reply, err) != bus.OperationFailed {
			t.Fatalf("a command that had begun ended as expired: %v", err)
		}
	})
}

func TestTypesWithoutKey(t *testing.T) {
	w := newWorld(t, bus.Config{}, idempotent)
	bus.Handle(w.Bus, bus.TypeOf[probe]("test.probe", bus.WithoutKey()), func(ctx context.Context, _ probe) (bus.Reply, error) {
		_, err := w.tills.Handle(ctx, "any", payIn{Cents: 1}.Decide)
		return bus.Reply{}, err
	})
	for range 2 {
		if _, err := w.Send(t.Context(), probe{}, bus.WithKey("k")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(events(t, w.store, "any")); n != 2 {
		t.Fatalf("%d events, want 2", n)
	}
	// A key that somebody put into the context is not theirs either.
	for range 2 {
		if _, err := w.Send(aggregate.ContextWithIdempotencyKey(t.Context(), "k"), probe{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(events(t, w.store, "any")); n != 4 {
		t.Fatalf("%d events, want 4", n)
	}
	// Within a command that has a key, too.
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		if _, err := w.Send(ctx, probe{}); err != nil {
			return bus.Reply{}, err
		}
		_, err := w.tills.Handle(ctx, "other", payIn{Cents: 1}.Decide)
		return bus.Reply{}, err
	}
	if _, err := w.Send(t.Context(), anything{}); err != nil {
		t.Fatal(err)
	}
}

func TestTellIfRunning(t *testing.T) {
	w := newWorld(t, bus.Config{}, func(s *store) []bus.Middleware {
		return []bus.Middleware{bus.Idempotent(s, bus.TellIfRunning())}
	})
	deciding, goOn := make(chan struct{}), make(chan struct{})
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		_, err := w.tills.Handle(ctx, "any", func(till) ([]event, error) {
			close(deciding)
			<-goOn
			return nil, nil
		})
		return bus.Reply{}, err
	}
	ran := make(chan error)
	go func() {
		_, err := w.Send(context.Background(), anything{}, bus.WithKey("k"))
		ran <- err
	}()
	<-deciding
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		_, err := w.tills.Handle(ctx, "any", payIn{Cents: 1}.Decide)
		return bus.Reply{}, err
	}
	_, err := w.Send(t.Context(), anything{}, bus.WithKey("k"))
	close(goOn)
	wantError(t, err, eventstore.ErrInProgress)
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
}

// The key of a command covers what its own handler does, not what the commands do that it sends.
func TestTheKeyStaysWithItsCommand(t *testing.T) {
	w, other := newWorld(t, bus.Config{}, idempotent), newWorld(t, bus.Config{}, bare)
	w.handle = func(ctx context.Context, _ anything) (bus.Reply, error) {
		for range 2 {
			if reply, err := other.Send(ctx, payIn{"1", 1}); err != nil || reply.Repeated {
				t.Errorf("got %+v, %v", reply, err)
			}
		}
		_, err := w.tills.Handle(ctx, "any", payIn{Cents: 1}.Decide)
		return bus.Reply{}, err
	}
	if _, err := w.Send(t.Context(), anything{}); err != nil {
		t.Fatal(err)
	}
	if n := len(events(t, other.store, "1")); n != 2 {
		t.Fatalf("%d events, want 2", n)
	}
}
