package commands

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-go/daybook/aggregate"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/flow"
)

// wantTold wants the handlers of the undos of a command to have been told the same thing, n times.
func (w *sagaWorld) wantTold(do flow.Command, n int, want undone) {
	w.t.Helper()
	told := w.toldOf(do.ID)
	for _, u := range told {
		if u != want {
			w.t.Errorf("the undo of %s was told %+v, want %+v", do.Type, u, want)
		}
	}
	if len(told) != n {
		w.t.Errorf("the undo of %s ran %d times, want %d", do.Type, len(told), n)
	}
}

// An undo knows what had become of the command that it undoes, and makes sure that nothing more does: whether its row says
// so or not.
func TestAnUndoEndsWhatItUndoes(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	w.run(Config{})
	for name, test := range map[string]struct {
		do     any
		before func(flow.Command)
		want   undone
	}{
		"never delivered":                    {add{"never", 1}, nil, undone{known: true}},
		"carried out":                        {add{"done", 1}, func(c flow.Command) { w.delivers(c); w.reply(c, flow.ReplyDone) }, undone{done: true, known: true}},
		"refused":                            {add{"refused", -1}, func(c flow.Command) { w.delivers(c); w.reply(c, flow.ReplyRefused) }, undone{known: true}},
		"carried out, and known to the saga": {add{"known", 1}, func(c flow.Command) { w.hears(c, flow.ReplyDone, "", "") }, undone{done: true, known: true}},
		"without a key":                      {anything{"without"}, nil, undone{}},
	} {
		do := w.do(test.do)
		w.keep(do)
		if test.before != nil {
			test.before(do)
		}
		undo := w.undo(do, "undo "+name)
		w.sends(undo)
		w.reply(undo, flow.ReplyDone)
		w.wantTold(do, 1, test.want)
	}
	// One whose row is gone, or whose type has no handler any more, or that belongs to nothing.
	gone, strange := w.do(add{"gone", 1}), w.do(add{"strange", 1})
	strange.Type = "till.strange"
	w.keep(strange)
	for _, do := range []flow.Command{gone, strange} {
		undo := w.undo(do, "undo "+do.Type)
		w.sends(undo)
		w.reply(undo, flow.ReplyDone)
		w.wantTold(do, 1, undone{})
	}
	if done, known := WasCarriedOut(t.Context()); done || known {
		t.Error("it is known where there is no undo")
	}
}

// The undo comes first, its command never takes effect: not when it is delivered at last, as often as it may be.
func TestAnUndoBeforeItsCommand(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	w.run(Config{})
	open, closed := w.do(add{"open", 1}), w.do(add{"closed", 1})
	w.keep(open) // the key alone keeps it from taking effect
	w.keep(closed)
	for _, do := range []flow.Command{open, closed} {
		undo := w.undo(do, "undo")
		w.sends(undo)
		w.reply(undo, flow.ReplyDone)
		w.wantTold(do, 1, undone{known: true})
	}
	w.closes(closed)
	for range 2 {
		w.delivers(open, closed)
		w.settles()
	}
	if r := w.reply(closed, flow.ReplyRefused); r.Code != CodeSagaOver {
		t.Errorf("it was told as %+v", r)
	}
	w.reply(open, flow.ReplyFailed)
	w.wantNumbers("open", 0)
	w.wantNumbers("closed", 0)
}

// A command and its undo in one batch, side by side: what the undo was told is what is in the store.
func TestAnUndoBesideItsCommand(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	const pairs = 24
	var dos, undos, closed []flow.Command
	for n := range pairs {
		do := w.do(add{fmt.Sprint("till ", n), 1})
		w.keep(do)
		undo := w.undo(do, fmt.Sprint("undo ", n))
		w.keep(undo)
		switch dos, undos = append(dos, do), append(undos, undo); n % 3 {
		case 0:
			w.delivers(do, undo)
		case 1:
			w.delivers(undo, do)
		default:
			w.closes(do)
			closed = append(closed, do)
			w.delivers(do, undo)
		}
	}
	w.run(Config{Workers: 4})
	took := 0
	for n, do := range dos {
		w.reply(undos[n], flow.ReplyDone)
		told := w.toldOf(do.ID)
		got := w.numbers(fmt.Sprint("till ", n))
		if len(told) != 1 || !told[0].known || told[0].done != (len(got) == 1) || len(got) > 1 {
			t.Errorf("the till of %d has %v, and its undo was told %+v", n, got, told)
		}
		took += len(got)
	}
	for _, do := range closed {
		if r := w.reply(do, flow.ReplyRefused); r.Code != CodeSagaOver {
			t.Errorf("it was told as %+v", r)
		}
	}
	t.Logf("%d of %d took effect before their undos", took, pairs)
}

