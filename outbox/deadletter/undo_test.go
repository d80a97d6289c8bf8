package deadletter

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

func (w *world) discard(id uuid.UUID) {
	w.t.Helper()
	must[Discards](w.t)(w.letters.Discard(w.t.Context(), One(id), ann))
}

func (w *world) undo(id uuid.UUID) Detail {
	w.t.Helper()
	if err := w.letters.Undo(w.t.Context(), id, ann); err != nil {
		w.t.Fatal(err)
	}
	return must[Detail](w.t)(w.letters.Show(w.t.Context(), id))
}

func TestUndoPutsALetterBackInFrontOfWhatIsQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a := w.append("a", "x")
	a2 := w.append("a", "y")
	id := k.fail(a, "odd")
	k.pass(a2)
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "undo "+id.String(), "it is parked, not discarded")
	w.discard(id)
	k.take()
	d := w.undo(id)
	if d.State != Parked || d.Round != 0 || d.Attempts != 1 || d.Reason != "" || d.ClosedBy != "" || !d.ClosedAt.IsZero() || len(d.Actions) != 2 || d.Actions[1].What != "undo" {
		t.Errorf("the letter: %+v", d)
	}
	if q := d.Waiting; q == nil || q.State != "parked" || q.First != a.Position || q.Last != a2.Position || q.Queued != 1 {
		t.Errorf("the sequence: %+v", q)
	}
	if !k.fenced() {
		t.Error("the owner commits with an old set")
	}
	k.take()
	if l, err := parking.OpenLetter(t.Context(), w.pool, k.owner, parking.Key{Sequence: "order-a"}); err != nil || l.ID != id {
		t.Errorf("the open letter is %s, %v", l.ID, err)
	}
	if err := w.letters.Undo(t.Context(), uuid.New(), ann); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown letter: %v", err)
	}
}

func TestUndoAfterTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	id := k.fail(w.append("a", "x"), "odd")
	w.discard(id)
	k.take()
	k.through(w.append("b", "x")) // of another sequence
	later := w.append("a", "y")   // stored, but not reached by the consumer
	if d := w.undo(id); d.State != Parked || d.Waiting == nil || d.Waiting.Queued != 0 {
		t.Errorf("nothing later was reached: %+v", d)
	}
	// An owner with nothing set aside asks for nothing: its lease is what tells it.
	if n := get[int](w, `SELECT count(*)::int FROM daybook.segments WHERE epoch > $1`, k.epoch); n != 1 {
		t.Error("the owner keeps its lease, and does not notice")
	}
	k.take()
	k.pass(later)
	w.discard(id)
	k.take()
	k.drain("order-a", later)
	err := w.letters.Undo(t.Context(), id, ann)
	wantRefused(t, err, "position "+later.Position.String(), "has taken effect since")
	if d := must[Detail](t)(w.letters.Show(t.Context(), id)); d.State != Discarded || d.Waiting != nil {
		t.Errorf("a refusal changed something: %+v", d)
	}
}

// What is later was stored under a partition key that several streams share.
func TestUndoLooksAtTheWholeSequence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a := w.append("a", "x")
	id := k.fail(a, "odd")
	other := w.appendKeyed("line", "1", "order-a")
	w.discard(id)
	k.take()
	k.through(other)
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "position "+other.Position.String())
}

func TestUndoWhileTheSequenceDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a, a2, a3 := w.append("a", "1"), w.append("a", "2"), w.append("a", "3")
	id := k.fail(a, "odd")
	k.pass(a2)
	k.pass(a3)
	w.discard(id)
	k.take()
	c := k.set.Change()
	c.Advance(parking.Key{Sequence: "order-a"}, a2.Position, 1)
	k.mustCommit(k.floor, c)
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "position "+a2.Position.String(), "has taken effect")
}

