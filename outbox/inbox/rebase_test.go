package inbox

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/eventstore"
)

// restoredAt is a publisher whose store was restored to where it stood after the first n messages.
func restoredAt(first []*sent, n int) *publisher {
	p := newPublisher(8)
	p.position = first[n-1].position
	for _, m := range first[:n] {
		p.tails[m.partition] = m.position
	}
	return p
}

// What is set aside of a history that is no more must not take the places of messages of the new one.
func TestAnotherEpochWhileKeysAreSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	first := w.pub.several(40, func(i int) int { return i % 8 })
	restored := restoredAt(first, 10)
	second := restored.several(40, func(i int) int { return i % 8 })
	for _, m := range second {
		m.data = "new " + m.data
	}
	// One key waits from before the restored place on, one from behind it on, and one for what its relay has set aside.
	bad := map[int64]bool{first[3].position: true, first[12].position: true}
	var mended, again atomic.Bool
	handler := func(ctx context.Context, tx pgx.Tx, m Message) error {
		at := m.Position.Ordinal()
		if !mended.Load() && (bad[at] || again.Load() && at == second[2].position) {
			return errors.New("no such article")
		}
		return write(ctx, tx, m)
	}
	cfg.Classify = func(error) eventstore.FailureKind { return eventstore.Permanent }
	in := w.inbox(cfg, handler)
	stop := w.start(in)
	for _, m := range first {
		if m == first[13] {
			w.broker.send(m.skip())
			continue
		}
		w.broker.send(m.event())
	}
	w.drained()
	w.eventually("three keys wait", func() bool { return ask[int](w, "SELECT count(*)::int FROM daybook.parked") == 3 })
	stop()
	w.exec("DELETE FROM applied WHERE position > $1", first[9].position)
	err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, Base{
		Partition: AllPartitions, Position: eventstore.PositionAt(first[9].position), Epoch: restored.epoch,
	}, By{"ann", "restored to yesterday"})
	if err != nil {
		t.Fatal(err)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'discarded' AND closed_by = 'ann' AND position = $1", first[12].position); n != 1 {
		t.Errorf("%d letters of the history before are discarded, want 1", n)
	}
	again.Store(true)
	w.start(w.inbox(cfg, handler))
	w.broker.send(events(second)...)
	w.drained()
	w.eventually("two keys wait", func() bool {
		return ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'parked'") == 2
	})
	if data := ask[string](w, "SELECT convert_from(data, 'UTF8') FROM daybook.letters WHERE position = $1", second[2].position); data != second[2].data {
		t.Errorf("the letter has %q, want %q", data, second[2].data)
	}
	mended.Store(true)
	w.exec("UPDATE daybook.letters SET state = 'retrying' WHERE state = 'parked'")
	w.exec("UPDATE daybook.parked SET state = 'retrying', due_at = clock_timestamp() WHERE state = 'parked'")
	w.exec("UPDATE daybook.segments SET parked_rev = parked_rev + 1")
	w.exact(slices.Concat(first[:10], second))
}

// The versions of a history that is no more say nothing about the new one.
func TestLatestInAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Mode = Latest
	first := w.pub.several(40, func(i int) int { return i % 8 })
	restored := restoredAt(first, 10)
	second := restored.several(8, func(i int) int { return i % 8 })
	stop := w.start(w.inbox(cfg, write))
	w.broker.send(events(first)...)
	w.applied(40)
	stop()
	w.exec("DELETE FROM applied")
	err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, Base{
		Partition: AllPartitions, Position: eventstore.PositionAt(first[9].position), Epoch: restored.epoch,
	}, By{"ann", "restored to yesterday"})
	if err != nil {
		t.Fatal(err)
	}
	w.start(w.inbox(cfg, write))
	w.broker.send(events(second)...)
	w.applied(8)
}

// What is set aside below the place where an inbox goes on counts as applied like all the rest, in the partitions that move.
func TestRebaseWhileKeysAreSetAside(t *testing.T) {
	t.Parallel()
	for _, partition := range []int{AllPartitions, 3} {
		w := newWorld(t)
		cfg := w.config()
		cfg.Classify = func(error) eventstore.FailureKind { return eventstore.Permanent }
		first := w.pub.several(40, func(i int) int { return i % 8 })
		bad := map[int64]bool{first[3].position: true, first[4].position: true}
		stop := w.start(w.inbox(cfg, func(ctx context.Context, tx pgx.Tx, m Message) error {
			if bad[m.Position.Ordinal()] {
				return errors.New("no such article")
			}
			return write(ctx, tx, m)
		}))
		for _, m := range first {
			if m == first[11] { // of the key of first[3]
				w.broker.send(m.skip())
				continue
			}
			w.broker.send(m.event())
		}
		w.drained()
		w.eventually("two keys wait", func() bool { return ask[int](w, "SELECT count(*)::int FROM daybook.parked") == 2 })
		stop()
		to := Base{Partition: partition, Position: eventstore.PositionAt(w.pub.position)}
		if err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, to, By{"ann", "filled from a file"}); err != nil {
			t.Fatal(err)
		}
		moved := 2
		if partition != AllPartitions {
			moved = 1
		}
		if n := ask[int](w, "SELECT count(*)::int FROM daybook.letters WHERE state = 'discarded' AND closed_by = 'ann' AND reason = 'filled from a file'"); n != moved {
			t.Errorf("%d letters are discarded, want %d", n, moved)
		}
		if n := ask[int](w, "SELECT count(*)::int FROM daybook.parked"); n != 2-moved {
			t.Errorf("%d keys are set aside, want %d", n, 2-moved)
		}
		if n := ask[int](w, "SELECT count(*)::int FROM daybook.held WHERE partition = 3"); n != 0 {
			t.Errorf("%d messages are held of a partition that was moved", n)
		}
		// The keys go on with what is new, and what their relay had set aside, and redrives now, is old.
		before := ask[int](w, "SELECT count(*)::int FROM applied")
		w.start(w.inbox(cfg, write))
		w.broker.send(first[11].redriven())
		next := w.pub.next(3)
		w.broker.send(next.event())
		w.drained()
		w.eventually("what is new is applied", func() bool {
			return ask[int](w, "SELECT count(*)::int FROM applied WHERE position = $1", next.position) == 1
		})
		if n := ask[int](w, "SELECT count(*)::int FROM applied"); n != before+1 {
			t.Errorf("%d more are applied, want the new one", n-before)
		}
	}
}