// Another process is in the midst of a command, and stands still, while its undo is carried out here: its commit is refused.
// One that has committed is seen.
func TestAnUndoOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	began, goOn := make(chan struct{}, 2), make(chan struct{})
	var appended atomic.Bool
	w.puts(func(_ context.Context, place string, c put) {
		switch {
		case c.Till == "deciding" && place == atDeciding, c.Till == "appended" && place == atAppended && !appended.Swap(true):
			began <- struct{}{}
			<-goOn
		}
	})
	w.run(Config{})
	ended := make(chan error, 2)
	deciding, committed := w.do(put{"deciding", 1}), w.do(put{"appended", 1})
	for _, do := range []flow.Command{deciding, committed} {
		w.keep(do)
		go func() {
			_, err := w.bus.Dispatch(context.Background(), bus.Command{
				ID: do.ID, Type: do.Type, ContentType: do.ContentType, Data: do.Data, Target: do.Target, Scope: sagaScope(checkout),
			})
			ended <- err
		}()
		<-began
	}
	for _, do := range []flow.Command{deciding, committed} {
		w.closes(do)
		undo := w.undo(do, "undo")
		w.sends(undo)
		w.reply(undo, flow.ReplyDone)
	}
	w.wantTold(deciding, 1, undone{known: true})
	w.wantTold(committed, 1, undone{done: true, known: true})
	close(goOn)
	var refused int
	for range 2 {
		if err := <-ended; errors.Is(err, aggregate.ErrExpired) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 1 {
		t.Errorf("%d commits were refused", refused)
	}
	w.wantNumbers("deciding", 0)
	w.wantNumbers("appended", 1)
}

// Between the end of what it undoes and its own an undo may be given up by one dispatcher and begun by another: it is told
// the same again.
func TestAnUndoThatBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	never, done := w.do(add{"never", 1}), w.do(add{"done", 1})
	w.keep(never)
	w.sends(done)
	stop := w.start(w.dispatcher(nil, Config{Workers: 2}))
	w.reply(done, flow.ReplyDone)
	both := make(chan struct{}, 2)
	w.handles(func(ctx context.Context, _ anything) (bus.Reply, error) {
		w.notes(ctx)
		both <- struct{}{}
		<-ctx.Done()
		return bus.Reply{}, ctx.Err()
	})
	undos := []flow.Command{w.undo(never, "never"), w.undo(done, "done")}
	w.sends(undos...)
	<-both
	<-both
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int32
	w.handles(func(ctx context.Context, _ anything) (bus.Reply, error) {
		w.notes(ctx)
		if failed.Add(1) <= 2 {
			return bus.Reply{}, errors.New("not yet")
		}
		return bus.Reply{}, nil
	})
	w.run(Config{})
	for _, undo := range undos {
		w.reply(undo, flow.ReplyDone)
	}
	told := append(w.toldOf(never.ID), w.toldOf(done.ID)...)
	if len(told) != 6 {
		t.Errorf("the undos were told %v", told)
	}
	w.wantTold(never, len(w.toldOf(never.ID)), undone{known: true})
	w.wantTold(done, len(w.toldOf(done.ID)), undone{done: true, known: true})
	w.wantNumbers("never", 0)
	w.wantNumbers("done", 1)
}

// One that cannot be ended for good, because the store does not take that, keeps its undo from running: it fails, and the
// saga sends another.
func TestAnUndoOfWhatCannotBeEnded(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	broken := errors.New("the disk is full")
	once := &unwilling{OnceAppender: w.store, err: broken}
	w.bus = bus.New(bus.Config{}, bus.Idempotent(once))
	bus.HandleAggregate(w.bus, addType, w.tills, func(c add) string { return c.Till }, add.Decide)
	bus.Handle(w.bus, anythingType, func(ctx context.Context, c anything) (bus.Reply, error) { return w.handle(ctx, c) })
	w.run(Config{Attempts: 2})
	do := w.do(add{"a", 1})
	w.keep(do)
	undo := w.undo(do, "undo")
	w.sends(undo)
	if r := w.reply(undo, flow.ReplyFailed); r.Code != CodeExhausted {
		t.Errorf("it was told as %+v", r)
	}
	w.wantTold(do, 0, undone{})
	once.willing.Store(true)
	another := w.undo(do, "undo")
	w.sends(another)
	w.reply(another, flow.ReplyDone)
	w.wantTold(do, 1, undone{known: true})
	w.delivers(do)
	w.settles()
	w.wantNumbers("a", 0)
}

// unwilling is a store that does not store how commands end.
type unwilling struct {
	eventstore.OnceAppender
	err     error
	willing atomic.Bool
}

func (u *unwilling) AppendOnce(ctx context.Context, claim eventstore.Claim, outcome eventstore.Outcome, writes ...eventstore.Write) (eventstore.Outcome, error) {
	if !u.willing.Load() {
		return eventstore.Outcome{}, u.err
	}
	return u.OnceAppender.AppendOnce(ctx, claim, outcome, writes...)
}

// A target that hangs: the undo is not begun, fails, and may be sent anew.
func TestAnUndoBehindWhatHangs(t *testing.T) {
	t.Parallel()
	w := newSagaWorld(t)
	v, err := (&batch{Dispatcher: w.dispatcher(nil, Config{})}).carryOutForSaga(t.Context(), &entry{
		command: bus.Command{ID: w.do(anything{"x"}).ID, Type: anythingType.Name(), Payload: anything{"x"}, Undoes: w.do(add{"a", 1}).ID},
		ofSaga:  true, standing: &standing{state: "sent"},
	}, allowance{each: -time.Second})
	if err != nil || v.code != CodeTargetHung || len(w.undone) != 0 {
		t.Errorf("it ended as %+v, %v; %v", v, err, w.undone)
	}
}
