package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/eventstore/eventstoretest"
	"github.com/daybook-go/daybook/eventstore/memory"
)

func TestStore(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(testing.TB) eventstore.Store { return memory.New(memory.Config{}) }, eventstoretest.Features{
		Log:  func(s eventstore.Store) eventstoretest.Log { return s.(*memory.Store).Log() },
		Once: true,
	})
}

func TestStoreWithFewPartitions(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(testing.TB) eventstore.Store { return memory.New(memory.Config{Partitions: 1}) }, eventstoretest.Features{})
}

func TestClock(t *testing.T) {
	t.Parallel()
	// R-PG05: the last instant of a day stays in its day, whatever the zone of the clock.
	zone := time.FixedZone("east", 3*60*60)
	now := time.Date(2012, 12, 31, 23, 59, 59, 999_999_999, zone)
	store := memory.New(memory.Config{Clock: func() time.Time { return now }})
	id := eventstore.NewStreamID("a", "1")
	result, err := store.Append(context.Background(), eventstore.To(id, eventstore.NoStream, eventstore.EventData{Type: "x"}))
	want := time.Date(2012, 12, 31, 20, 59, 59, 999_999_000, time.UTC)
	if err != nil || result.RecordedAt != want {
		t.Errorf("recorded at %v, %v; want %v", result.RecordedAt, err, want)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	a, b := memory.New(memory.Config{}), memory.New(memory.Config{Partitions: 7})
	if a.Partitions() != eventstore.DefaultPartitions || b.Partitions() != 7 {
		t.Errorf("partitions %d and %d", a.Partitions(), b.Partitions())
	}
	if a.Epoch() == b.Epoch() {
		t.Error("two stores have one epoch")
	}
	defer func() {
		if recover() == nil {
			t.Error("a negative number of partitions was accepted")
		}
	}()
	memory.New(memory.Config{Partitions: -1})
}

func TestPositionsHaveHoles(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	id := eventstore.NewStreamID("a", "1")
	var positions []int64
	for range 3 {
		if _, err := store.Append(context.Background(), eventstore.To(id, eventstore.AnyVersion, eventstore.EventData{Type: "x"})); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range store.ReadAll(context.Background(), eventstore.Position{}, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, e.Position.Ordinal())
	}
	if len(positions) != 3 || positions[2]-positions[0] == 2 {
		t.Errorf("positions %v leave out none", positions)
	}
}

func TestWaitBlocks(t *testing.T) {
	t.Parallel()
	log := memory.New(memory.Config{}).Log()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := log.Wait(ctx, eventstore.Position{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting at the end of an empty log: %v", err)
	}
}
