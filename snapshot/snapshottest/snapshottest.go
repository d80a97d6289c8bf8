// Package snapshottest holds every snapshot store to the same behaviour. An engine's test is a few lines:
//
//	func TestSnapshots(t *testing.T) {
//		snapshottest.Run(t, func(t *testing.T) (eventstore.Store, snapshot.Store) {
//			store := memory.New(memory.Config{})
//			return store, store.Snapshots()
//		})
//	}
//
// # Guarantees
//
// What [snapshot.Store] promises is demanded, each in a subtest of its own with stores of its own.
//
// # Caveats
//
// What Load returns for a snapshot that does not belong to the stream is left to the engine, as long as a caller that
// checks version and position cannot be misled.
//
// # Errors
//
// There are none: what goes wrong fails the test.
package snapshottest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/daybook-go/daybook/eventstore"
	"github.com/daybook-go/daybook/snapshot"
)

// Run runs the suite. open returns a new event store and the snapshot store beside it; what must be closed is left to
// t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) (eventstore.Store, snapshot.Store)) {
	for name, test := range map[string]func(t *testing.T, b *bench){
		"absent":      testAbsent,
		"round trip":  testRoundTrip,
		"newest wins": testNewestWins,
		"race":        testRace,
		"long tail":   testLongTail,
		"stranger":    testStranger,
		"delete":      testDelete,
		"invalid":     testInvalid,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{stream: eventstore.NewStreamID("snapshottest", "a-b")}
			b.events, b.snapshots = open(t)
			test(t, b)
		})
	}
}

type bench struct {
	events    eventstore.Store
	snapshots snapshot.Store
	stream    eventstore.StreamID
}

// grow appends events to the stream, up to version to.
func (b *bench) grow(t *testing.T, from, to eventstore.Version) {
	t.Helper()
	var events []eventstore.EventData
	for v := from + 1; v <= to; v++ {
		events = append(events, eventstore.EventData{Type: "snapshottest.happened", Data: fmt.Append(nil, v)})
	}
	if _, err := b.events.Append(t.Context(), eventstore.To(b.stream, eventstore.Exactly(from), events...)); err != nil {
		t.Fatal(err)
	}
}

// at makes a snapshot of the stream as it was at version v.
func (b *bench) at(t *testing.T, v eventstore.Version) snapshot.Snapshot {
	t.Helper()
	s := snapshot.Snapshot{
		Stream: b.stream, Fingerprint: "one", Version: v, ContentType: "text/plain", Data: fmt.Appendf(nil, "state %d", v),
		TakenAt: time.Date(2020, 2, 3, 4, 5, 6, 7000, time.UTC),
	}
	for e, err := range b.events.ReadStream(t.Context(), b.stream, eventstore.Range{From: v, To: v}) {
		if err != nil {
			t.Fatal(err)
		}
		s.Position = e.Position
	}
	return s
}