// A1 and A2 are discarded, A3 has failed meanwhile: they come back the last one first, and A3 waits behind.
func TestUndoOfSeveral(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a1, a2, a3 := w.append("a", "1"), w.append("a", "2"), w.append("a", "3")
	first := k.fail(a1, "odd")
	k.pass(a2)
	k.pass(a3)
	w.discard(first)
	k.take()
	second := k.fail(a2, "odd too")
	w.discard(second)
	k.take()
	third := k.fail(a3, "odd three")
	wantRefused(t, w.letters.Undo(t.Context(), first, ann), "position "+a2.Position.String(), "undo letter "+second.String()+" first")
	if d := w.undo(second); d.Waiting.First != a2.Position || d.Waiting.Last != a3.Position {
		t.Errorf("the second: %+v", d.Waiting)
	}
	if d := must[Detail](t)(w.letters.Show(t.Context(), third)); d.State != Behind || d.Reason != "letter "+second.String()+" was put back before it" {
		t.Errorf("the third: %+v", d)
	}
	_, err := w.letters.Redrive(t.Context(), One(third), ann)
	wantRefused(t, err, "it is behind")
	if d := w.undo(first); d.Waiting.First != a1.Position || d.State != Parked {
		t.Errorf("the first: %+v", d)
	}
	if n := get[int](w, `SELECT count(*)::int FROM daybook.letters WHERE state IN ('parked', 'retrying')`); n != 1 {
		t.Errorf("%d letters of one sequence are open", n)
	}
	// All is tried again in order, and what fails again opens its letter.
	k.take()
	key := parking.Key{Sequence: "order-a"}
	l := must[parking.Letter](t)(parking.OpenLetter(t.Context(), w.pool, k.owner, key))
	c := k.set.Change()
	c.Applied(l, w.base)
	k.mustCommit(k.floor, c)
	if again := k.fail(a2, "odd too"); again != second {
		t.Errorf("a second letter of one message: %s, %s", again, second)
	}
	if d := must[Detail](t)(w.letters.Show(t.Context(), second)); d.State != Parked || d.Attempts != 2 || !d.ClosedAt.IsZero() {
		t.Errorf("the second again: %+v", d)
	}
}

// Where nobody knows what was later, a partition that has gone on is enough for a refusal.
func TestUndoOfMessagesFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	w.exec(`UPDATE daybook.consumers SET kind = 'inbox'`)
	id := k.fail(w.append("a", "x"), "odd")
	w.discard(id)
	if d := w.undo(id); d.State != Parked {
		t.Errorf("nothing has gone on: %+v", d)
	}
	w.discard(id)
	k.take()
	k.through(w.append("b", "x"))
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "nobody knows")
}

// A projection that follows a topic which is not the whole log: what was later is seen in the outbox.
func TestUndoOfATopicsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("sales")
	w.exec(`UPDATE daybook.consumers SET source = 'topic sales'`)
	message := func(key string) (position int64) {
		t.Helper()
		return get[int64](w, `INSERT INTO daybook.outbox (first_position, last_position, id, partition, topic, key, type, content_type, data)
			SELECT p, p, gen_random_uuid(), daybook.partition_of($1, 64), 'sales', $1, 'x', 'text/plain', 'x' FROM nextval('daybook.log_position') p
			RETURNING first_position`, key)
	}
	at := message("k")
	f := k.failure(w.append("ignored", "x"), "too large")
	f.Message.PartitionKey, f.Message.Partition = "k", get[int](w, `SELECT daybook.partition_of('k', 64)`)
	f.Message.Position = eventstore.PositionAt(at)
	c := k.set.Change()
	c.Park(f)
	k.mustCommit(at, c)
	id := parking.LetterID(k.owner, "", f.Message.Position)
	w.discard(id)
	k.take()
	k.mustCommit(message("other"), k.set.Change())
	if d := w.undo(id); d.Waiting == nil || d.State != Parked {
		t.Errorf("put back: %+v", d)
	}
	w.discard(id)
	k.take()
	next := message("k")
	k.mustCommit(next, k.set.Change())
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "has taken effect since")
	w.exec(`UPDATE daybook.store SET outbox_cleaned = $1`, next)
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "cleaned beyond it")

	w.exec(`UPDATE daybook.consumers SET kind = 'relay', source = ''`)
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "never comes", "enqueue it anew")
}
