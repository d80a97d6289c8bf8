package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/internal/parking"
)

func TestDiscardLetsTheSequenceGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	a, b := w.append("a", "x"), w.append("b", "x")
	a2 := w.append("a", "y")
	first, second := k.fail(a, "odd"), k.fail(b, "odd")
	k.pass(a2)
	rev, floor := k.rev, k.floor

	if _, err := w.letters.Discard(t.Context(), One(first), Options{Actor: "ann"}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("without a reason: %v", err)
	}
	d := must[Discards](t)(w.letters.Discard(t.Context(), One(first), ann))
	if len(d.Letters) != 1 || d.Letters[0] != first || d.Left != 0 {
		t.Errorf("discarded %+v", d)
	}
	got := must[Detail](t)(w.letters.Show(t.Context(), first))
	if got.State != Discarded || got.ClosedBy != ann.Actor || got.Reason != ann.Reason || got.ClosedAt.IsZero() ||
		got.Waiting == nil || got.Waiting.State != "draining" || got.Waiting.First.Ordinal() != a.Position.Ordinal()+1 || got.Waiting.Queued != 1 ||
		len(got.Actions) != 1 || got.Actions[0].What != "discard" || got.Actions[0].Actor != ann.Actor || got.Actions[0].Reason != ann.Reason {
		t.Errorf("the letter: %+v, waiting %+v", got, got.Waiting)
	}
	// The owner cannot commit before it knows; then it goes on with what is queued.
	if !k.fenced() {
		t.Error("the owner commits with an old set")
	}
	k.take()
	if k.rev != rev+1 || k.floor != floor {
		t.Errorf("revision %d, floor %d; want %d and %d", k.rev, k.floor, rev+1, floor)
	}
	if q, ok := k.set.Get(parking.Key{Sequence: "order-a"}); !ok || q.State != parking.Draining {
		t.Errorf("the owner's set has %+v", q)
	}
	k.drain("order-a", a2)

	// Nothing is known behind the other: it is released at once.
	must[Discards](t)(w.letters.Discard(t.Context(), One(second), ann))
	if got := must[Detail](t)(w.letters.Show(t.Context(), second)); got.Waiting != nil {
		t.Errorf("waiting: %+v", got.Waiting)
	}
	_, err := w.letters.Discard(t.Context(), One(second), ann)
	wantRefused(t, err, "discard "+second.String(), "it is discarded")
	if _, err := w.letters.Discard(t.Context(), One(uuid.New()), ann); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown letter: %v", err)
	}
}

// R-DL12: of many people and the owner who act on one letter at once, one has its way, and the others are told.
func TestManyActOnOneLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	for round := range 10 {
		k.take()
		e := w.append(fmt.Sprint(round), "x")
		id := k.fail(e, "odd")
		l := must[parking.Letter](t)(parking.OpenLetter(t.Context(), w.pool, k.owner, parking.Key{Sequence: e.PartitionKey}))
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		act := func(f func(context.Context) error) {
			wg.Go(func() {
				err := f(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
				}
			})
		}
		for range 4 {
			act(func(ctx context.Context) error {
				_, err := w.letters.Discard(ctx, One(id), ann)
				if err != nil && !errors.Is(err, ErrRefused) {
					t.Error(err)
				}
				return err
			})
		}
		act(func(ctx context.Context) error { // the owner's next attempt succeeds
			c := k.set.Change()
			c.Applied(l, w.base)
			c.Release(l.Key)
			return k.commit(ctx, k.floor, c)
		})
		wg.Wait()
		if done != 1 {
			t.Fatalf("round %d: %d had their way", round, done)
		}
		d := must[Detail](t)(w.letters.Show(t.Context(), id))
		if discards := len(d.Actions); d.Waiting != nil || (d.State == Discarded) != (discards == 1) || d.State != Discarded && d.State != Applied {
			t.Errorf("round %d: %s with %d discards, %+v", round, d.State, discards, d.Waiting)
		}
	}
}

// A change that was decided by what a letter was does not reach what it has become.
func TestChangesAreGuardedByWhatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	e := w.append("a", "x")
	id := k.fail(e, "odd")
	for _, change := range []string{`attempts = attempts + 1`, `state = 'retrying'`} {
		tx := must[pgx.Tx](t)(w.pool.Begin(t.Context()))
		defer func() { _ = tx.Rollback(context.Background()) }()
		h := must[*held](t)(w.letters.lock(t.Context(), tx, id, func(*held) error {
			w.exec(`UPDATE daybook.letters SET `+change+` WHERE letter = $1`, id) // after it was read
			return nil
		}))
		tag, err := tx.Exec(t.Context(), w.letters.sql(discardSQL), id, string(h.state), h.attempts, "a", "b")
		if err != nil || tag.RowsAffected() != 0 {
			t.Errorf("%s: %v, %v", change, tag, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An owner that holds rows of letters and waits for its segment, which an operator has: nobody is killed as a deadlock, and
// the operator comes through.
func TestOperatorsStepBackForOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	id := k.fail(w.append("a", "x"), "odd")
	tx := must[pgx.Tx](t)(w.pool.Begin(t.Context()))
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM daybook.parked FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	discarded := make(chan error, 1)
	go func() {
		_, err := w.letters.Discard(t.Context(), One(id), ann)
		discarded <- err
	}()
	w.until("the operator has the segment, and waits for the sequence", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%parked%')`)
	if _, err := tx.Exec(t.Context(), `SELECT FROM daybook.segments FOR UPDATE`); err != nil {
		t.Errorf("the owner was broken off: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-discarded; err != nil {
		t.Error(err)
	}
}

func TestDiscardOfAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	var want []uuid.UUID
	for i := range 5 {
		want = append(want, k.fail(w.append(fmt.Sprint(9-i), "x"), "odd"))
	}
	left := k.fail(w.append("left", "x"), "another cause altogether")
	g := must[[]Group](t)(w.letters.Groups(t.Context(), Filter{}))[0]
	o := ann
	o.Expect = 4
	_, err := w.letters.Discard(t.Context(), OfGroup(g.Fingerprint), o)
	wantRefused(t, err, "5 letters")
	d := must[Discards](t)(w.letters.Discard(t.Context(), OfGroup(g.Fingerprint), ann))
	if fmt.Sprint(d.Letters) != fmt.Sprint(want) {
		t.Errorf("discarded %v, want %v", d.Letters, want)
	}
	if n := get[int](w, `SELECT count(*)::int FROM daybook.parked`); n != 1 {
		t.Errorf("%d sequences are set aside, want that of %s", n, left)
	}
}

// A letter outlives the consumer that it was of.
func TestALetterOfAConsumerThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	k := w.worker("orders")
	id := k.fail(w.append("a", "x"), "odd")
	w.exec(`DELETE FROM daybook.consumers`)
	must[Discards](t)(w.letters.Discard(t.Context(), One(id), ann))
	wantRefused(t, w.letters.Undo(t.Context(), id, ann), "no longer installed")
}
