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
		"keep":        testKeep,
		"older":       testOlder,
		"delete":      testDelete,
		"category":    testDeleteCategory,
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
	if err := b.snapshots.Save(t.Context(), s, 2); err != nil {
		t.Fatal(err)
	}
}

// want demands a snapshot (version 0: none) and the versions of the events that come with it.
func (b *bench) want(t *testing.T, fingerprint string, version, first, last eventstore.Version) snapshot.Snapshot {
	t.Helper()
	return b.wantBefore(t, fingerprint, 0, version, first, last)
}

func (b *bench) wantBefore(t *testing.T, fingerprint string, before, version, first, last eventstore.Version) snapshot.Snapshot {
	t.Helper()
	got, events, err := b.snapshots.Load(t.Context(), b.stream, fingerprint, before)
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
			if err := b.snapshots.Save(t.Context(), s, 2); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	b.want(t, "one", versions, versions, versions)
}

// wantKept demands the snapshots that are there, from the newest on.
func (b *bench) wantKept(t *testing.T, fingerprint string, last eventstore.Version, versions ...eventstore.Version) {
	t.Helper()
	before := eventstore.Version(0)
	for _, v := range versions {
		got := b.wantBefore(t, fingerprint, before, v, v, last)
		if want := fmt.Sprintf("state %d", v); string(got.Data) != want {
			t.Errorf("data of version %d: %q, want %q", v, got.Data, want)
		}
		before = v
	}
	b.wantBefore(t, fingerprint, before, 0, 1, last)
}

func testKeep(t *testing.T, b *bench) {
	b.grow(t, 0, 9)
	for _, step := range []struct {
		version eventstore.Version
		keep    int
		kept    []eventstore.Version
	}{
		{2, 3, []eventstore.Version{2}},
		{3, 3, []eventstore.Version{3, 2}},
		{5, 3, []eventstore.Version{5, 3, 2}},
		{6, 3, []eventstore.Version{6, 5, 3}},
		{4, 3, []eventstore.Version{6, 5, 3}}, // late, and older than the newest
		{7, 2, []eventstore.Version{7, 6}},
		{8, 1, []eventstore.Version{8}},
		{9, 0, []eventstore.Version{9}}, // one stays at least
	} {
		other := b.at(t, step.version)
		other.Fingerprint = "two" // not touched by the others
		if err := b.snapshots.Save(t.Context(), other, 100); err != nil {
			t.Fatal(err)
		}
		if err := b.snapshots.Save(t.Context(), b.at(t, step.version), step.keep); err != nil {
			t.Fatal(err)
		}
		b.wantKept(t, "one", 9, step.kept...)
	}
	b.wantKept(t, "two", 9, 9, 8, 7, 6, 5, 3, 2)
}

// testOlder: before asks for snapshots below a version.
func testOlder(t *testing.T, b *bench) {
	b.grow(t, 0, 9)
	for _, v := range []eventstore.Version{2, 5, 8} {
		if err := b.snapshots.Save(t.Context(), b.at(t, v), 9); err != nil {
			t.Fatal(err)
		}
	}
	for before, version := range map[eventstore.Version]eventstore.Version{1: 0, 2: 0, 3: 2, 5: 2, 6: 5, 8: 5, 9: 8, 100: 8, 0: 8} {
		b.wantBefore(t, "one", before, version, max(version, 1), 9)
	}
}

func testLongTail(t *testing.T, b *bench) {
	const length = 2500 // more than an engine reads at once
	b.grow(t, 0, length)
	b.save(t, b.at(t, 2))
	b.want(t, "one", 2, 2, length)
	// A sequence may be left unread, and broken off.
	for range 50 {
		_, events, err := b.snapshots.Load(t.Context(), b.stream, "one", 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = events
	}
	_, events, err := b.snapshots.Load(t.Context(), b.stream, "one", 0)
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
		got, events, err := b.snapshots.Load(t.Context(), b.stream, "one", 0)
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

func testDeleteCategory(t *testing.T, b *bench) {
	const streams = 1200 // more than an engine removes at once
	// Neighbours in every order of names.
	var others []*bench
	for _, category := range []string{"snapshottes", "snapshottest0", "snapshottest.", "snapshottest_", "Snapshottest", "t"} {
		other := &bench{events: b.events, snapshots: b.snapshots, stream: eventstore.NewStreamID(category, "a")}
		other.grow(t, 0, 1)
		other.save(t, other.at(t, 1))
		others = append(others, other)
	}
	b.grow(t, 0, 3)
	for v := range eventstore.Version(3) {
		b.save(t, b.at(t, v+1)) // two stay
	}
	for i := range streams - 2 {
		many := b.at(t, 1)
		many.Stream.ID = fmt.Sprint("many-", i)
		b.save(t, many)
	}
	for _, want := range []int64{streams, 0} {
		if n, err := b.snapshots.DeleteCategory(t.Context(), "snapshottest"); err != nil || n != want {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	b.want(t, "one", 0, 1, 3)
	for _, other := range others {
		other.want(t, "one", 1, 1, 1)
	}
	if _, err := b.snapshots.DeleteCategory(t.Context(), ""); err == nil {
		t.Error("an empty category was accepted")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.snapshots.DeleteCategory(ended, "t"); err == nil {
		t.Error("a context that has ended was ignored")
	}
}

func testInvalid(t *testing.T, b *bench) {
	if _, _, err := b.snapshots.Load(t.Context(), eventstore.StreamID{}, "one", 0); err == nil {
		t.Error("an empty stream id was accepted")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.grow(t, 0, 1)
	if err := b.snapshots.Save(ended, b.at(t, 1), 2); err == nil {
		t.Error("a context that has ended was ignored by Save")
	}
	if _, _, err := b.snapshots.Load(ended, b.stream, "one", 0); err == nil {
		t.Error("a context that has ended was ignored by Load")
	}
	b.want(t, "one", 0, 1, 1)
}