func (b *bench) save(t *testing.T, s snapshot.Snapshot) {
	t.Helper()
	if err := b.snapshots.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// want demands a snapshot (version 0: none) and the versions of the events that come with it.
func (b *bench) want(t *testing.T, fingerprint string, version, first, last eventstore.Version) snapshot.Snapshot {
	t.Helper()
	got, events, err := b.snapshots.Load(t.Context(), b.stream, fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != version || got.IsZero() != (version == 0) {
		t.Fatalf("snapshot %q at version %d, want %d", fingerprint, got.Version, version)
	}
	next := first
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if e.Version != next || e.Stream != b.stream || !bytes.Equal(e.Data, fmt.Append(nil, next)) {
			t.Fatalf("event %d of %s with %q, want version %d", e.Version, e.Stream, e.Data, next)
		}
		if e.Version == version && e.Position != got.Position {
			t.Fatalf("the snapshot is at position %s, its event at %s", got.Position, e.Position)
		}
		next++
	}
	if next != last+1 {
		t.Fatalf("events up to %d, want up to %d", next-1, last)
	}
	return got
}

func testAbsent(t *testing.T, b *bench) {
	b.want(t, "one", 0, 1, 0)
	b.grow(t, 0, 3)
	b.want(t, "one", 0, 1, 3)
}

func testRoundTrip(t *testing.T, b *bench) {
	b.grow(t, 0, 5)
	saved := b.at(t, 3)
	b.save(t, saved)
	got := b.want(t, "one", 3, 3, 5)
	if got.Stream != saved.Stream || got.Fingerprint != "one" || got.ContentType != saved.ContentType ||
		!bytes.Equal(got.Data, saved.Data) || !got.TakenAt.Equal(saved.TakenAt) || got.TakenAt.Location() != time.UTC {
		t.Errorf("got %+v, saved %+v", got, saved)
	}
	got.Data[0] = 'X'
	if again := b.want(t, "one", 3, 3, 5); !bytes.Equal(again.Data, saved.Data) {
		t.Error("a caller changed what is stored")
	}
	// A snapshot of the last event brings just that event, and an empty state is a state.
	last := b.at(t, 5)
	last.Data = nil
	b.save(t, last)
	if got := b.want(t, "one", 5, 5, 5); len(got.Data) != 0 {
		t.Errorf("data %q", got.Data)
	}
}

func testNewestWins(t *testing.T, b *bench) {
	b.grow(t, 0, 5)
	b.save(t, b.at(t, 4))
	same := b.at(t, 4)
	same.Data = []byte("later, but the same version")
	for _, s := range []snapshot.Snapshot{b.at(t, 2), same} {
		b.save(t, s)
		if got := b.want(t, "one", 4, 4, 5); string(got.Data) != "state 4" {
			t.Errorf("data %q", got.Data)
		}
	}
	other := b.at(t, 2)
	other.Fingerprint = "two"
	b.save(t, other)
	b.want(t, "one", 4, 4, 5)
	b.want(t, "two", 2, 2, 5)
	b.want(t, "three", 0, 1, 5)
}

func testRace(t *testing.T, b *bench) {
	const versions = 20
	b.grow(t, 0, versions)
	var group sync.WaitGroup
	for v := range eventstore.Version(versions) {
		s := b.at(t, v+1)
		group.Go(func() {
			if err := b.snapshots.Save(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	b.want(t, "one", versions, versions, versions)
}

func testLongTail(t *testing.T, b *bench) {
	const length = 2500 // more than an engine reads at once
	b.grow(t, 0, length)
	b.save(t, b.at(t, 2))
	b.want(t, "one", 2, 2, length)
	// A sequence may be left unread, and broken off.
	for range 50 {
		_, events, err := b.snapshots.Load(t.Context(), b.stream, "one")
		if err != nil {
			t.Fatal(err)
		}
		_ = events
	}
	_, events, err := b.snapshots.Load(t.Context(), b.stream, "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
}

// testStranger: a snapshot whose last event is not in the stream must not look as if it were.
func testStranger(t *testing.T, b *bench) {
	b.grow(t, 0, 3)
	future := b.at(t, 3)
	future.Version = 9
	elsewhere := b.at(t, 2)
	elsewhere.Position = eventstore.PositionAt(1 << 40)
	before := b.at(t, 3)
	before.Position = b.at(t, 1).Position
	for _, s := range []snapshot.Snapshot{future, elsewhere, before} {
		if err := b.snapshots.Delete(t.Context(), b.stream); err != nil {
			t.Fatal(err)
		}
		b.save(t, s)
		got, events, err := b.snapshots.Load(t.Context(), b.stream, "one")
		if err != nil {
			t.Fatal(err)
		}
		if got.IsZero() {
			continue
		}
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			if e.Version == got.Version && e.Position == got.Position {
				t.Errorf("snapshot %+v is confirmed by event %d at %s", s, e.Version, e.Position)
			}
			break
		}
	}
}

func testDelete(t *testing.T, b *bench) {
	b.grow(t, 0, 3)
	other := b.at(t, 2)
	other.Fingerprint = "two"
	b.save(t, b.at(t, 3))
	b.save(t, other)
	neighbour := &bench{events: b.events, snapshots: b.snapshots, stream: eventstore.NewStreamID("snapshottest", "a")}
	neighbour.grow(t, 0, 2)
	neighbour.save(t, neighbour.at(t, 1))
	for range 2 { // the second time there is nothing left
		if err := b.snapshots.Delete(t.Context(), b.stream); err != nil {
			t.Fatal(err)
		}
		b.want(t, "one", 0, 1, 3)
		b.want(t, "two", 0, 1, 3)
	}
	neighbour.want(t, "one", 1, 1, 2)
}

func testInvalid(t *testing.T, b *bench) {
	if _, _, err := b.snapshots.Load(t.Context(), eventstore.StreamID{}, "one"); err == nil {
		t.Error("an empty stream id was accepted")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.grow(t, 0, 1)
	if err := b.snapshots.Save(ended, b.at(t, 1)); err == nil {
		t.Error("a context that has ended was ignored by Save")
	}
	if _, _, err := b.snapshots.Load(ended, b.stream, "one"); err == nil {
		t.Error("a context that has ended was ignored by Load")
	}
	b.want(t, "one", 0, 1, 1)
}
