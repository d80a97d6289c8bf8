package commands

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/aggregate/admission"
	"github.com/daybook-go/daybook/aggregate/bus"
	"github.com/daybook-go/daybook/eventstore"
)

// What is enqueued twice, by id or by key, is stored once; another request under the same name is refused.
func TestEnqueueIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := uuid.New()
	for name, opts := range map[string][]bus.SendOption{
		"by id":           {bus.WithID(own)},
		"by key":          {bus.WithKey("k")},
		"by key in scope": {bus.WithKey("k"), bus.InScope("s")},
	} {
		first := w.send(add{"a", 1}, opts...)
		again := w.send(add{"a", 1}, opts...)
		if first != again {
			t.Errorf("%s: the ids are %s and %s", name, first, again)
		}
		var reused *eventstore.ReusedKeyError
		for _, other := range []any{add{"a", 2}, put{"a", 1}} {
			if _, err := w.sent(other, opts...); !errors.As(err, &reused) {
				t.Errorf("%s: another request got %v", name, err)
			}
		}
	}
	if got := w.send(add{"a", 1}, bus.WithKey("k"), bus.InScope("s")); got != OperationID("s", "k") {
		t.Errorf("the operation of a key has id %s, want %s", got, OperationID("s", "k"))
	}
	if n := ask[int](w, "SELECT count(*) FROM daybook.outbox"); n != 3 {
		t.Errorf("%d commands are stored, want 3", n)
	}
	if n := ask[int](w, "SELECT count(*) FROM daybook.operations WHERE state = 'accepted'"); n != 3 {
		t.Errorf("%d operations are stored, want 3", n)
	}
	w.run(Config{})
	w.ends(OperationID("", "k"), bus.OperationDone)
	if again := w.send(add{"a", 1}, bus.WithKey("k")); again != OperationID("", "k") {
		t.Errorf("after its end its id is %s", again)
	}
}

// Many callers with one key at once: one command, one effect.
func TestEnqueueStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(Config{})
	c, err := w.bus.Encode(add{"a", 1}, bus.WithKey("storm"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if id, err := w.queue.Enqueue(context.Background(), c); err != nil || id != OperationID("", "storm") {
				t.Errorf("got %s, %v", id, err)
			}
		})
	}
	all.Wait()
	w.ends(OperationID("", "storm"), bus.OperationDone)
	w.wantNumbers("a", 1)
}

// What cannot be carried out later is refused, and nothing is stored.
func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*bus.Command){
		"no type":          func(c *bus.Command) { c.Type = "" },
		"no data":          func(c *bus.Command) { c.Data, c.Payload = nil, add{} },
		"long key":         func(c *bus.Command) { c.Key = fmt.Sprintf("%300d", 1) },
		"long scope":       func(c *bus.Command) { c.Scope = fmt.Sprintf("%300d", 1) },
		"long target":      func(c *bus.Command) { c.Target = fmt.Sprintf("%600d", 1) },
		"bad reply topic":  func(c *bus.Command) { c.ReplyTo = "a\nb" },
		"replies commands": func(c *bus.Command) { c.ReplyTo = Topic },
		"own header":       func(c *bus.Command) { c.Metadata.Headers = map[string]string{headerReplyTo: "x"} },
		"late deadline":    func(c *bus.Command) { c.Deadline = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"unknown class":    func(c *bus.Command) { c.Class = admission.Class(77) },
	} {
		c, err := w.bus.Encode(add{"a", 1})
		if err != nil {
			t.Fatal(err)
		}
		change(&c)
		if _, err := w.queue.Enqueue(t.Context(), c); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: got %v, want one that is invalid", name, err)
		}
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := Enqueue(t.Context(), tx, c); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s in a transaction: got %v, want one that is invalid", name, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("%s: the transaction is broken: %v", name, err)
		}
	}
	if n := ask[int](w, "SELECT (SELECT count(*) FROM daybook.outbox) + (SELECT count(*) FROM daybook.operations)"); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
	if _, err := NewQueue(nil, QueueConfig{}); err == nil {
		t.Error("a queue without a pool was made")
	}
}

// An operation is found in its scope, and nowhere else.
func TestOperationsAreScoped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := eventstore.WithMetadata(t.Context(), eventstore.Metadata{Tenant: "acme", Actor: "ann"})
	c, err := w.bus.Prepare(ctx, add{"a", 1})
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.queue.Enqueue(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	o, err := w.queue.Operation(t.Context(), "acme/ann", id)
	if err != nil || o.State != bus.OperationAccepted || o.Type != addType.Name() || o.Revision != 1 || o.AcceptedAt.IsZero() || !o.FinishedAt.IsZero() {
		t.Errorf("it is %+v, %v", o, err)
	}
	for _, scope := range []string{"", "acme/bob", "acme"} {
		var none *bus.NoOperationError
		if _, err := w.queue.Operation(t.Context(), scope, id); !errors.As(err, &none) || none.ID != id {
			t.Errorf("in scope %q: %v", scope, err)
		}
		for _, err := range w.queue.Watch(t.Context(), scope, id) {
			if !errors.Is(err, bus.ErrNoOperation) {
				t.Errorf("watched in scope %q: %v", scope, err)
			}
		}
	}
	w.run(Config{})
	var last bus.Operation
	for o, err := range w.queue.Watch(t.Context(), "acme/ann", id) {
		if err != nil {
			t.Fatal(err)
		}
		last = o
	}
	if last.State != bus.OperationDone {
		t.Errorf("it ended %+v", last)
	}
	for e, err := range w.store.ReadStream(t.Context(), tillType.Stream("a"), eventstore.Range{}) {
		if err != nil || e.Metadata.Tenant != "acme" || e.Metadata.Actor != "ann" || e.Metadata.CausationID != id.String() {
			t.Errorf("its event says %+v, %v", e.Metadata, err)
		}
	}
}

