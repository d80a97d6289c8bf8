package main

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/eventstore"
)

// scene is a meter with a clock that stands where it is put.
type scene struct {
	*lagMeter
	clock time.Time
}

func newScene() *scene {
	s := &scene{clock: time.Unix(0, 0)}
	s.lagMeter = newLagMeter(func() time.Time { return s.clock })
	return s
}

func (s *scene) at(ms int) time.Time {
	s.clock = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)
	return s.clock
}

func mark(partition int, position int64) eventstore.Mark {
	return eventstore.Mark{Partition: partition, Position: eventstore.PositionAt(position)}
}

func (s *scene) writes(marks ...eventstore.Mark) {
	s.wrote(eventstore.MakeToken(uuid.UUID{1}, marks...))
}

func (s *scene) apply(through int64, marks []eventstore.Mark, models ...string) {
	for _, model := range models {
		s.ObserveBatch(eventstore.BatchObservation{Consumer: model, Through: eventstore.PositionAt(through), Marks: marks})
	}
}

func (s *scene) publish(through int64) {
	s.ObservePublish(eventstore.PublishObservation{Through: eventstore.PositionAt(through)})
}

func (s *scene) says(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
}

func TestLagOfALog(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.writes(mark(0, 10))
	s.at(4)
	s.apply(10, nil, "balances", "movements")
	s.at(7)
	s.apply(10, nil, "entries") // the slowest counts: 7 ms
	s.at(10)
	s.apply(20, nil, "balances", "movements", "entries") // before the writer had its answer: nothing
	s.at(11)
	s.writes(mark(0, 20))
	s.writes(mark(0, 30))
	s.at(14)
	s.apply(30, nil, "balances", "movements") // entries was not observed: it is shown at the end, 9 ms later
	s.says(t, s.shown(s.at(20)), "7ms in the median, 9ms at most")
	s.says(t, s.published(s.at(20)), "not known, because another program did it")
}

// Of a published stream each partition moves by itself: a write is shown when all that it wrote is.
func TestLagOfAStream(t *testing.T) {
	t.Parallel()
	s := newScene()
	all := []string{"balances", "movements", "entries"}
	s.writes(mark(1, 12), mark(2, 11)) // at 0 ms
	s.at(1)
	s.writes(mark(3, 13))
	s.at(2)
	s.publish(11)
	s.apply(5, []eventstore.Mark{mark(3, 13), mark(1, 12)}, all...) // the second is shown, 1 ms after it
	s.at(4)
	s.publish(13)                                      // 4 ms and 3 ms
	s.apply(5, []eventstore.Mark{mark(0, 99)}, all...) // says nothing of either
	s.at(5)
	s.apply(5, []eventstore.Mark{mark(2, 11)}, all...) // and the first, 5 ms after it
	s.writes(mark(4, 14))
	s.at(8)
	s.apply(20, nil, all...) // the floor speaks for every partition: 3 ms
	s.publish(20)
	s.says(t, s.shown(s.at(90)), "3ms in the median, 5ms at most")
	s.says(t, s.published(s.at(90)), "3ms in the median, 4ms at most")
}

func TestLagOfWhatFailedIsNotOver(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.writes(mark(0, 10))
	s.publish(9)
	s.at(1)
	s.ObservePublish(eventstore.PublishObservation{Through: eventstore.PositionAt(10), Err: context.DeadlineExceeded})
	s.at(6)
	s.publish(10)
	s.says(t, s.published(s.at(9)), "6ms in the median, 6ms at most")
}
