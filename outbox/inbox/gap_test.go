package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/eventstore"
)

// failures is an observer that keeps what failed.
type failures struct {
	eventstore.NopObserver
	mu  sync.Mutex
	all []error
}

func (f *failures) ObserveFailure(o eventstore.FailureObservation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, o.Err)
}

func (f *failures) gaps() (gaps []*GapError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.all {
		var gap *GapError
		if errors.As(err, &gap) {
			gaps = append(gaps, gap)
		}
	}
	return gaps
}

// A message that the broker has lost: what is behind it is stored and acknowledged, ten times more than may wait in memory,
// the other partitions go on, and the alarm is raised. When it comes after all everything follows in order.
func TestALostMessageHoldsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker.lanes = 200
	cfg := w.config()
	cfg.HoldAtMost, cfg.GapAfter, cfg.HoldFor = 20, 100*time.Millisecond, time.Hour
	var seen failures
	var log strings.Builder
	cfg.Observer, cfg.Logger = &seen, slog.New(slog.NewTextHandler(&log, nil))
	lost := w.pub.next(1)
	behind := w.pub.several(200, func(i int) int { return 1 + 8*(i%5) })
	others := w.pub.several(100, func(i int) int { return 2 + i%4 })
	w.broker.send(events(behind)...)
	w.broker.send(events(others)...)
	in := w.inbox(cfg, write)
	stop := w.start(in)
	w.applied(len(others))
	w.drained()
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.held WHERE topic = 'gap'"); n != len(behind) {
		t.Errorf("%d messages are stored, want %d", n, len(behind))
	}
	w.eventually("the alarm is raised", func() bool { return len(seen.gaps()) == 1 })
	gap := seen.gaps()[0]
	if gap.Partition != 1 || !gap.Applied.IsZero() || gap.Missing.Ordinal() != lost.position {
		t.Errorf("the alarm is %v", gap)
	}
	if h := in.Health(context.Background()); h.Ready || h.State != "gap" || !strings.Contains(h.Reason, "partition 1") {
		t.Errorf("health %+v", h)
	}
	if gaps := in.Lag().Gaps; len(gaps) != 1 {
		t.Errorf("lag: gaps %v", gaps)
	}
	if n := ask[int](w, "SELECT count(*)::int FROM applied"); n != len(others) {
		t.Errorf("%d messages are applied, want %d", n, len(others))
	}
	stop()
	if n := strings.Count(log.String(), "inbox has a gap"); n != 1 {
		t.Errorf("%d lines about the gap", n)
	}

	in = w.inbox(cfg, write) // the next owner knows
	w.start(in)
	w.eventually("the next owner raises the alarm", func() bool { return in.Health(context.Background()).State == "gap" })
	w.broker.send(lost.event())
	w.exact(append(append([]*sent{lost}, behind...), others...))
	w.eventually("all is well", func() bool { return in.Health(context.Background()).Ready })
}

// What never comes is given up by somebody who says so.
func TestAGapIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.GapAfter = 50 * time.Millisecond
	in := w.inbox(cfg, write)
	w.start(in)
	first := w.pub.several(5, func(int) int { return 3 })
	lost := w.pub.several(2, func(int) int { return 3 })
	behind := w.pub.several(5, func(int) int { return 3 })
	w.broker.send(events(first)...)
	w.broker.send(events(behind)...)
	w.eventually("the gap is seen", func() bool { return in.Health(context.Background()).State == "gap" })
	ctx, ref := t.Context(), Ref{Name: "stock"}
	if _, _, err := AcceptGap(ctx, w.pool, ref, 3, By{Actor: "ann"}); err == nil {
		t.Error("a gap was accepted without a reason")
	}
	if _, _, err := AcceptGap(ctx, w.pool, ref, 4, By{"ann", "why not"}); !errors.Is(err, ErrNoGap) {
		t.Errorf("partition without a gap: %v", err)
	}
	if _, _, err := AcceptGap(ctx, w.pool, ref, 99, By{"ann", "why not"}); err == nil || errors.Is(err, ErrNoGap) {
		t.Errorf("no such partition: %v", err)
	}
	if _, _, err := AcceptGap(ctx, w.pool, Ref{Name: "other"}, 3, By{"ann", "why not"}); err == nil || errors.Is(err, ErrNoGap) {
		t.Errorf("no such inbox: %v", err)
	}
	from, upTo, err := AcceptGap(ctx, w.pool, ref, 3, By{"ann", "the topic was purged"})
	if err != nil || from.Ordinal() != first[4].position || upTo.Ordinal() != lost[1].position {
		t.Fatalf("accepted from %s up to %s: %v", from, upTo, err)
	}
	w.exact(append(first, behind...))
	w.eventually("all is well", func() bool { return in.Health(context.Background()).Ready })
	w.broker.send(events(lost)...)
	w.drained()
	w.exact(append(first, behind...))
	if n := ask[int](w, "SELECT count(*)::int FROM daybook.letter_actions WHERE actor = 'ann' AND what = 'accept gap' AND reason LIKE 'the topic was purged%'"); n != 1 {
		t.Errorf("%d actions are noted", n)
	}
}