// Whoever watches sees every state, the progress that the handler tells, and the end.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := make(chan struct{})
	w.handles(func(ctx context.Context, _ anything) (bus.Reply, error) {
		<-step
		for n := range 3 {
			Progress(ctx, float64(n+1)/4, fmt.Sprintf("step %d", n+1))
			<-step
		}
		return bus.Reply{}, nil
	})
	id := w.send(anything{"watched"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []string
	revision := int64(0)
	for o, err := range w.queue.Watch(ctx, "", id) {
		if err != nil {
			t.Fatal(err)
		}
		if o.Revision <= revision {
			t.Errorf("revision %d comes after %d", o.Revision, revision)
		}
		revision = o.Revision
		seen = append(seen, fmt.Sprintf("%s %v %s", o.State, o.Progress, o.Note))
		switch o.State {
		case bus.OperationAccepted:
			w.run(Config{})
		case bus.OperationRunning:
			if o.StartedAt.IsZero() {
				t.Error("it runs and has not begun")
			}
			step <- struct{}{}
		}
	}
	want := "[accepted 0  running 0  running 0.25 step 1 running 0.5 step 2 running 0.75 step 3 done 1 step 3]"
	if got := fmt.Sprint(seen); got != want {
		t.Errorf("seen was\n%s, want\n%s", got, want)
	}
	changes.mu.Lock()
	defer changes.mu.Unlock()
	if changes.waiting[id] != nil {
		t.Error("the board still knows who watched")
	}
}

// A watcher of another process, which nobody wakes, sees the end by polling; and one whose context ends, ends.
func TestWatchPolls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.send(add{"a", 1})
	other := w.spawn(t, "", "10s 10")
	w.ends(id, bus.OperationDone)
	other.Kill()
	other.Dies()
	waiting := w.send(add{"a", 2})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	states, last := 0, error(nil)
	for _, err := range w.queue.Watch(ctx, "", waiting) {
		if err == nil {
			states++
		}
		last = err
	}
	if states != 1 || !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("seen were %d states, then %v", states, last)
	}
}

// Others of the batch are told of while one is still under way.
func TestASlowCommandHidesNoEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	w.puts(func(_ context.Context, place string, c put) {
		if place == atDeciding && c.Till == "slow" {
			<-release
		}
	})
	slow := w.send(put{"slow", 1}, bus.ReplyTo("replies"))
	quick := w.send(put{"quick", 1}, bus.ReplyTo("replies"))
	refused := w.send(put{"refused", -1}, bus.ReplyTo("replies"))
	w.run(Config{})
	w.ends(quick, bus.OperationDone)
	w.ends(refused, bus.OperationRefused)
	if n := len(w.replies("replies")); n != 2 {
		t.Errorf("%d ends were told, want 2", n)
	}
	close(release)
	w.ends(slow, bus.OperationDone)
	if n := len(w.replies("replies")); n != 3 {
		t.Errorf("%d ends were told, want 3", n)
	}
}

// Progress outside of a dispatcher is nobody's business, and out of range no harm.
func TestProgressBounds(t *testing.T) {
	Progress(t.Context(), 1, "nobody listens")
	var p progress
	ctx := context.WithValue(t.Context(), progressKey{}, &p)
	Progress(ctx, 7, "a\x00b")
	if f, note, changed := p.take(); f != 1 || note != "a\uFFFDb" || !changed {
		t.Errorf("got %v, %q, %v", f, note, changed)
	}
	if _, _, changed := p.take(); changed {
		t.Error("it is told twice")
	}
}

// Whoever watches in the process of the dispatcher is woken, and only for what is watched.
func TestBoard(t *testing.T) {
	t.Parallel()
	b := board{waiting: map[uuid.UUID]*listener{}}
	one, other := uuid.New(), uuid.New()
	b.watch(one)
	b.watch(one)
	b.watch(other)
	changed, quiet := b.next(one), b.next(other)
	b.tell([]uuid.UUID{one, uuid.New()})
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	select {
	case <-quiet:
		t.Error("the watcher of another operation was woken")
	case <-b.next(one):
		t.Error("the next change is there before it comes")
	default:
	}
	b.leave(one)
	b.leave(one)
	b.leave(other)
	if len(b.waiting) != 0 {
		t.Errorf("the board still knows %d operations", len(b.waiting))
	}
}

// A key that was used for one address is another request for another.
func TestAKeyIsForOneAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type note struct{ N int64 }
	bus.HandleAddressed(w.bus, bus.TypeOf[note]("till.note"), w.tills, func(n note, _ till) ([]event, error) { return []event{added(n)}, nil })
	w.run(Config{})
	for range 2 {
		w.ends(w.send(note{1}, bus.To("a-b"), bus.WithKey("k")), bus.OperationDone)
	}
	if _, err := w.sent(note{1}, bus.To("b"), bus.WithKey("k")); !errors.Is(err, eventstore.ErrReusedKey) {
		t.Errorf("got %v", err)
	}
	w.wantNumbers("a-b", 1)
}
