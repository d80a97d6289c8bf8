package commands

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/internal/flow"
)

// adds is till.add as another program has it, which finds none of them valid.
type adds struct {
	Till string
	N    int64
}

var errStrict = errors.New("not with us")

func (adds) Validate() error { return errStrict }

// others are programs that cannot carry out what the usual bus of these tests can.
func (w *sagaWorld) others() map[string]*bus.Bus {
	quiet := bus.Config{Logger: slog.New(slog.DiscardHandler)}
	strict := bus.New(quiet, bus.Validate(), bus.Idempotent(w.store))
	bus.Handle(strict, bus.TypeOf[adds](addType.Name()), func(context.Context, adds) (bus.Reply, error) {
		w.t.Error("it was carried out although it is not valid")
		return bus.Reply{}, nil
	})
	forbidding := bus.New(quiet, bus.Authorize(func(context.Context, *bus.Command) error { return errStrict }), bus.Idempotent(w.store))
	bus.HandleAggregate(forbidding, addType, w.tills, func(c add) string { return c.Till }, add.Decide)
	return map[string]*bus.Bus{CodeUnknownType: bus.New(quiet, bus.Idempotent(w.store)), CodeInvalid: strict, CodeForbidden: forbidding}
}

func asSent(c flow.Command) bus.Command {
	return bus.Command{ID: c.ID, Type: c.Type, Data: c.Data, ContentType: c.ContentType, Target: c.Target, Scope: sagaScope(checkout)}
}

// A dispatcher has carried commands out and died before it could tell. The one that takes over is a program that cannot carry
// them out: it tells what they came to. What had not been carried out never is.
func TestTakenOverByAProgramThatCannotCarryItOut(t *testing.T) {
	t.Parallel()
	for _, code := range []string{CodeUnknownType, CodeInvalid, CodeForbidden} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newSagaWorld(t)
			other := w.others()[code]
			done, refused, never := w.do(add{"done", 1}), w.do(add{"refused", -1}), w.do(add{"never", 1})
			if _, err := w.bus.Dispatch(t.Context(), asSent(done)); err != nil {
				t.Fatal(err)
			}
			if _, err := w.bus.Dispatch(t.Context(), asSent(refused)); !errors.Is(err, errNegative) {
				t.Fatal(err)
			}
			queued, err := w.bus.Encode(add{"queued", 1}, bus.WithKey("k"))
			if err != nil {
				t.Fatal(err)
			}
			id, err := w.queue.Enqueue(t.Context(), queued)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.bus.Dispatch(t.Context(), queued); err != nil {
				t.Fatal(err)
			}
			w.sends(done, refused, never)
			mine := w.bus
			w.bus = other
			w.run(Config{})
			w.reply(done, flow.ReplyDone)
			if r := w.reply(refused, flow.ReplyRefused); r.Code != "negative" || r.Reason != errNegative.Error() {
				t.Errorf("the refusal was told as %+v", r)
			}
			end := flow.ReplyFailed
			if code == CodeForbidden {
				end = flow.ReplyRefused
			}
			if r := w.reply(never, end); r.Code != code {
				t.Errorf("it was told as %+v", r)
			}
			if o := w.ends(id, bus.OperationDone); o.Stream != tillType.Stream("queued") || o.Version != 1 || len(o.Result) > 0 {
				t.Errorf("the operation is %+v", o)
			}
			if _, err := mine.Dispatch(t.Context(), asSent(never)); !errors.Is(err, aggregate.ErrExpired) {
				t.Errorf("after it was told to have failed: %v", err)
			}
			w.wantNumbers("done", 1)
			w.wantNumbers("never", 0)
			w.wantNumbers("queued", 1)
		})
	}
}

// A program stands still in the midst of a command when one without its handler takes over: its commit is refused.
func TestTakenOverInItsMidst(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	w.puts(func(_ context.Context, place string, _ put) {
		if place == atDeciding {
			close(began)
			<-goOn
		}
	})
	c := w.do(put{"a", 1})
	go func(b *bus.Bus) {
		_, err := b.Dispatch(context.Background(), asSent(c))
		ended <- err
	}(w.bus)
	<-began
	w.bus = w.others()[CodeUnknownType]
	w.sends(c)
	w.run(Config{})
	w.reply(c, flow.ReplyFailed)
	close(goOn)
	if err := <-ended; !errors.Is(err, aggregate.ErrExpired) {
		t.Errorf("it ended with %v", err)
	}
	w.wantNumbers("a", 0)
}

// What is undone may be of a type that this program does not know: it is ended all the same, and what it came to is known.
func TestAnUndoOfAnUnknownType(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	mine := w.bus
	done, never := w.do(add{"done", 1}), w.do(add{"never", 1})
	w.keep(done)
	w.keep(never)
	if _, err := mine.Dispatch(t.Context(), asSent(done)); err != nil {
		t.Fatal(err)
	}
	w.bus = w.others()[CodeUnknownType]
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) { return w.handle(ctx, c) })
	w.run(Config{})
	undoDone, undoNever := w.undo(done, "undo done"), w.undo(never, "undo never")
	w.sends(undoDone, undoNever)
	w.reply(undoDone, flow.ReplyDone)
	w.reply(undoNever, flow.ReplyDone)
	w.wantTold(done, 1, undone{done: true, known: true})
	w.wantTold(never, 1, undone{}) // its type may have no key
	if _, err := mine.Dispatch(t.Context(), asSent(never)); !errors.Is(err, aggregate.ErrExpired) {
		t.Errorf("after it was undone: %v", err)
	}
	w.wantNumbers("never", 0)
}

// As long as it is not known whether a command took effect, because the store does not say, its undo does not run.
func TestAnUnknownTypeThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	once := &unwilling{OnceAppender: w.store, err: errors.New("the disk is full")}
	w.bus = bus.New(bus.Config{}, bus.Idempotent(once))
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) { return w.handle(ctx, c) })
	w.run(Config{Attempts: 2})
	do := w.do(add{"a", 1})
	w.keep(do)
	undo := w.undo(do, "undo")
	w.sends(undo)
	if r := w.reply(undo, flow.ReplyFailed); !strings.Contains(r.Reason, "the disk is full") {
		t.Errorf("it was told as %+v", r)
	}
	w.wantTold(do, 0, undone{})
}