// Behind for longer than the publisher keeps what it has sent.
func TestRebase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inbox(w.config(), write)
	w.start(in)
	w.pub.several(30, func(i int) int { return i % 8 })
	at := w.pub.position
	want := w.pub.several(30, func(i int) int { return i % 8 })
	w.broker.send(events(want)...)
	w.drained()
	by := By{"ann", "filled from an export"}
	if err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, Base{Partition: AllPartitions, Position: eventstore.PositionAt(at)}, by); err != nil {
		t.Fatal(err)
	}
	w.exact(want)
	if err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, Base{Partition: 0, Position: eventstore.PositionAt(1)}, by); err == nil {
		t.Error("an inbox was moved back")
	}
}

// The store that publishes was restored: the inbox stops with instructions, and goes on where it is told to. What is left of
// the history before is dropped.
func TestAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inbox(w.config(), write)
	stop := w.start(in)
	first := w.pub.several(20, func(i int) int { return i % 8 })
	w.broker.send(events(first)...)
	w.exact(first)
	old := *w.pub
	restored := newPublisher(8)
	restored.position, restored.tails = first[9].position, make([]int64, 8)
	for _, m := range first[:10] {
		restored.tails[m.partition] = m.position
	}
	second := restored.several(20, func(i int) int { return i % 8 })
	w.broker.send(events(second)...)
	w.eventually("the inbox stops", func() bool { return in.Health(context.Background()).State == "stopped" })
	if h := in.Health(context.Background()); !strings.Contains(h.Reason, "inbox.Rebase") || !strings.Contains(h.Reason, restored.epoch.String()) {
		t.Errorf("health %+v", h)
	}
	stop()
	w.exec("DELETE FROM applied WHERE position > $1", first[9].position) // set right what the inbox had beyond
	err := Rebase(t.Context(), w.pool, Ref{Name: "stock"}, Base{
		Partition: AllPartitions, Position: eventstore.PositionAt(first[9].position), Epoch: restored.epoch,
	}, By{"ann", "restored to yesterday"})
	if err != nil {
		t.Fatal(err)
	}
	in = w.inbox(w.config(), write)
	w.start(in)
	late := old.next(1)
	w.broker.send(late.event())
	w.drained()
	w.exact(append(first[:10:10], second...))
	if n := in.Stats().Refused; n != 1 {
		t.Errorf("%d messages refused, want the late one", n)
	}
}

// StartAt AtHead: each partition begins with a head, and never with whatever came first.
func TestStartAtHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.StartAt = AtHead
	before := w.pub.several(16, func(i int) int { return i % 8 })
	w.broker.send(events(before)...)
	for p := range 8 {
		w.broker.send(w.pub.head(p))
	}
	want := w.pub.several(40, func(i int) int { return i % 8 })
	w.broker.send(events(want)...)
	w.start(w.inbox(cfg, write))
	w.exact(want)
	w.drained()
}

// A broker that repeats, shuffles, and loses messages until they are sent again much later, while owners come and go.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.broker.lanes = 4
			random := rand.New(rand.NewPCG(seed, 7))
			cfg := w.config()
			cfg.HoldAtMost, cfg.BatchSize = 5, 7
			want := w.pub.several(500, func(int) int { return random.IntN(40) })
			var sentFirst, later []*message.Message
			for _, m := range events(want) {
				if random.IntN(20) == 0 {
					later = append(later, m)
				} else {
					sentFirst = append(sentFirst, m)
				}
			}
			stop := w.start(w.inbox(cfg, write))
			for i, m := range shuffled(random, sentFirst, 12) {
				w.broker.send(m)
				if i%100 == 99 {
					stop()
					stop = w.start(w.inbox(cfg, write))
				}
			}
			w.drained()
			w.broker.send(shuffled(random, later, 12)...)
			w.exact(want)
			w.drained()
		})
	}
}
